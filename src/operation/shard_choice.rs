//! Which shard a counting update adds to.
//!
//! The more shards are in use, the fewer writers meet, and the more rows a reader adds up. A random shard, as in
//! [App Engine's article](https://web.archive.org/web/2010/http://code.google.com/appengine/articles/sharding_counters.html),
//! pays for both: two of eight writers meet on one of 16 shards more often than not, while a row that is counted
//! once an hour ends up with as many shards as one that is counted a thousand times a second.
//! `java.util.concurrent`'s `LongAdder`
//! ([`Striped64`](https://github.com/openjdk/jdk/blob/master/src/java.base/share/classes/java/util/concurrent/atomic/Striped64.java))
//! does better: a thread keeps its cell until it meets somebody there, and only then moves.
//!
//! [`ShardChoice::Adaptive`] goes one step further, since a process knows which of its own counts are in flight:
//!
//! - A count claims the lowest *rank* of its key, 0, 1, 2 and so on, that no other count of this process holds, and gives it
//!   back when it is done. So a key has as many shards as it ever had writers at once: one, if it is not hot; and two
//!   counts of one process never meet while there are shards left.
//! - Rank 0 is shard 0 in every process, so that a key that nobody fights for has one row. The other ranks begin at a random
//!   shard in each process, so that processes spread.
//! - Inside the caller's transaction the row stays locked until a COMMIT that is not seen here. So the thread keeps the rank
//!   for its next counts on the key, until it did not count on it for a second. And rank 0 comes last there: transactions that
//!   count on several rows in any order would deadlock if all processes began at the same shards. (A key that one process counts
//!   on both ways has two.)
//! - Writers in several processes would meet on shard 0. A conflict, or a lock that was waited for, makes a key *hot*: this
//!   process then comes to shard 0 last. It forgets that a minute after the last sign.
//!
//! That a lock was waited for is told by the time that a count on shard 0 took, against the shortest times of this process. Since a
//! slow disk or a busy server looks the same, the next count on such a key asks first, at most 20 times a second in all:
//!
//! ```sql
//! SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR UPDATE NOWAIT
//! ```
//!
//! (on PostgreSQL `SKIP LOCKED`, which cannot fail) and only a lock that is held makes the key hot. Inside a transaction, which PostgreSQL would abort, nobody asks: there two slow
//! counts in a row do. A filter that is not by key is told by conflicts alone, since how long it takes depends on the rows.
//!
//! A process that has a [`Stripe`] does all of that within it, and the others of another stripe are never met: for databases of
//! several nodes that all take writes.
//!
//! All of that is advice within this process, a few bytes for each count that is in flight, and never a condition for a
//! count to be right. Keys are known by a hash of the shards table's name and the filter: where the process counts in
//! several databases with tables of the same names, the same key in two of them may use one shard more than it had to.

pub use crate::placement::{ShardChoice, ShardChoiceStats, Stripe};

//! Which shard a counting update adds to.
//!
//! The more shards are in use, the fewer writers meet, and the more rows a reader adds up. A random shard, as in
//! [App Engine's article](https://web.archive.org/web/2010/http://code.google.com/appengine/articles/sharding_counters.html), has
//! both costs: two of eight writers meet on one of 16 shards more often than not, while a row that is counted once an hour ends
//! up with as many shards as one that is counted a thousand times a second. `java.util.concurrent`'s `LongAdder`
//! ([`Striped64`](https://github.com/openjdk/jdk/blob/master/src/java.base/share/classes/java/util/concurrent/atomic/Striped64.java))
//! does better: a thread keeps its cell until it meets somebody there, and only then moves.
//!
//! [`ShardChoice::Adaptive`] goes one step further, since a process knows which of its own increments are in flight:
//!
//! - An increment *reserves* the first shard of its key that no other increment of this process has reserved, until its end. So a key has
//!   as many shards as it ever had writers at once: one, if it is not hot. Two increments of one process never meet while there are
//!   shards left.
//! - Shard 0 is the first in every process, so that a key without contention has one row. The others follow, in each process from a random
//!   one on, so that processes spread.
//! - Inside the caller's transaction the row stays locked until a COMMIT that this crate does not see. So the thread keeps the shard for
//!   its next increments on the key, until a second passes without one. Shard 0 comes last there, because transactions that count on several
//!   rows in any order would deadlock if all processes began at the same shards. (A key that a process counts on both inside and outside of
//!   transactions has two shards.)
//! - Writers in several processes would meet on shard 0. A conflict or a wait for a lock makes a key *hot*: this
//!   process then uses shard 0 last. A minute after the last such sign the key is no longer hot.
//!
//! A process detects a wait by time: it compares the time of an increment on shard 0 with its shortest times. Since a
//! slow disk or a busy server looks the same, the next increment on such a key probes first, at most 20 times a second in all:
//!
//! ```sql
//! SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR NO KEY UPDATE NOWAIT
//! ```
//!
//! (on PostgreSQL `SKIP LOCKED`, which cannot fail) and only a lock that is held makes the key hot. A failed probe would abort a
//! transaction on PostgreSQL, so inside a transaction two slow increments in a row replace it. For a filter that is not by
//! key only conflicts matter, since its time depends on the rows.
//!
//! A process that has a [`Stripe`] does all this within its stripe, and never meets processes of another stripe. Stripes are for
//! databases of several nodes that all accept writes.
//!
//! All this is only a hint within this process, a few bytes for each increment in flight. Totals are right without it. A key is identified by a
//! hash of the shards table's name and the filter. If the process counts in several databases with tables of the same names, the same key
//! in two of them may use one shard more than necessary.

pub use crate::placement::{ShardChoice, ShardChoiceStats, Stripe};

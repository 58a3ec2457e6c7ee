//! Combining: callers of one process that meet at one counter share a statement and its commit.
//!
//! Without a combiner, each increment on a row is a commit, and a commit waits for the disk. So the commits that fit into a second limit the
//! increments on a hot row. Where callers combine, the first one counts on its own connection, and later callers add their amounts to the batch
//! that waits for that connection. No thread or connection is kept idle. A row that is not hot is counted as before: no caller waits for
//! company. On SQLite, which has one writer at a time, callers of all counters share a transaction.
//!
//! An application opts in with a [`Combiner`], for one update,
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
//! # use schema::videos::{self, dsl::*};
//! # use diesel::prelude::*;
//! # #[derive(diesel_sharded::ShardedField)]
//! # #[diesel(table_name = videos)]
//! # struct Video { id: i64, #[sharded] views: i64 }
//! # fn main() -> QueryResult<()> {
//! # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
//! # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
//! # diesel::insert_into(videos).values((id.eq(7), views.eq(100))).execute(conn)?;
//! # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
//! use diesel_sharded::combine::Combiner;
//! use diesel_sharded::update;
//!
//! let combiner = Combiner::new(); // one, beside the pool of connections
//! let counted = update(videos.find(7))
//!     .set(views.eq(views + 1))
//!     .combine(&combiner)
//!     .execute(conn)?;
//! assert_eq!(counted, 1);
//! # Ok(())
//! # }
//! ```
//!
//! or for every increment on the connections that it [admits](Combiner::admit), for example those of a pool:
//!
//! ```
//! # use diesel::prelude::*;
//! # use diesel::r2d2::{ConnectionManager, Pool};
//! # use diesel_sharded::combine::Combiner;
//! # fn pool(url: &str) -> Result<Pool<ConnectionManager<SqliteConnection>>, diesel::r2d2::PoolError> {
//! let pool = Pool::builder().connection_customizer(Box::new(Combiner::new()));
//! pool.build(ConnectionManager::new(url))
//! # }
//! ```
//!
//! Instead of `execute(conn)`, `execute_with(|| Ok::<_, Error>(pool.get()?))` acquires a connection only for a caller who has to count. Its
//! error type is one that Diesel's and the pool's errors convert into. Use only one of the two with a pool: a caller who waits in `execute`
//! holds a connection, and a caller in `execute_with` may wait for that connection, up to their deadlines. It combines only by
//! `.combine(&combiner)`.
//!
//! # What is combined
//! Increments by key outside a transaction, on [`update`](crate::update()), [`RowCounter`](crate::RowCounter) and
//! [`Counter`](crate::Counter), blocking and asynchronous. Keys are compared by the text in which Diesel shows them. So the key's type in
//! the model has to be an integer, `bool`, `String`, `Vec<u8>` or `Uuid`: an application's own type may show two keys the same. Everything
//! else is counted as if there were no combiner: other filters, updates that return rows, idempotency keys, `Float`, changes in an
//! `Option`, bounded counters, and the library's own increments, as in `count_many`. Increments of the same fields in the same order share a batch.
//!
//! `update`'s `or_insert` combines where the row exists: a caller whose row is missing inserts it by itself. A column of
//! `Double`, or of `Numeric` with fewer digits than an amount, rounds once for each batch.
//!
//! # What a caller gets
//! A caller gets `Ok` after the commit that contains its amount, and `Ok(0)` if there is no such row. If a batch fails without changing
//! anything, for example by an overflow, each of its callers counts alone and gets its own error. After a conflict that persists, or if the
//! connection was lost before the commit, the callers combine again until their own attempts or deadlines are used up. If the outcome is
//! unknown, all of them get [`OutcomeUnknown`](crate::Error::OutcomeUnknown): the connection was lost during the commit, or the caller who
//! counted for them panicked, or was dropped in `execute(conn)`. (On a multi-threaded runtime, the asynchronous `execute_with` counts in a
//! separate task, which goes on if its caller is dropped: use it where requests are cancelled.) A caller who is dropped takes its amount
//! back, unless its batch was sent. A caller whose batch was sent, and whose leader has not returned a second after the caller's deadline,
//! gets [`OutcomeUnknown`](crate::Error::OutcomeUnknown) too.
//!
//! The caller who counts for others may sleep: its task is not polled, its pool has no free connection, or its statement waits for a lock.
//! A caller whose batch was not sent within a second leads beside it, or waits for another leader. When its
//! [policy's](crate::retry::RetryPolicy) deadline has passed, it makes one attempt on its own connection. In `execute_with` it has no
//! connection and fails with [`DeadlinePassed`](crate::Error::DeadlinePassed), even if the deadline passes while it waits for a connection.
//! (A pool that blocks is not interrupted.)
//!
//! # What it costs
//! It costs little while only a few callers meet at a row, on a database that locks rows: 2 to 16 callers made 0.9 to 2.2 times the increments
//! (one thread without fsync, where a look for others shows the most: 0.85 to 0.97). [Shards or
//! combiner](crate::guide::operations#shards-or-combiner) has the figures.
//!
//! A combiner learns how many callers should lead at a time, each for a batch of the others. It tries 1, 2, 4, 8 and 16 of them, for each
//! range of callers, and keeps to the number with the shortest calls. Where all lead, each counts alone. Each number is first tried for
//! about 64 calls of each caller, which may be slower. Trying them again costs a few percent of the time. While the server is slow to answer
//! what needs no commit, other processes need it too, and only one of more than four callers leads; this is noticed while one leads. A
//! combiner learns for all its servers together, so give one that is much slower a combiner of its own.
//!
//! A caller who counts for others counts at most one batch more than its own, so its own call takes longer than a member's (64 threads on
//! PostgreSQL: p50 1.8 times, p99 1.6 times, p999 1.2 times). It stops earlier if others lead and no full batch waits.
//!
//! # Admission
//! A caller's amount is counted on another caller's connection, so both connections must mean the same. [`admit`](Combiner::admit) asks a
//! connection once what it is: the server, the database, the schemas (`search_path`), the role, and the settings that decide what a count
//! does, such as `synchronous_commit`, timeouts and `sql_mode`. Only connections that are the same meet, even in one combiner. So an
//! application with several databases, tenants or roles needs no more than one.
//!
//! From then on Diesel tells the combiner the SQL that you send:
//!
//! | text | increments on the connection |
//! |---|---|
//! | `BEGIN`, `START TRANSACTION`; `SAVEPOINT` on SQLite | count alone until `COMMIT` or `ROLLBACK` has succeeded |
//! | one `SELECT`, `INSERT`, `UPDATE`, `DELETE` or the like; on PostgreSQL also `SET LOCAL` and `SET TRANSACTION` | combine as before |
//! | all else: `SET`, `set_config`, `USE`, `ATTACH`, `PRAGMA`, `CREATE`, `CALL`, `@variables`, several statements | count alone from now on |
//!
//! A connection whose admission has ended counts alone until it is admitted anew. So does one with another instrumentation. Neither is an
//! error; [`diesel_sharded_not_combined_total`](crate::observability#metrics) counts the former. Create tables on other connections.
//!
//! **What no client is told is not seen**: a function or a trigger of yours that changes a setting, a variable that was set before the
//! admission and that row security or a trigger reads (PostgreSQL's `app.tenant`, MySQL's `@tenant`), MySQL's temporary tables from before
//! it. Use a combiner for each value there, or [`.alone()`](crate::operation::UpdateStatement::alone).
//!
//! # Without admission
//! `.combine(&combiner)` on a connection that is not admitted, or in `execute_with`, is your word that **all connections of these callers
//! mean the same rows**: the library does not check it. Connections that are admitted and those that are not do not meet.
//!
//! Without admission the library does not know of a transaction that was begun by SQL text. Nobody counts for others inside one, but another
//! caller may count what is counted inside it. That increment is committed whatever becomes of the transaction, or waits for a lock that the
//! transaction holds: admit the connection, or write [`.alone()`](crate::operation::UpdateStatement::alone) there.
//!
//! An increment inside one of Diesel's transactions is never combined. Neither a callback of the retry policy nor the closure that acquires a
//! connection may count through the same combiner: it would wait for itself.
//!
//! A forked process begins with no waiting callers, and never waits for its parent's.

mod admission;
mod handed;
mod lead;
mod leaders;
mod shared_error;
mod slots;
mod sum;
// The model checker compiles `slots.rs` with its own locks.
mod sync {
    pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
}
use crate::connection::wait;

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use diesel::connection::{Instrumentation, get_default_instrumentation};

use self::handed::Handed;
use self::shared_error::SharedError;
use self::slots::Slots;
use self::sum::Sum;
use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Io, Link};
use crate::counting::update::Count;
use crate::engine::PartOf;
use crate::model::{Amount, shows};
use crate::observe;
use crate::per_process::{MadeIn, PerProcess};
#[cfg(test)]
use crate::query_builder::Addend;
use crate::query_builder::{Clauses, shown_binds};

pub(crate) use self::lead::{Role, count};

/// Where callers meet who count for each other; see [`combine`](crate::combine).
///
/// Clones are the same combiner.
#[derive(Clone)]
#[must_use = "a combiner does nothing until it admits a connection or is given to `.combine(..)`"]
pub struct Combiner {
    slots: Arc<PerProcess<Arc<Slots>>>,
    /// Makes the receiver of Diesel's events about an admitted connection.
    instrumentation: fn() -> Option<Box<dyn Instrumentation>>,
}

impl Combiner {
    /// A new combiner, through which nobody counts yet.
    pub fn new() -> Self {
        Combiner {
            slots: Arc::new(PerProcess::new(|_| Arc::new(Slots::new()))),
            instrumentation: get_default_instrumentation,
        }
    }
}

impl Default for Combiner {
    fn default() -> Self {
        Combiner::new()
    }
}

shows!([] Combiner: |self| Combiner {} finish_non_exhaustive);

/// With whom an increment is combined.
#[derive(Debug, Clone, Default)]
pub(crate) enum Combine {
    /// With those whose connections are admitted to the same combiner.
    #[default]
    Admitted,
    Alone,
    With(Combiner),
}

/// Where an increment meets others.
pub(crate) struct Meeting {
    combiner: Combiner,
    /// What its connection is; 0 if nobody asked. `None` if the connection may not combine at the moment.
    identity: Option<u128>,
}

impl Combine {
    /// Whether it meets nobody, on whatever connection.
    fn is_with_nobody(&self) -> bool {
        match self {
            Combine::Admitted => !admission::is_any(),
            Combine::Alone => true,
            Combine::With(_) => false,
        }
    }

    /// Where it meets others, whatever its connection is.
    pub(crate) fn anywhere(&self) -> Option<Meeting> {
        match self {
            Combine::Admitted | Combine::Alone => None,
            Combine::With(combiner) => Some(Meeting {
                combiner: combiner.clone(),
                identity: Some(0),
            }),
        }
    }

    /// Where it meets others on this connection.
    fn on<M: Io>(&self, link: &mut Link<'_, M>) -> Option<Meeting> {
        match (self, admission::meeting(link)) {
            (Combine::Alone, _) => None,
            (Combine::Admitted, meeting) => meeting,
            (Combine::With(combiner), Some(Meeting { identity, .. })) => Some(Meeting {
                combiner: combiner.clone(),
                identity,
            }),
            (Combine::With(_), None) => self.anywhere(),
        }
    }
}

/// The name of a counter, or of several fields of a row that are counted together.
#[derive(Clone)]
pub(crate) struct CounterKey {
    backend: &'static str,
    /// What the connection is, if it is admitted.
    identity: u128,
    table: &'static str,
    fields: &'static [&'static str],
    /// Whether the increment inserts a missing row.
    inserts: bool,
    /// The values of the key, as they are shown.
    key: Arc<str>,
    /// The counter as a [`Count`] of [`Handed`], for leaders of other counters. It is not part of the name.
    handed: Option<Arc<dyn Any + Send + Sync>>,
}

impl CounterKey {
    /// The slot of this counter, and the greatest number of its leaders. A database that has one writer has one slot for all counters: in
    /// separate slots they would wait for the writer, out of turn.
    fn slot(&self, dialect: Dialect) -> (Self, usize) {
        match dialect.has_row_locks() {
            true => (self.clone(), leaders::MOST),
            false => {
                let all = CounterKey {
                    table: "",
                    fields: &[],
                    inserts: false,
                    key: Arc::default(),
                    handed: None,
                    ..*self
                };
                (all, 1)
            }
        }
    }

    /// The counter for a leader of another one, on a connection of `DB`.
    fn handed<DB: ShardedBackend>(&self) -> Option<&Count<Arc<Handed<DB>>>> {
        self.handed.as_ref()?.downcast_ref()
    }

    fn name(&self) -> impl Hash + Eq + '_ {
        (
            self.backend,
            self.identity,
            self.table,
            self.fields,
            self.inserts,
            &*self.key,
        )
    }
}

impl PartialEq for CounterKey {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for CounterKey {}

impl Hash for CounterKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

/// An increment that may be combined with others.
pub(crate) struct Combinable {
    slot: (CounterKey, usize),
    key: CounterKey,
    amounts: Box<[Sum]>,
}

impl Combinable {
    /// The text of the key, and the amounts.
    #[cfg(test)]
    pub(crate) fn shown(self) -> (String, Vec<Addend>) {
        let amounts = self.amounts.iter().filter_map(Sum::addend);
        (self.key.key.to_string(), amounts.collect())
    }
}

impl<U: ?Sized> Count<U> {
    /// The increment in a form that can be combined; `None` if it counts alone.
    pub(crate) fn combinable<DB: ShardedBackend>(
        &self,
        meeting: &Meeting,
        clauses: Clauses<'_, DB>,
        backend: &DB,
    ) -> Option<Combinable> {
        let facts = &self.facts;
        let may_be = facts.part_of == PartOf::Nothing && facts.by_key && (self.shows_key)();
        let identity = meeting.identity.filter(|_| may_be);
        let combinable = identity
            .and_then(|identity| self.through(&meeting.combiner, identity, clauses, backend));
        if combinable.is_none() {
            observe::not_combined(facts.dialect, facts.shards_table.as_str());
        }
        combinable
    }

    /// `None` if the key or an amount is not known for certain.
    fn through<DB: ShardedBackend>(
        &self,
        combiner: &Combiner,
        identity: u128,
        clauses: Clauses<'_, DB>,
        backend: &DB,
    ) -> Option<Combinable> {
        let facts = self.facts_for_all();
        let mut of = vec![];
        if !(self.terms)(&mut of) {
            return None;
        }
        let values = shown_binds(clauses.changes, backend)?;
        if values.len() != of.len() {
            return None;
        }
        let type_of = |field: &&str| {
            let column = facts.columns.iter().find(|column| column.name == *field);
            column.map(|column| column.column_type)
        };
        let types: Vec<_> = facts.fields.iter().map(type_of).collect::<Option<_>>()?;
        let mut amounts: Vec<_> = types.iter().copied().map(Amount::zero).collect();
        for (term, value) in of.iter().zip(values) {
            let n = Amount::of_shown(&value, *types.get(term.field)?)?;
            let amount = amounts.get_mut(term.field)?;
            match term.is_subtracted {
                true => *amount = amount.minus(&n)?,
                false => *amount += &n,
            }
        }
        let amounts: Box<[_]> = amounts.into_iter().map(Sum::of).collect();
        if amounts.iter().any(|sum| sum.addend().is_none()) {
            return None; // it cannot be sent as a sum
        }
        let key = format!("{:?}", shown_binds(clauses.filter, backend)?);
        let mut key = CounterKey {
            backend: facts.dialect.name(),
            identity,
            table: facts.shards_table.as_str(),
            fields: facts.fields,
            inserts: facts.inserts,
            key: key.into(),
            handed: None,
        };
        let slot = key.slot(facts.dialect);
        // Where rows lock, counters do not share a slot. A caller who finds no leader counts by itself.
        if !facts.dialect.has_row_locks() && combiner.slots.own().has(&slot.0) {
            key.handed = Handed::of(self, clauses).map(|counter| Arc::new(counter) as _);
        }
        Some(Combinable { slot, key, amounts })
    }
}

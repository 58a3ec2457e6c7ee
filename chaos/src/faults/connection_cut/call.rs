//! The calls that are cut, and the state that each leaves behind.

use std::thread;

use diesel::prelude::*;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{Counter, Error, RowCounter, fold, set_total, update};

use crate::backend::ChaosConnection;
use crate::schema::chaos_rows::dsl::*;
use crate::schema::{chaos_rows, chaos_tokens};

/// `views` of every row at the beginning, the amount that is added, and the total that is set.
const BASE: i64 = 1000;
const ADDED: i64 = 5;
const SET: i64 = 7777;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    /// A count on one row by its key. One statement, which commits by itself, if the shard is there.
    CountByKey,
    /// A count on two rows by a filter: statements that commit by themselves, or a transaction.
    CountByFilter,
    /// A count that inserts the row.
    OrInsert,
    /// The first count by a name.
    Named,
    /// A count that returns the row.
    GetResult,
    /// A transaction of the caller's with several counts.
    Transaction,
    SetTotal,
    Fold,
    /// A count on one row through the coalescer: one statement.
    Coalesced,
    /// Counts on two rows and a name, at once, through the coalescer: a transaction.
    CoalescedTogether,
}

impl Call {
    pub(super) const ALL: [Call; 10] = [
        Call::CountByKey,
        Call::CountByFilter,
        Call::OrInsert,
        Call::Named,
        Call::GetResult,
        Call::Transaction,
        Call::SetTotal,
        Call::Fold,
        Call::Coalesced,
        Call::CoalescedTogether,
    ];

    /// Whether it is always a transaction whose COMMIT is sent as text, so that only that can leave the outcome unknown.
    pub(super) fn is_a_transaction(self, keyed: bool) -> bool {
        match self {
            Call::Transaction | Call::SetTotal | Call::Fold => true,
            Call::CountByFilter | Call::GetResult => keyed,
            _ => false,
        }
    }

    pub(super) fn is_coalesced(self) -> bool {
        matches!(self, Call::Coalesced | Call::CoalescedTogether)
    }

    pub(super) fn takes_a_key(self) -> bool {
        !matches!(self, Call::Transaction | Call::SetTotal | Call::Fold)
    }
}

/// The two rows and the name that one call uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target(pub(super) i64);

impl Target {
    fn row(self) -> i64 {
        2 * self.0
    }

    fn other_row(self) -> i64 {
        2 * self.0 + 1
    }

    fn name(self) -> String {
        format!("cut {}", self.0)
    }

    /// The idempotency key or the token of a count.
    fn key(self, n: usize) -> String {
        format!("cut {}, {n}", self.0)
    }
}

/// The values that a call may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    row: Option<i64>,
    other_row: Option<i64>,
    named: i64,
    tokens: i64,
    /// The plain column of the row that is folded.
    base: Option<i64>,
}

impl State {
    pub(super) fn after(mut self, call: Call) -> State {
        let add = |total: &mut Option<i64>| *total = Some(total.unwrap_or(0) + ADDED);
        match call {
            Call::CountByKey | Call::OrInsert | Call::GetResult | Call::Coalesced => {
                add(&mut self.row);
            }
            Call::CountByFilter => {
                add(&mut self.row);
                add(&mut self.other_row);
            }
            Call::Named => self.named += ADDED,
            Call::Transaction | Call::CoalescedTogether => {
                add(&mut self.row);
                add(&mut self.other_row);
                self.named += ADDED;
                self.tokens += i64::from(call == Call::Transaction);
            }
            Call::SetTotal => self.row = Some(SET),
            Call::Fold => self.base = self.row,
        }
        self
    }
}

/// A connection with the calls of this fault.
pub(super) trait Cuttable: ChaosConnection {
    /// Makes the call, with an idempotency key or without one.
    fn call(&mut self, call: Call, target: Target, keyed: bool) -> Result<(), Error>;

    /// Makes the call through a coalescer.
    fn call_coalesced(
        coalescer: &Coalescer<Self>,
        call: Call,
        target: Target,
        keyed: bool,
    ) -> Result<(), Error>;

    /// Inserts the rows that the call needs.
    fn prepare(&mut self, call: Call, target: Target);

    fn state(&mut self, call: Call, target: Target) -> State;
}

/// Fails unless one row was counted.
fn one(counted: usize) -> Result<(), Error> {
    exactly(1, counted)
}

fn exactly(there: usize, counted: usize) -> Result<(), Error> {
    match counted == there {
        true => Ok(()),
        false => Err(Error::Diesel(diesel::result::Error::QueryBuilderError(
            format!("{counted} rows counted of {there}").into(),
        ))),
    }
}

macro_rules! cuttable {
    ($($Conn:ty),+) => {$(
        impl Cuttable for $Conn {
            fn call(&mut self, call: Call, target: Target, keyed: bool) -> Result<(), Error> {
                let conn = self;
                let key = target.key(0);
                let by_key = || update(chaos_rows.find(target.row())).set(views.eq(views + ADDED));
                match (call, keyed) {
                    (Call::CountByKey, false) => one(by_key().execute(conn)?),
                    (Call::CountByKey, true) => one(by_key().idempotency_key(key).execute(conn)?),
                    (Call::CountByFilter, _) => {
                        let count = update(chaos_rows.filter(team.eq(target.0))).set(views.eq(views + ADDED));
                        exactly(2, match keyed {
                            false => count.execute(conn)?,
                            true => count.idempotency_key(key).execute(conn)?,
                        })
                    }
                    (Call::OrInsert, _) => {
                        let row = (chaos_rows::id.eq(target.row()), views.eq(0), likes.eq(0));
                        let count = by_key().or_insert(row);
                        one(match keyed {
                            false => count.execute(conn)?,
                            true => count.idempotency_key(key).execute(conn)?,
                        })
                    }
                    (Call::Named, false) => {
                        Counter::named(target.name()).add(ADDED, conn)?;
                        Ok(())
                    }
                    (Call::Named, true) => {
                        one(Counter::named(target.name()).idempotency_key(key).add(ADDED, conn)?)
                    }
                    (Call::GetResult, _) => {
                        let count = by_key().returning((id, views.total()));
                        let read: (i64, i64) = match keyed {
                            false => count.get_result(conn)?,
                            true => count.idempotency_key(key).get_result(conn)?,
                        };
                        exactly((BASE + ADDED) as usize, read.1 as usize)
                    }
                    (Call::Transaction, _) => {
                        let counted: QueryResult<usize> = retry::transaction(conn, RetryPolicy::default(), |conn| {
                            diesel::insert_into(chaos_tokens::table)
                                .values(chaos_tokens::token.eq(&key))
                                .execute(conn)?;
                            let counted = by_key().execute(conn)?;
                            Counter::named(target.name()).add(ADDED, conn)?;
                            let other = update(chaos_rows.find(target.other_row()));
                            Ok(counted + other.set(views.eq(views + ADDED)).execute(conn)?)
                        });
                        exactly(2, counted?)
                    }
                    (Call::SetTotal, _) => {
                        one(set_total(chaos_rows.find(target.row()), views, SET).execute(conn)?)
                    }
                    (Call::Fold, _) => {
                        fold(chaos_rows.find(target.row())).run(conn)?;
                        Ok(())
                    }
                    (Call::Coalesced | Call::CoalescedTogether, _) => {
                        unreachable!("the coalescer makes these calls")
                    }
                }
            }

            fn call_coalesced(
                coalescer: &Coalescer<Self>,
                call: Call,
                target: Target,
                keyed: bool,
            ) -> Result<(), Error> {
                let row = RowCounter::of(views, target.row());
                let other_row = RowCounter::of(views, target.other_row());
                let named = Counter::named(target.name());
                let add = |n: usize| match (n, keyed) {
                    (0, false) => coalescer.add(&row, ADDED),
                    (0, true) => coalescer.add(&row.idempotency_key(target.key(n)), ADDED),
                    (1, false) => coalescer.add(&other_row, ADDED),
                    (1, true) => coalescer.add(&other_row.idempotency_key(target.key(n)), ADDED),
                    (_, false) => coalescer.add(&named, ADDED),
                    (_, true) => coalescer.add(&named.idempotency_key(target.key(n)), ADDED),
                };
                if call == Call::Coalesced {
                    return one(add(0)?);
                }
                thread::scope(|scope| {
                    let added: Vec<_> = (0..3).map(|n| scope.spawn(move || one(add(n)?))).collect();
                    let told: Vec<_> = added.into_iter().map(|added| added.join().expect("no panic")).collect();
                    told.into_iter().collect()
                })
            }

            fn prepare(&mut self, call: Call, target: Target) {
                if call == Call::OrInsert {
                    return;
                }
                let rows = [(target.row(), Some(target.0)), (target.other_row(), Some(target.0))];
                self.insert_rows(&rows, BASE).expect("rows of a call");
                if call == Call::Fold {
                    let counted = update(chaos_rows.find(target.row())).set(views.eq(views + 3));
                    assert_eq!(counted.execute(self), Ok(1));
                }
            }

            fn state(&mut self, call: Call, target: Target) -> State {
                let mut total = |row: i64| {
                    let read = chaos_rows.find(row).select((views.total(), views));
                    read.first::<(i64, i64)>(self).optional().expect("a total")
                };
                let row = total(target.row());
                let other_row = total(target.other_row());
                let tokens = chaos_tokens::table.filter(chaos_tokens::token.eq(target.key(0)));
                State {
                    row: row.map(|(total, _)| total),
                    other_row: other_row.map(|(total, _)| total),
                    named: Counter::named(target.name()).get(self).expect("a total"),
                    tokens: tokens.count().get_result(self).expect("a number"),
                    base: row.map(|(_, base)| base).filter(|_| call == Call::Fold),
                }
            }
        }
    )+};
}

cuttable!(PgConnection, MysqlConnection, SqliteConnection);

//! `diesel-sharded verify` and `backfill`: totals beside a recount of what they count, and repaired by it.

use bigdecimal::{BigDecimal, ToPrimitive, Zero};
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::described::{LockedRows, add_to_base, integers, lock};
use diesel_sharded::model::ShardsColumn;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};
use diesel_sharded::{Error as ShardedError, Unfit};

use crate::args::RecountArgs;
use crate::connection::AnyConnection;
use crate::drifts::{Compared, Range, RepairError};
use crate::error::Error;
use crate::exit::Ended;
use crate::interrupt::Interrupt;
use crate::key::{Key, Keyed, as_text};
use crate::live::LiveTables;
use crate::output::{Output, plural};
use crate::pace::{Pace, bar};
use crate::sharded::{self, is_integer};
use crate::statement::{Statement, Value};

/// Whether drifts are only told, or repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Verify,
    Repair,
}

pub fn run(
    args: &RecountArgs,
    mode: Mode,
    conn: &mut AnyConnection,
    interrupt: &Interrupt,
    out: &mut Output,
) -> Result<Ended, Error> {
    let dialect = conn.dialect();
    let (live, table) = LiveTables::of(&args.table, conn)?;
    let sharded = &sharded::find(dialect, &live, &table)?;
    let field = sharded::field(sharded, &args.field)?;
    if !is_integer(field.column_type()) {
        return Err(Error::NotAnInteger {
            table: sharded.table().to_string(),
            column: field.name().to_owned(),
        });
    }
    let after = match &*args.after {
        [] => None,
        after => Some(Key::parse(sharded, after)?),
    };
    let recounting = Recounting {
        keyed: Keyed { sharded, dialect },
        field,
        args,
        mode,
    };
    recounting.run(after, conn, interrupt, out)
}

struct Recounting<'a> {
    keyed: Keyed<'a>,
    field: &'a ShardsColumn,
    args: &'a RecountArgs,
    mode: Mode,
}

/// The drifts of a range, and those that could not be repaired.
#[derive(Default)]
struct Found {
    drifts: Vec<Compared>,
    /// Bases do not take what these lack.
    unfit: Vec<(Key, Unfit)>,
}

impl Recounting<'_> {
    fn drifts(
        &self,
        range: &Range<'_>,
        conn: &mut AnyConnection,
    ) -> Result<Vec<Compared>, RepairError> {
        let recount = &self.args.recount;
        self.keyed.drifts(self.field, recount, range, conn)
    }

    fn run(
        &self,
        mut last: Option<Key>,
        conn: &mut AnyConnection,
        interrupt: &Interrupt,
        out: &mut Output,
    ) -> Result<Ended, Error> {
        let sharded = self.keyed.sharded;
        let bar = bar(self.count(last.as_ref(), conn)?, sharded.table().as_str());
        let mut pace = Pace::at_most_per_second(self.args.at_most_per_second);
        let batch = pace.batch(self.args.batch as usize);
        let (mut rows, mut drifts, mut unfit) = (0, 0, 0);
        let result = loop {
            let (keys, found) = match self.next(batch, last.as_ref(), conn) {
                Ok(Some(next)) => next,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            bar.inc(keys.len() as u64);
            rows += keys.len();
            for drift in &found.drifts {
                if drifts < self.args.show {
                    bar.suspend(|| self.tell(drift, &found.unfit, out))?;
                }
                drifts += 1;
            }
            unfit += found.unfit.len();
            last = keys.last().cloned();
            pace.after_batch(keys.len(), interrupt);
            if interrupt.came() {
                break Ok(());
            }
        };
        bar.finish_and_clear();
        if drifts > self.args.show {
            out.line(&format!("… and {} more", drifts - self.args.show))?;
        }
        let (what, verb) = match self.mode {
            Mode::Verify => ("verify", "differ from the recount"),
            Mode::Repair => ("backfill", "were not as recounted"),
        };
        out.line(&format!(
            "{}.{}: {} compared, {drifts} {verb}{}",
            sharded.table(),
            self.field.name(),
            plural(rows as u64, "row"),
            match (self.mode, unfit) {
                (Mode::Verify, _) => String::new(),
                (Mode::Repair, unfit) => format!(", {} repaired", drifts - unfit),
            }
        ))?;
        if unfit > 0 {
            out.note(&format!(
                "{unfit} could not be repaired: the column does not take what they lack; fold first, widen it, or let this role update the rows"
            ));
        }
        if result.is_err() || interrupt.came() {
            let from = match &last {
                Some(last) => last.after_arguments(sharded),
                None => String::new(),
            };
            out.note(&format!(
                "{}: go on with: diesel-sharded {what} {} {} --recount …{from}",
                match result.is_err() {
                    true => "ended by an error",
                    false => "interrupted",
                },
                sharded.table(),
                self.field.name(),
            ));
        }
        result?;
        Ok(match self.mode {
            _ if interrupt.came() => Ended::Interrupted,
            Mode::Verify if drifts > 0 => Ended::LeftOver,
            Mode::Repair if unfit > 0 => Ended::LeftOver,
            _ => Ended::Done,
        })
    }

    fn tell(
        &self,
        drift: &Compared,
        unfit: &[(Key, Unfit)],
        out: &mut Output,
    ) -> Result<(), Error> {
        let lacks = &drift.expected - &drift.total;
        let sign = if lacks > BigDecimal::zero() { "+" } else { "" };
        let outcome = match unfit.iter().find(|(key, _)| *key == drift.key) {
            Some((_, Unfit::OutOfRange)) => ", not repaired: out of range".to_owned(),
            Some((_, reason)) => format!(", not repaired: the row {reason}"),
            None => String::new(),
        };
        out.line(&format!(
            "{}: total {}, recounted {} ({sign}{lacks}{outcome})",
            drift.key.display(self.keyed.sharded),
            drift.total,
            drift.expected,
        ))
    }

    fn count(&self, after: Option<&Key>, conn: &mut AnyConnection) -> QueryResult<u64> {
        let (keyed, table) = (self.keyed, self.keyed.sharded.table());
        let count = Statement::default().sql("SELECT CAST(COUNT(*)");
        let count = count.sql(as_text(keyed.dialect)).sql(" FROM ").table(table);
        let count = match after {
            Some(key) => keyed.is_beyond(count.sql(" WHERE "), table, ">", false, key),
            None => count,
        };
        let rows = count.rows(conn)?;
        rows.first().map_or(Ok(0), |row| row.parse(0))
    }

    /// Compares the next rows in key order, and repairs them if it should. Their keys, and what differed.
    fn next(
        &self,
        batch: usize,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> Result<Option<(Vec<Key>, Found)>, Error> {
        let (keyed, table) = (self.keyed, self.keyed.sharded.table());
        let pick = keyed.select_key(Statement::default().sql("SELECT "), table);
        let pick = pick.sql(" FROM ").table(table);
        let pick = match after {
            Some(key) => keyed.is_beyond(pick.sql(" WHERE "), table, ">", false, key),
            None => pick,
        };
        let pick = keyed.key(pick.sql(" ORDER BY "), table).sql(" LIMIT ");
        let rows = pick.bind(Value::Integer(batch as i64)).rows(conn)?;
        let keys = rows
            .iter()
            .map(|row| Key::read(keyed.sharded.key().len(), row));
        let keys: Vec<_> = keys.collect::<QueryResult<_>>()?;
        let Some(last) = keys.last() else {
            return Ok(None);
        };
        let range = Range { after, last };
        let drifts = self
            .drifts(&range, conn)
            .map_err(|error| self.told(error))?;
        let found = match self.mode {
            Mode::Repair if !drifts.is_empty() => self.repair(&range, &drifts, conn)?,
            _ => Found {
                drifts,
                ..Found::default()
            },
        };
        Ok(Some((keys, found)))
    }

    fn told(&self, error: RepairError) -> Error {
        match error {
            RepairError::NotGrouped(key) => Error::RecountNotGrouped { key },
            RepairError::Diesel(DieselError::DatabaseError(_, information)) => Error::Recount(
                information.message().to_owned(),
                self.keyed.sharded.key().len(),
            ),
            RepairError::Diesel(error) => error.into(),
        }
    }

    /// Locks the rows that differ, so that no other repair, fold or set comes in between, compares again in one snapshot, and
    /// corrects the bases. On PostgreSQL the snapshot is the one of the lock, and a row that was written since is a
    /// serialization failure, after which it is tried again.
    ///
    /// ```sql
    /// BEGIN ISOLATION LEVEL REPEATABLE READ;                  -- SQLite: BEGIN IMMEDIATE
    /// SELECT 1 FROM "videos" WHERE … ORDER BY "videos"."id" FOR NO KEY UPDATE;     -- MySQL: FOR UPDATE; SQLite: none
    /// WITH … SELECT …;                                        -- as above
    /// UPDATE "videos" SET "likes" = ("videos"."likes" + $1) WHERE …;
    /// COMMIT
    /// ```
    fn repair(
        &self,
        range: &Range<'_>,
        suspects: &[Compared],
        conn: &mut AnyConnection,
    ) -> Result<Found, Error> {
        let suspects: Vec<_> = suspects.iter().map(|drift| drift.key.clone()).collect();
        let repaired = Transaction::new()
            .isolation(Isolation::RepeatableRead)
            .retry(RetryPolicy::default())
            .run(conn, |conn| {
                let LockedRows { locked, not_locked } = lock(self.keyed, &suspects, conn)?;
                let mut found = Found::default();
                for drift in self.drifts(range, conn)? {
                    let key = drift.key.clone();
                    if not_locked.contains(&key) {
                        found.unfit.push((key, Unfit::NotLocked));
                    } else if !locked.contains(&key) {
                        continue; // it came into the range since
                    } else if let Some(reason) = self.add_lacking(&drift, conn)? {
                        found.unfit.push((key, reason));
                    }
                    found.drifts.push(drift);
                }
                Ok(found)
            });
        repaired.map_err(|error| self.told(error))
    }

    /// The difference that has to be added to the base, if that takes it.
    fn lacks(&self, drift: &Compared) -> Option<i64> {
        let (least, greatest) = integers(self.field.column_type());
        let lacks = &drift.expected - &drift.total;
        let base = (&drift.base + &lacks).to_i64()?;
        let fits = |n: i64| (least..=greatest).contains(&n);
        let lacks = lacks.is_integer().then(|| lacks.to_i64())??;
        (fits(base) && fits(drift.expected.to_i64()?)).then_some(lacks)
    }

    /// Corrects the base, in a savepoint, which is rolled back where the base does not take it: for the reason that comes back.
    fn add_lacking(
        &self,
        drift: &Compared,
        conn: &mut AnyConnection,
    ) -> QueryResult<Option<Unfit>> {
        let Some(lacks) = self.lacks(drift) else {
            return Ok(Some(Unfit::OutOfRange));
        };
        let (keyed, name) = (self.keyed, self.field.name());
        let add = Statement::default().name(name).sql(" = (");
        let add = add.column(keyed.sharded.table(), name);
        let add = add.sql(" + ").bind(Value::Integer(lacks)).sql(")");
        let added =
            conn.transaction(|conn| add_to_base(keyed, &drift.key, self.field, lacks, &add, conn));
        match added.map_err(ShardedError::from) {
            Ok(()) => Ok(None),
            Err(ShardedError::Unfit { reason, .. }) => Ok(Some(reason)),
            Err(error) => Err(error.into()),
        }
    }
}

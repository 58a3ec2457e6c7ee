//! `diesel-sharded verify` and `backfill`: totals beside a recount of what they count, and repaired by it.

use bigdecimal::{BigDecimal, ToPrimitive, Zero};
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::Unfit;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::integers;
use diesel_sharded::operation::Amount;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};

use crate::args::RecountArgs;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::held::FoldError;
use crate::interrupt::Interrupt;
use crate::key::{Key, Keyed, as_text};
use crate::live::LiveTables;
use crate::output::{Output, plural};
use crate::pace::{Pace, bar};
use crate::sharded::{Field, Sharded, is_integer};
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
    let live = LiveTables::read(conn)?;
    let sharded = &Sharded::find(dialect, &live, &args.table)?;
    let field = sharded.field(&args.field)?;
    if !is_integer(field.column_type) {
        return Err(Error::NotAnInteger {
            table: sharded.table.to_owned(),
            column: field.name.to_owned(),
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
    field: Field,
    args: &'a RecountArgs,
    mode: Mode,
}

/// A range of keys, and how many there are.
struct Range<'a> {
    after: Option<&'a Key>,
    last: &'a Key,
}

/// A row beside its recount.
struct Compared {
    key: Key,
    base: BigDecimal,
    total: BigDecimal,
    expected: BigDecimal,
}

/// What became of the drifts of a range.
#[derive(Default)]
struct Found {
    drifts: Vec<Compared>,
    /// Bases do not take what these lack.
    unfit: Vec<(Key, Unfit)>,
}

/// What ends a repair.
#[derive(Debug, thiserror::Error)]
enum RepairError {
    #[error("the recount gave more than one number for the key {0}")]
    NotGrouped(String),
    #[error("{0}")]
    Diesel(#[from] DieselError),
}

impl Recounting<'_> {
    fn run(
        &self,
        mut last: Option<Key>,
        conn: &mut AnyConnection,
        interrupt: &Interrupt,
        out: &mut Output,
    ) -> Result<Ended, Error> {
        let sharded = self.keyed.sharded;
        let bar = bar(self.count(last.as_ref(), conn)?, sharded.table);
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
            sharded.table,
            self.field.name,
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
                sharded.table,
                self.field.name,
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
        let (keyed, table) = (self.keyed, self.keyed.sharded.table);
        let count = Statement::default().sql("SELECT CAST(COUNT(*)");
        let count = count.sql(as_text(keyed.dialect)).sql(" FROM ").name(table);
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
        let (keyed, table) = (self.keyed, self.keyed.sharded.table);
        let pick = keyed.select_key(Statement::default().sql("SELECT "), table);
        let pick = pick.sql(" FROM ").name(table);
        let pick = match after {
            Some(key) => keyed.is_beyond(pick.sql(" WHERE "), table, ">", false, key),
            None => pick,
        };
        let pick = keyed.key(pick.sql(" ORDER BY "), table).sql(" LIMIT ");
        let rows = pick.bind(Value::Integer(batch as i64)).rows(conn)?;
        let keys = rows.iter().map(|row| Key::read(keyed.sharded, row));
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
                self.keyed.sharded.key.len(),
            ),
            RepairError::Diesel(error) => error.into(),
        }
    }

    /// The rows of a range whose totals are not as recounted, read by one statement.
    ///
    /// ```sql
    /// WITH diesel_sharded_recount (key_1, number) AS (…)
    /// SELECT CAST("videos"."id" AS TEXT), CAST("videos"."likes" AS TEXT), CAST(total AS TEXT),
    ///     CAST(COALESCE(recounted.number, 0) AS TEXT)
    /// FROM "videos" LEFT JOIN (SELECT * FROM diesel_sharded_recount WHERE key_1 >= $1 AND key_1 <= $2) AS recounted
    ///     ON recounted.key_1 = "videos"."id"
    /// WHERE "videos"."id" > $3 AND "videos"."id" <= $4 ORDER BY "videos"."id"
    /// ```
    fn drifts(
        &self,
        range: &Range<'_>,
        conn: &mut AnyConnection,
    ) -> Result<Vec<Compared>, RepairError> {
        let (keyed, sharded) = (self.keyed, self.keyed.sharded);
        let table = sharded.table;
        let keys = 1..=sharded.key.len();
        let recount = self.args.recount.trim().trim_end_matches(';');
        let compare = Statement::default().sql("WITH diesel_sharded_recount (");
        let compare = compare.each(", ", keys, |names, i| names.sql(&format!("key_{i}")));
        let compare = compare
            .sql(", number) AS (\n")
            .sql(recount)
            .sql("\n) SELECT ");
        let compare = keyed.select_key(compare, table).sql(", CAST(");
        let compare = compare.column(table, self.field.name);
        let compare = compare.sql(as_text(keyed.dialect)).sql(", CAST(");
        let compare = compare.total(sharded.described, self.field.column, None);
        let compare = compare.sql(as_text(keyed.dialect));
        let compare = compare.sql(", CAST(COALESCE(recounted.number, 0)");
        let compare = compare
            .sql(as_text(keyed.dialect))
            .sql(" FROM ")
            .name(table);
        let compare = compare.sql(" LEFT JOIN (SELECT * FROM diesel_sharded_recount");
        let compare = self.narrowed(compare, range).sql(") AS recounted ON ");
        let columns = sharded.key.iter().enumerate();
        let compare = compare.each(" AND ", columns, |compare, (i, column)| {
            let compare = compare.sql(&format!("recounted.key_{} = ", i + 1));
            compare.column(table, column.name)
        });
        let compare = match range.after {
            Some(key) => keyed
                .is_beyond(compare.sql(" WHERE "), table, ">", false, key)
                .sql(" AND "),
            None => compare.sql(" WHERE "),
        };
        let compare = keyed.is_beyond(compare, table, "<", true, range.last);
        let compare = keyed.key(compare.sql(" ORDER BY "), table);
        let mut before = None;
        let mut drifts = vec![];
        for row in compare.rows(conn)? {
            let key = Key::read(sharded, &row)?;
            if before.as_ref() == Some(&key) {
                return Err(RepairError::NotGrouped(key.display(sharded)));
            }
            let number = |column| row.parse::<BigDecimal>(sharded.key.len() + column);
            let compared = Compared {
                base: number(0)?,
                total: number(1)?,
                expected: number(2)?,
                key: key.clone(),
            };
            if compared.total != compared.expected {
                drifts.push(compared);
            }
            before = Some(key);
        }
        Ok(drifts)
    }

    /// Lets the planner recount this range alone, where the keys are integers: whatever type the recount gives them, they are
    /// then compared here as they are with the parent's, and in one order. Texts and dates might not be.
    fn narrowed(&self, statement: Statement, range: &Range<'_>) -> Statement {
        let keyed = self.keyed;
        let first = keyed.sharded.key.first();
        if !first.is_some_and(|column| is_integer(column.column_type)) {
            return statement;
        }
        let statement = statement.sql(" WHERE key_1 <= ");
        let statement = keyed.bind_first_integer(statement, range.last);
        match range.after {
            Some(after) => keyed.bind_first_integer(statement.sql(" AND key_1 >= "), after),
            None => statement,
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
        let clause = match self.keyed.dialect {
            Dialect::Postgres => " FOR NO KEY UPDATE",
            _ => " FOR UPDATE",
        };
        let repaired = Transaction::new()
            .isolation(Isolation::RepeatableRead)
            .retry(RetryPolicy::default())
            .run(conn, |conn| {
                let (mut locked, mut not_locked) = (vec![], vec![]);
                for keys in suspects.chunks(100) {
                    let held = self.keyed.lock_parents(conn, keys, clause)?;
                    not_locked.extend(self.keyed.not_locked(conn, keys, &held)?);
                    locked.extend(held);
                }
                let mut found = Found::default();
                for drift in self.drifts(range, conn)? {
                    let key = drift.key.clone();
                    if not_locked.contains(&key) {
                        found.unfit.push((key, Unfit::NotLocked));
                    } else if !locked.contains(&key) {
                        continue; // it came into the range since
                    } else {
                        let added = match self.lacks(&drift) {
                            Some(lacks) => self.add_to_base(&key, lacks, conn),
                            None => Err(FoldError::Unfit(Unfit::OutOfRange)),
                        };
                        match added {
                            Ok(()) => {}
                            Err(FoldError::Unfit(reason)) => found.unfit.push((key, reason)),
                            Err(FoldError::NotLocked) => {
                                found.unfit.push((key, Unfit::NotLocked));
                            }
                            Err(FoldError::Diesel(error)) => return Err(error.into()),
                        }
                    }
                    found.drifts.push(drift);
                }
                Ok(found)
            });
        repaired.map_err(|error| self.told(error))
    }

    /// What has to be added to the base, if that takes it.
    fn lacks(&self, drift: &Compared) -> Option<i64> {
        let (least, greatest) = integers(self.field.column_type);
        let lacks = &drift.expected - &drift.total;
        let base = (&drift.base + &lacks).to_i64()?;
        let fits = |n: i64| (least..=greatest).contains(&n);
        let lacks = lacks.is_integer().then(|| lacks.to_i64())??;
        (fits(base) && fits(drift.expected.to_i64()?)).then_some(lacks)
    }

    /// In a savepoint, which is rolled back where the base does not take it.
    fn add_to_base(
        &self,
        key: &Key,
        lacks: i64,
        conn: &mut AnyConnection,
    ) -> Result<(), FoldError> {
        let (keyed, table) = (self.keyed, self.keyed.sharded.table);
        let keys = std::slice::from_ref(key);
        conn.transaction(|conn| {
            let before = keyed.states(conn, keys, None)?;
            let mut expected = before.clone();
            for parent in &mut expected {
                let fields = parent.iter_mut().zip(&keyed.sharded.fields);
                for (state, _) in fields.filter(|(_, field)| field.name == self.field.name) {
                    state.base += &Amount::Integer(lacks.into());
                }
            }
            let add = Statement::default().sql("UPDATE ").name(table).sql(" SET ");
            let add = add.name(self.field.name).sql(" = (");
            let add = add.column(table, self.field.name).sql(" + ");
            let add = add.bind(Value::Integer(lacks)).sql(") WHERE ");
            keyed.is_one_of(add, table, keys).execute(conn)?;
            keyed.check(conn, keys, None, &before, &expected)
        })
    }
}

//! Totals beside a recount, read by one statement, and the repair of those that differ.

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::described::{
    DescribedKeys, LockedRows, ROWS_AT_ONCE, add_to_bases, amount, differs, key_as_text, literal,
    lock, refused,
};
use diesel_sharded::model::ShardsColumn;
use diesel_sharded::operation::Amount;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};
use diesel_sharded::{Error as ShardedError, Unfit};

use crate::connection::AnyConnection;
use crate::error::Error;
use crate::key::{Key, Keyed, as_text};
use crate::sharded::is_integer;
use crate::statement::{Statement, quoted, sql};
use crate::sums::{Number, Total, fits};

/// The recount under an alias, where the columns of the key have names by their places.
const RECOUNTED: &str = "recounted";

/// The keys after one of them, up to another.
pub struct Range<'a> {
    pub after: Option<&'a Key>,
    pub last: &'a Key,
}

/// A row beside its recount.
pub struct Compared {
    pub key: Key,
    pub base: BigDecimal,
    /// It may be out of the range of its column.
    pub total: BigDecimal,
    pub expected: BigDecimal,
}

/// An error that ends a repair.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Diesel(#[from] DieselError),
}

impl From<RepairError> for Error {
    fn from(error: RepairError) -> Self {
        match error {
            RepairError::Refused(text) => Error::Refused(text),
            RepairError::Diesel(error) => error.into(),
        }
    }
}

/// A query for what a field should hold.
#[derive(Clone, Copy)]
pub struct Recount<'a> {
    pub keyed: Keyed<'a>,
    pub field: &'a ShardsColumn,
    pub query: &'a str,
}

impl Recount<'_> {
    /// The rows of a range whose totals are not as recounted, read by one statement.
    ///
    /// ```sql
    /// WITH diesel_sharded_recount (key_1, number) AS (…)
    /// SELECT CAST("videos"."id" AS TEXT), CAST("recounted"."key_1" AS TEXT), CAST(COALESCE("recounted"."number", 0) AS TEXT),
    ///     CAST("videos"."likes" AS TEXT),
    ///     (SELECT … FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")     -- as `sums::sum`
    /// FROM "videos" LEFT JOIN (SELECT * FROM diesel_sharded_recount WHERE key_1 >= $1 AND key_1 <= $2) AS "recounted"
    ///     ON "videos"."id" = "recounted"."key_1"         -- in this order: SQLite compares by the collation of the first
    /// WHERE "videos"."id" > $3 AND "videos"."id" <= $4 ORDER BY "videos"."id"
    /// ```
    pub fn drifts(
        self,
        range: &Range<'_>,
        conn: &mut AnyConnection,
    ) -> Result<Vec<Compared>, RepairError> {
        let (keyed, field) = (self.keyed, self.field);
        let (sharded, parent) = (keyed.sharded, keyed.parent());
        let (mut names, mut recounted, mut same) = (String::new(), String::new(), vec![]);
        for (column, i) in sharded.key().iter().zip(1..) {
            let own = keyed.column(&parent, column.name());
            let (before, behind) = key_as_text(keyed.dialect, column.column_type());
            names += &format!("key_{i}, ");
            recounted += &format!("{before}{RECOUNTED}.key_{i}{behind}, ");
            same.push(format!("{own} = {RECOUNTED}.key_{i}"));
        }
        let query = self.query.trim().trim_end_matches(';');
        let after = range.after;
        let compare = sql!(
            format!("WITH diesel_sharded_recount ({names}number) AS (\n{query}\n) SELECT "),
            format!("{}, {recounted}", keyed.key_as_texts(&parent)),
            as_text(keyed.dialect, &format!("COALESCE({RECOUNTED}.number, 0)")),
            format!(", {} FROM {parent} ", keyed.total(field)),
            "LEFT JOIN (SELECT * FROM diesel_sharded_recount",
            self.narrowed(range),
            format!(") AS {RECOUNTED} ON {} WHERE ", same.join(" AND ")),
            after.map(|key| sql!(keyed.is_behind(&parent, key), " AND ")),
            keyed.is_up_to(&parent, range.last),
            format!(" ORDER BY {}", keyed.key(&parent))
        );
        let mut compared: Vec<Compared> = vec![];
        let mut recounted_keys = vec![]; // those of one row, which its collation takes for one
        let columns = sharded.key().len();
        for row in compare.rows(conn)? {
            let key = Key::read(columns, &row)?;
            let shown = || key.display(sharded);
            let recounted_key: Vec<_> = (columns..2 * columns)
                .map(|i| row.get(i).map(str::to_owned))
                .collect();
            let recounted = row.text(2 * columns)?;
            let expected: BigDecimal = recounted.trim().parse().map_err(|_| {
                RepairError::Refused(format!(
                    "the recount gives `{recounted}` for the key {}, which is no number",
                    shown()
                ))
            })?;
            if let Some(before) = compared.last_mut().filter(|before| before.key == key) {
                if recounted_keys.contains(&recounted_key) {
                    return Err(RepairError::Refused(format!(
                        "the recount gave more than one number for the key {}: group it by the key alone",
                        shown()
                    )));
                }
                before.expected += expected;
                recounted_keys.push(recounted_key);
                continue;
            }
            let total = Total::read(&row, 2 * columns + 1)?;
            let Some((base, sum)) = total.base.clone().zip(total.sum()) else {
                return Err(RepairError::Refused(format!(
                    "`{}.{}` of the row {} is NULL, and NULL + 1 is NULL: fill it, and make the column NOT NULL DEFAULT 0",
                    sharded.table(),
                    field.name(),
                    shown()
                )));
            };
            recounted_keys = vec![recounted_key];
            compared.push(Compared {
                base,
                total: sum,
                expected,
                key,
            });
        }
        let mut drifts = vec![];
        for compared in compared {
            if self.differs(&compared)? {
                drifts.push(compared);
            }
        }
        Ok(drifts)
    }

    /// Sums of doubles differ a little by the order of addition.
    fn differs(self, compared: &Compared) -> QueryResult<bool> {
        let column = self.field.column_type();
        if is_integer(column) {
            return Ok(compared.total != compared.expected); // which may have a fraction
        }
        let amount = |n: &BigDecimal| amount(&Number(n.clone()).to_string(), column);
        let (total, expected) = (amount(&compared.total)?, amount(&compared.expected)?);
        Ok(differs(self.keyed.dialect, column, &total, &expected))
    }

    /// Lets the planner recount this range alone, where the keys are integers: whatever type the recount gives them, they are
    /// then compared here as they are with the parent's, and in one order. Texts and dates might not be.
    fn narrowed(self, range: &Range<'_>) -> Statement {
        let first = self.keyed.sharded.key().first();
        if !first.is_some_and(|column| is_integer(column.column_type())) {
            return Statement::default();
        }
        let last = self.keyed.first_integer(range.last);
        let after = range
            .after
            .and_then(|after| self.keyed.first_integer(after));
        let bounds = [("key_1 <= ", last), ("key_1 >= ", after)];
        let bounds = bounds.into_iter();
        let bounds = bounds.filter_map(|(order, bound)| Some(sql!(order, bound?)));
        let bounds: Vec<_> = bounds.collect();
        match bounds.is_empty() {
            true => Statement::default(),
            false => sql!(" WHERE ", Statement::joined(" AND ", bounds)),
        }
    }
}

/// Whether drifts are only told, or repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Verify,
    Repair,
}

/// The drifts of a range, and those that could not be repaired.
#[derive(Default)]
pub struct Found {
    pub drifts: Vec<Compared>,
    pub left: Vec<(Key, Reason)>,
}

/// Why a total was not repaired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("the recount gives no whole number")]
    NotWhole,
    #[error("out of range")]
    OutOfRange,
    #[error("the row {0}")]
    Unfit(Unfit),
}

impl From<Unfit> for Reason {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::OutOfRange => Reason::OutOfRange,
            unfit => Reason::Unfit(unfit),
        }
    }
}

impl Recount<'_> {
    /// Locks the rows that differ, so that no other repair, fold or set comes in between, compares again in one snapshot, and
    /// corrects the bases. On PostgreSQL the snapshot is the one of the lock, and a row that was written since is a
    /// serialization failure, after which it is tried again.
    ///
    /// ```sql
    /// BEGIN ISOLATION LEVEL REPEATABLE READ;                  -- SQLite: BEGIN IMMEDIATE
    /// SELECT 1 FROM "videos" WHERE … ORDER BY "videos"."id" FOR NO KEY UPDATE;     -- MySQL: FOR UPDATE; SQLite: none
    /// WITH … SELECT …;                                        -- as `drifts`
    /// UPDATE "videos" SET "likes" = ("videos"."likes" + CASE WHEN ("videos"."id" = $1) THEN 5 … ELSE 0 END) WHERE …;
    /// COMMIT
    /// ```
    pub fn repair(
        self,
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
                let (mut found, mut lacking) = (Found::default(), vec![]);
                for drift in self.drifts(range, conn)? {
                    let key = drift.key.clone();
                    if not_locked.contains(&key) {
                        found.left.push((key, Unfit::NotLocked.into()));
                    } else if !locked.contains(&key) {
                        continue; // it came into the range since
                    } else {
                        match self.lacks(&drift) {
                            Ok(lacks) => lacking.push((key, lacks)),
                            Err(reason) => found.left.push((key, reason)),
                        }
                    }
                    found.drifts.push(drift);
                }
                for rows in lacking.chunks(ROWS_AT_ONCE) {
                    self.add(rows, &mut found.left, conn)?;
                }
                Ok(found)
            });
        repaired.map_err(|error: RepairError| error.into())
    }

    /// The difference that has to be added to the base, if that takes it.
    fn lacks(self, drift: &Compared) -> Result<Amount, Reason> {
        let column = self.field.column_type();
        if is_integer(column) && !drift.expected.is_integer() {
            return Err(Reason::NotWhole);
        }
        let fits = |n: &BigDecimal| fits(self.keyed.dialect, self.field, n);
        let lacks: BigDecimal = &drift.expected - &drift.total;
        if !fits(&(&drift.base + &lacks)) || !fits(&drift.expected) {
            return Err(Reason::OutOfRange);
        }
        amount(&Number(lacks).to_string(), column).map_err(|_| Reason::OutOfRange)
    }

    /// Corrects bases in a savepoint. If one of them does not take what it lacks, the savepoint is rolled back, and each row is
    /// tried by itself.
    fn add(
        self,
        rows: &[(Key, Amount)],
        left: &mut Vec<(Key, Reason)>,
        conn: &mut AnyConnection,
    ) -> QueryResult<()> {
        let add = self.added(rows);
        let added = conn.transaction(|conn| add_to_bases(self.keyed, rows, self.field, &add, conn));
        let reason = match added.map_err(ShardedError::from) {
            Ok(()) => return Ok(()),
            Err(ShardedError::Unfit { reason, .. }) => reason.into(),
            // On SQLite of shards that no sum holds, too.
            Err(ShardedError::Overflow { source }) => refused(self.keyed.dialect, &source).into(),
            Err(error) => return Err(error.into()),
        };
        match rows {
            [(key, _)] => left.push((key.clone(), reason)),
            rows => return rows.chunks(1).try_for_each(|row| self.add(row, left, conn)),
        }
        Ok(())
    }

    /// `"likes" = ("videos"."likes" + CASE WHEN ("videos"."id" = $1) THEN 5 … ELSE 0 END)`
    fn added(self, rows: &[(Key, Amount)]) -> Statement {
        let keyed = self.keyed;
        let name = quoted(keyed.dialect, self.field.name());
        let cases = rows.iter().map(|(key, lacks)| {
            let lacks = literal(lacks).unwrap_or_default(); // a number that was parsed
            sql!(" WHEN ", keyed.is(key), " THEN ", lacks)
        });
        let begin = format!("{name} = ({}.{name} + CASE", keyed.parent());
        sql!(begin, Statement::joined("", cases), " ELSE 0 END)")
    }
}

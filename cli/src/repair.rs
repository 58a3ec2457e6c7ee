//! The repair of totals that differ from a recount.

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel_sharded::described::{
    DescribedKeys, LockedRows, ROWS_AT_ONCE, add_to_bases, amount, literal, lock, refused,
};
use diesel_sharded::model::ShardsColumn;
use diesel_sharded::operation::Amount;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};
use diesel_sharded::{Error as ShardedError, Unfit};

use crate::connection::AnyConnection;
use crate::drifts::{Compared, Range, RepairError};
use crate::error::Error;
use crate::key::{Key, Keyed};
use crate::sharded::is_integer;
use crate::statement::Statement;
use crate::sums::{Plain, range};

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

pub struct Repair<'a> {
    pub keyed: Keyed<'a>,
    pub field: &'a ShardsColumn,
    pub recount: &'a str,
}

impl Repair<'_> {
    /// Locks the rows that differ, so that no other repair, fold or set comes in between, compares again in one snapshot, and
    /// corrects the bases. On PostgreSQL the snapshot is the one of the lock, and a row that was written since is a
    /// serialization failure, after which it is tried again.
    ///
    /// ```sql
    /// BEGIN ISOLATION LEVEL REPEATABLE READ;                  -- SQLite: BEGIN IMMEDIATE
    /// SELECT 1 FROM "videos" WHERE … ORDER BY "videos"."id" FOR NO KEY UPDATE;     -- MySQL: FOR UPDATE; SQLite: none
    /// WITH … SELECT …;                                        -- as `Keyed::drifts`
    /// UPDATE "videos" SET "likes" = ("videos"."likes" + CASE WHEN ("videos"."id" = $1) THEN 5 … ELSE 0 END) WHERE …;
    /// COMMIT
    /// ```
    pub fn run(
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
                let (mut found, mut lacking) = (Found::default(), vec![]);
                for drift in self.keyed.drifts(self.field, self.recount, range, conn)? {
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
    fn lacks(&self, drift: &Compared) -> Result<Amount, Reason> {
        let column = self.field.column_type();
        if is_integer(column) && !drift.expected.is_integer() {
            return Err(Reason::NotWhole);
        }
        let range = range(self.keyed.dialect, self.field);
        let fits = |n: &BigDecimal| match &range {
            Some((least, greatest)) => least <= n && n <= greatest,
            None => true,
        };
        let lacks: BigDecimal = &drift.expected - &drift.total;
        if !fits(&(&drift.base + &lacks)) || !fits(&drift.expected) {
            return Err(Reason::OutOfRange);
        }
        amount(&Plain(&lacks).to_string(), column).map_err(|_| Reason::OutOfRange)
    }

    /// Corrects bases in a savepoint. If one of them does not take what it lacks, the savepoint is rolled back, and each row is
    /// tried by itself.
    fn add(
        &self,
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
    fn added(&self, rows: &[(Key, Amount)]) -> Statement {
        let (keyed, name) = (self.keyed, self.field.name());
        let add = Statement::default().name(name).sql(" = (");
        let add = add.column(keyed.sharded.table(), name).sql(" + CASE");
        let add = rows.iter().fold(add, |add, (key, lacks)| {
            let add = add.sql(" WHEN ").then(keyed.is(key));
            add.sql(" THEN ").sql(&literal(lacks).unwrap_or_default()) // a number that was parsed
        });
        add.sql(" ELSE 0 END)")
    }
}

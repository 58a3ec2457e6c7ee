//! Totals beside a recount, read by one statement.

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::described::{amount, differs, key_as_text};
use diesel_sharded::model::{ShardsColumn, TableName};

use crate::connection::AnyConnection;
use crate::error::Error;
use crate::key::{Key, Keyed, as_text};
use crate::sharded::is_integer;
use crate::statement::Statement;
use crate::sums::{Plain, Total};

/// The recount under an alias.
const RECOUNTED: TableName<'_> = TableName::new("recounted");

/// The name of a column of the key there.
fn key_column(i: usize) -> String {
    format!("key_{}", i + 1)
}

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

impl Keyed<'_> {
    /// The rows of a range whose totals are not as recounted, read by one statement.
    ///
    /// ```sql
    /// WITH diesel_sharded_recount (key_1, number) AS (…)
    /// SELECT CAST("videos"."id" AS TEXT), CAST("recounted"."key_1" AS TEXT), CAST(COALESCE("recounted"."number", 0) AS TEXT),
    ///     CAST("videos"."likes" AS TEXT),
    ///     (SELECT … FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")     -- as `sums::select`
    /// FROM "videos" LEFT JOIN (SELECT * FROM diesel_sharded_recount WHERE key_1 >= $1 AND key_1 <= $2) AS "recounted"
    ///     ON "videos"."id" = "recounted"."key_1"         -- in this order: SQLite compares by the collation of the first
    /// WHERE "videos"."id" > $3 AND "videos"."id" <= $4 ORDER BY "videos"."id"
    /// ```
    pub fn drifts(
        self,
        field: &ShardsColumn,
        recount: &str,
        range: &Range<'_>,
        conn: &mut AnyConnection,
    ) -> Result<Vec<Compared>, RepairError> {
        let sharded = self.sharded;
        let table = sharded.table();
        let keys = 1..=sharded.key().len();
        let recount = recount.trim().trim_end_matches(';');
        let compare = Statement::default().sql("WITH diesel_sharded_recount (");
        let compare = compare.each(", ", keys, |names, i| names.sql(&format!("key_{i}")));
        let compare = compare
            .sql(", number) AS (\n")
            .sql(recount)
            .sql("\n) SELECT ");
        let compare = self.select_key(compare, table).sql(", ");
        let columns = sharded.key().iter().enumerate();
        let compare = compare.each(", ", columns, |compare, (i, column)| {
            let (before, behind) = key_as_text(self.dialect, column.column_type());
            let compare = compare.sql(before).column(RECOUNTED, &key_column(i));
            compare.sql(behind)
        });
        let compare = compare.sql(", CAST(COALESCE(").column(RECOUNTED, "number");
        let compare = compare.sql(", 0)");
        let compare = compare.sql(as_text(self.dialect)).sql(", ");
        let compare = self.select_total(compare, field).sql(" FROM ");
        let compare = compare.table(table);
        let compare = compare.sql(" LEFT JOIN (SELECT * FROM diesel_sharded_recount");
        let compare = self.narrowed(compare, range).sql(") AS ");
        let compare = compare.table(RECOUNTED).sql(" ON ");
        let columns = sharded.key().iter().enumerate();
        let compare = compare.each(" AND ", columns, |compare, (i, column)| {
            let compare = compare.column(table, column.name()).sql(" = ");
            compare.column(RECOUNTED, &key_column(i))
        });
        let compare = match range.after {
            Some(key) => self
                .is_beyond(compare.sql(" WHERE "), table, ">", false, key)
                .sql(" AND "),
            None => compare.sql(" WHERE "),
        };
        let compare = self.is_beyond(compare, table, "<", true, range.last);
        let compare = self.key(compare.sql(" ORDER BY "), table);
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
                    "`{table}.{}` of the row {} is NULL, and NULL + 1 is NULL: fill it, and make the column NOT NULL DEFAULT 0",
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
            if self.differs(field, &compared)? {
                drifts.push(compared);
            }
        }
        Ok(drifts)
    }

    /// Sums of doubles differ a little by the order of addition.
    fn differs(self, field: &ShardsColumn, compared: &Compared) -> QueryResult<bool> {
        let column = field.column_type();
        if is_integer(column) {
            return Ok(compared.total != compared.expected); // which may have a fraction
        }
        let amount = |n: &BigDecimal| amount(&Plain(n).to_string(), column);
        let (total, expected) = (amount(&compared.total)?, amount(&compared.expected)?);
        Ok(differs(self.dialect, column, &total, &expected))
    }

    /// Lets the planner recount this range alone, where the keys are integers: whatever type the recount gives them, they are
    /// then compared here as they are with the parent's, and in one order. Texts and dates might not be.
    fn narrowed(self, statement: Statement, range: &Range<'_>) -> Statement {
        let first = self.sharded.key().first();
        if !first.is_some_and(|column| is_integer(column.column_type())) {
            return statement;
        }
        let last = self.first_integer(range.last);
        let after = range.after.and_then(|after| self.first_integer(after));
        let bounds = [("<= ", last), (">= ", after)].into_iter();
        let bounds = bounds.filter_map(|(order, bound)| Some((order, bound?)));
        let bounds: Vec<_> = bounds.collect();
        let statement = statement.sql(match bounds.is_empty() {
            true => "",
            false => " WHERE ",
        });
        statement.each(" AND ", bounds, |statement, (order, bound)| {
            statement.sql("key_1 ").sql(order).then(bound)
        })
    }
}

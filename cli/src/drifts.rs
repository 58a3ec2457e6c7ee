//! Totals beside a recount, read by one statement.

use bigdecimal::BigDecimal;
use diesel::result::Error as DieselError;
use diesel_sharded::described::DescribedTable;
use diesel_sharded::model::ShardsColumn;

use crate::connection::AnyConnection;
use crate::error::Error;
use crate::key::{Key, Keyed, as_text};
use crate::sharded::is_integer;
use crate::statement::Statement;
use crate::total::Total;

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
    #[error("the recount gave more than one number for the key {0}")]
    NotGrouped(String),
    #[error("the recount gives `{1}` for the key {0}")]
    NoNumber(String, String),
    #[error("the base of the row {0} is NULL")]
    NoBase(String),
    #[error("{0}")]
    Diesel(#[from] DieselError),
}

impl RepairError {
    /// As the tool tells it, of this field.
    pub fn of(self, sharded: &DescribedTable, field: &ShardsColumn) -> Error {
        match self {
            RepairError::NotGrouped(key) => Error::RecountNotGrouped { key },
            RepairError::NoNumber(key, text) => Error::RecountNoNumber { key, text },
            RepairError::NoBase(key) => Error::NoBase {
                table: sharded.table().to_string(),
                column: field.name().to_owned(),
                key,
            },
            RepairError::Diesel(error) => error.into(),
        }
    }
}

impl Keyed<'_> {
    /// The rows of a range whose totals are not as recounted, read by one statement.
    ///
    /// ```sql
    /// WITH diesel_sharded_recount (key_1, number) AS (…)
    /// SELECT CAST("videos"."id" AS TEXT), CAST(COALESCE(recounted.number, 0) AS TEXT), CAST("videos"."likes" AS TEXT),
    ///     (SELECT … FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")     -- as `sums::select`
    /// FROM "videos" LEFT JOIN (SELECT * FROM diesel_sharded_recount WHERE key_1 >= $1 AND key_1 <= $2) AS recounted
    ///     ON recounted.key_1 = "videos"."id"
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
        let compare = self.select_key(compare, table);
        let compare = compare.sql(", CAST(COALESCE(recounted.number, 0)");
        let compare = compare.sql(as_text(self.dialect)).sql(", ");
        let compare = self.select_total(compare, field).sql(" FROM ");
        let compare = compare.table(table);
        let compare = compare.sql(" LEFT JOIN (SELECT * FROM diesel_sharded_recount");
        let compare = self.narrowed(compare, range).sql(") AS recounted ON ");
        let columns = sharded.key().iter().enumerate();
        let compare = compare.each(" AND ", columns, |compare, (i, column)| {
            let compare = compare.sql(&format!("recounted.key_{} = ", i + 1));
            compare.column(table, column.name())
        });
        let compare = match range.after {
            Some(key) => self
                .is_beyond(compare.sql(" WHERE "), table, ">", false, key)
                .sql(" AND "),
            None => compare.sql(" WHERE "),
        };
        let compare = self.is_beyond(compare, table, "<", true, range.last);
        let compare = self.key(compare.sql(" ORDER BY "), table);
        let mut before = None;
        let mut drifts = vec![];
        let columns = sharded.key().len();
        for row in compare.rows(conn)? {
            let key = Key::read(columns, &row)?;
            let shown = || key.display(sharded);
            if before.as_ref() == Some(&key) {
                return Err(RepairError::NotGrouped(shown()));
            }
            let recounted = row.text(columns)?;
            let total = Total::read(&row, columns + 1)?;
            let Some((base, sum)) = total.base.clone().zip(total.sum()) else {
                return Err(RepairError::NoBase(shown()));
            };
            let compared = Compared {
                base,
                total: sum,
                expected: recounted
                    .trim()
                    .parse()
                    .map_err(|_| RepairError::NoNumber(shown(), recounted.to_owned()))?,
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

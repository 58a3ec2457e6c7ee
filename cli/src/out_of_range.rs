//! Rows whose totals their columns do not hold: base and shards together leave the range, or the base is no number.

use bigdecimal::{BigDecimal, ToPrimitive};
use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::{ShardsColumn, TableName};
use serde::Serialize;
use serde_json::Value as JsonValue;

use crate::connection::AnyConnection;
use crate::key::{Key, Keyed};
use crate::statement::Statement;
use crate::sums::{self, HALF, LOWER, Number, Plain, Total, range};

/// So many of a field are named.
const NAMED: usize = 20;

/// The sums of a field's shards by key, under an alias that no table has.
const SUMS: TableName<'_> = TableName::new("diesel_sharded_sums");

/// The columns beside the key there, which may have any name: the sums, or their halves.
const ADDED: &str = "diesel_sharded_added";
const HIGH: &str = "diesel_sharded_high";
const LOW: &str = "diesel_sharded_low";

/// One row, and the field whose total it is.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct OutOfRange {
    key: Vec<JsonValue>,
    #[serde(skip)]
    shown_key: String,
    field: String,
    /// Null for a base that is no number.
    total: Option<Number>,
}

impl OutOfRange {
    /// The total of a field, if its column does not hold it.
    pub fn of(keyed: Keyed<'_>, key: &Key, field: &ShardsColumn, total: &Total) -> Option<Self> {
        let sharded = keyed.sharded;
        let total = total.sum();
        let fits = total.as_ref().is_some_and(|total| {
            range(keyed.dialect, field)
                .is_none_or(|(least, greatest)| (least..=greatest).contains(total))
        });
        (!fits).then(|| OutOfRange {
            key: key.json(sharded),
            shown_key: key.display(sharded),
            field: field.name().to_owned(),
            total: total.map(Number),
        })
    }

    /// The first of each field, in key order. It reads every shard, and the rows that have some: a base alone is in its range.
    ///
    /// ```sql
    /// SELECT … FROM "videos" JOIN (SELECT "videos_shards"."id", SUM("videos_shards"."likes") AS added FROM "videos_shards"
    ///     GROUP BY "videos_shards"."id") AS "sums" ON "sums"."id" = "videos"."id"
    /// WHERE "videos"."likes" IS NULL OR "videos"."likes" + "sums"."added" NOT BETWEEN -2147483648 AND 2147483647
    /// ORDER BY "videos"."id" LIMIT 20
    /// ```
    pub fn read(keyed: Keyed<'_>, conn: &mut AnyConnection) -> QueryResult<Vec<Self>> {
        let mut found = vec![];
        let columns = keyed.sharded.key().len();
        for field in keyed.sharded.fields() {
            for row in find(keyed, field).rows(conn)? {
                let key = Key::read(columns, &row)?;
                let total = Total::read(&row, columns)?;
                found.extend(OutOfRange::of(keyed, &key, field, &total));
            }
        }
        Ok(found)
    }

    fn text(&self, table: TableName<'_>) -> String {
        let total = match &self.total {
            Some(total) => total.to_string(),
            None => "no number".to_owned(),
        };
        format!(
            "{table}.{} of the row {}: {total}",
            self.field, self.shown_key
        )
    }

    /// All of a table, and the remedy.
    pub fn note(found: &[Self], table: TableName<'_>) -> Option<(String, &'static str)> {
        let texts: Vec<_> = found.iter().map(|found| found.text(table)).collect();
        (!found.is_empty()).then(|| {
            (
                format!(
                    "totals that their columns do not hold, so that no fold moves them, and reads of integers fail: {}",
                    texts.join("; ")
                ),
                "Widen the column, or correct the total by `diesel-sharded backfill` or the library's `set_total`. Where the base is NULL, fill it, \
                 and make it NOT NULL",
            )
        })
    }
}

fn find(keyed: Keyed<'_>, field: &ShardsColumn) -> Statement {
    let (table, shards) = (keyed.sharded.table(), keyed.sharded.shards_table());
    let halves = sums::by_halves(keyed.dialect, field);
    let base = |find: Statement| find.column(table, field.name());
    let find = keyed.select_key(Statement::default().sql("SELECT "), table);
    let find = keyed.select_total(find.sql(", "), field).sql(" FROM ");
    let find = keyed.key(find.table(table).sql(" JOIN (SELECT "), shards);
    let sum = |find: Statement, behind: &str| {
        let find = find.sql(", SUM(").column(shards, field.name());
        find.sql(behind)
    };
    let find = match halves {
        true => {
            let find = sum(find, &format!(" >> {HALF}) AS {HIGH}"));
            sum(find, &format!(" & {LOWER}) AS {LOW}"))
        }
        false => sum(find, &format!(") AS {ADDED}")),
    };
    let find = find.sql(" FROM ").table(shards).sql(" GROUP BY ");
    let find = keyed.key(find, shards).sql(") AS ").table(SUMS).sql(" ON ");
    let find = find.each(" AND ", keyed.sharded.key(), |find, column| {
        let find = find.column(SUMS, column.name()).sql(" = ");
        find.column(table, column.name())
    });
    let find = base(find.sql(" WHERE ")).sql(" IS NULL");
    let find = match (range(keyed.dialect, field), halves) {
        (None, _) if keyed.dialect == Dialect::Postgres => base(find.sql(" OR ")).sql(" = 'NaN'"),
        (None, _) => find,
        (Some((least, greatest)), false) => {
            let find = base(find.sql(" OR ")).sql(" + ").column(SUMS, ADDED);
            let (least, greatest) = (Plain(&least), Plain(&greatest));
            find.sql(&format!(" NOT BETWEEN {least} AND {greatest}"))
        }
        (Some((least, greatest)), true) => {
            let find = high_less(find.sql(" OR "), base, least).sql(" < 0 OR ");
            high_less(find, base, greatest + 1).sql(" >= 0")
        }
    };
    let find = keyed.key(find.sql(" ORDER BY "), table);
    find.sql(&format!(" LIMIT {NAMED}"))
}

/// The upper half of base + shards - `less`, which is negative where all of it is. On SQLite, whose integers have 64 bits.
fn high_less(
    find: Statement,
    base: impl Fn(Statement) -> Statement,
    less: BigDecimal,
) -> Statement {
    let less = less.to_i128().unwrap_or_default(); // an integer of 64 bits, or the next one
    let (high, low) = (less >> HALF, less & i128::from(LOWER));
    let find = base(find.sql("(")).sql(&format!(" >> {HALF}) + "));
    let find = find.column(SUMS, HIGH).sql(&format!(" - ({high}) + (("));
    let find = base(find.sql("(")).sql(&format!(" & {LOWER}) + "));
    find.column(SUMS, LOW).sql(&format!(" - {low}) >> {HALF})"))
}

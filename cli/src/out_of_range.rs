//! Rows whose totals their columns do not hold: base and shards together leave the range, or the base is no number.

use bigdecimal::{BigDecimal, ToPrimitive};
use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::{ShardsColumn, TableName};
use serde::Serialize;

use crate::connection::AnyConnection;
use crate::key::{Key, KeyValues, Keyed};
use crate::output::Note;
use crate::statement::sql;
use crate::sums::{self, HALF, LOWER, Number, Total, fits, range};

/// So many of a field are named.
const NAMED: usize = 20;

/// The sums of a field's shards by key, under an alias that no table has.
const SUMS: &str = "diesel_sharded_sums";

/// The columns beside the key there, which may have any name: the sums, or their halves.
const ADDED: &str = "diesel_sharded_added";
const HIGH: &str = "diesel_sharded_high";
const LOW: &str = "diesel_sharded_low";

/// One row, and the field whose total it is.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct OutOfRange {
    key: KeyValues,
    field: String,
    /// Null for a base that is no number.
    total: Option<Number>,
}

impl OutOfRange {
    /// The total of a field, if its column does not hold it.
    pub fn of(keyed: Keyed<'_>, key: &Key, field: &ShardsColumn, total: &Total) -> Option<Self> {
        let total = total.sum();
        let fits = total
            .as_ref()
            .is_some_and(|total| fits(keyed.dialect, field, total));
        (!fits).then(|| OutOfRange {
            key: key.values(keyed.sharded),
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
        for field in keyed.fields() {
            for row in sql!(find(keyed, field)).rows(conn)? {
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
        format!("{table}.{} of the row {}: {total}", self.field, self.key)
    }

    /// All of a table, and the remedy.
    pub fn note(found: &[Self], table: TableName<'_>) -> Option<Note> {
        let texts: Vec<_> = found.iter().map(|found| found.text(table)).collect();
        let says = format!(
            "totals that their columns do not hold, so that no fold moves them, and reads of integers fail: {}",
            texts.join("; ")
        );
        let remedy = "Widen the column, or correct the total by `diesel-sharded backfill` or the library's `set_total`. Where the base is \
             NULL, fill it, and make it NOT NULL";
        (!found.is_empty()).then(|| Note::new(says, remedy))
    }
}

fn find(keyed: Keyed<'_>, field: &ShardsColumn) -> String {
    let (parent, shards) = (keyed.parent(), keyed.shards());
    let base = keyed.column(&parent, field.name());
    let added = keyed.column(&shards, field.name());
    let halves = sums::by_halves(keyed.dialect, field);
    let sums = match halves {
        true => format!("SUM({added} >> {HALF}) AS {HIGH}, SUM({added} & {LOWER}) AS {LOW}"),
        false => format!("SUM({added}) AS {ADDED}"),
    };
    let is_beyond = match (range(keyed.dialect, field), halves) {
        (None, _) if keyed.dialect == Dialect::Postgres => format!(" OR {base} = 'NaN'"),
        (None, _) => String::new(),
        (Some((least, greatest)), false) => {
            let (least, greatest) = (Number(least), Number(greatest));
            format!(" OR {base} + {SUMS}.{ADDED} NOT BETWEEN {least} AND {greatest}")
        }
        (Some((least, greatest)), true) => {
            let (least, greatest) = (high_less(&base, least), high_less(&base, greatest + 1));
            format!(" OR {least} < 0 OR {greatest} >= 0")
        }
    };
    format!(
        "SELECT {}, {} FROM {parent} JOIN (SELECT {key}, {sums} FROM {shards} GROUP BY {key}) AS {SUMS} ON {} \
         WHERE {base} IS NULL{is_beyond} ORDER BY {} LIMIT {NAMED}",
        keyed.key_as_texts(&parent),
        keyed.total(field),
        keyed.same_key(SUMS, &parent),
        keyed.key(&parent),
        key = keyed.key(&shards),
    )
}

/// The upper half of base + shards - `less`, which is negative where all of it is. On SQLite, whose integers have 64 bits.
fn high_less(base: &str, less: BigDecimal) -> String {
    let less = less.to_i128().unwrap_or_default(); // an integer of 64 bits, or the next one
    let (high, low) = (less >> HALF, less & i128::from(LOWER));
    format!(
        "({base} >> {HALF}) + {SUMS}.{HIGH} - ({high}) + ((({base} & {LOWER}) + {SUMS}.{LOW} - {low}) >> {HALF})"
    )
}

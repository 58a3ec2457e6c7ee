//! Rows whose totals their columns do not hold: base and shards together leave the range, or the base is no number.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::{ShardsColumn, TableName};
use serde::Serialize;

use crate::connection::AnyConnection;
use crate::key::{Key, KeyValues};
use crate::output::Note;
use crate::sharded::Sharded;
use crate::statement::sql;
use crate::sums::{Number, Total, fits, range};

/// So many of a field are named.
const NAMED: usize = 20;

/// The sums of a field's shards by key, under an alias that no table has.
const SUMS: &str = "diesel_sharded_sums";

/// The sum beside the key there, which may have any name.
const ADDED: &str = "diesel_sharded_added";

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
    pub fn of(sharded: &Sharded, key: &Key, field: &ShardsColumn, total: &Total) -> Option<Self> {
        let total = total.sum();
        let fits = total
            .as_ref()
            .is_some_and(|total| fits(sharded.dialect, field, total));
        (!fits).then(|| OutOfRange {
            key: key.values(sharded),
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
    pub fn read(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Vec<Self>> {
        let mut found = vec![];
        let columns = sharded.key().len();
        for field in sharded.fields() {
            let mut of_field = vec![];
            for row in sql!(find(sharded, field)).rows(conn)? {
                let key = Key::read(columns, &row)?;
                let total = Total::read(&row, columns)?;
                of_field.extend(OutOfRange::of(sharded, &key, field, &total));
            }
            found.extend(of_field.into_iter().take(NAMED));
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

fn find(sharded: &Sharded, field: &ShardsColumn) -> String {
    let (parent, shards) = (sharded.parent(), sharded.shards());
    let base = sharded.column(&parent, field.name());
    let added = sharded.column(&shards, field.name());
    let (sum, near, limit) = match sharded.sums_overflow(field) {
        // As doubles: all that are near the ends of the range, of which [`OutOfRange::of`] leaves those that fit.
        true => ("TOTAL", " * 0.99", String::new()),
        false => ("SUM", "", format!(" LIMIT {NAMED}")),
    };
    let is_beyond = match range(sharded.dialect, field) {
        None if sharded.dialect == Dialect::Postgres => format!(" OR {base} = 'NaN'"),
        None => String::new(),
        Some((least, greatest)) => {
            let (least, greatest) = (Number(least), Number(greatest));
            format!(" OR {base} + {SUMS}.{ADDED} NOT BETWEEN {least}{near} AND {greatest}{near}")
        }
    };
    format!(
        "SELECT {}, {} FROM {parent} JOIN (SELECT {key}, {sum}({added}) AS {ADDED} FROM {shards} GROUP BY {key}) AS {SUMS} ON {} \
         WHERE {base} IS NULL{is_beyond} ORDER BY {}{limit}",
        sharded.key_as_texts(&parent),
        sharded.total(field),
        sharded.same_key(SUMS, &parent),
        sharded.key_of(&parent),
        key = sharded.key_of(&shards),
    )
}

//! The counting update of a batch: several rows, each with its own amounts.

use std::marker::PhantomData;

use diesel::query_builder::QueryFragment;
use diesel::sql_types::{BigInt, Integer};

use crate::backend::ShardedBackend;
use crate::model::{IntegerFields, SHARD, ShardedTable};

use super::names::Names;
use super::prepared::Prepare;
use super::sql::{Sql, bind, fragments, id, sql, walk};

/// Adds to one shard of each of several parents. Each field of each parent has its own amount. Hot parents have another shard than cold
/// ones.
///
/// ```sql
/// -- PostgreSQL
/// WITH "sharded_batch" ("id", "shard", "views") AS (VALUES ($1, $2, $3), ($4, $5, $6))
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + "sharded_batch"."views") FROM "sharded_batch"
/// WHERE "videos"."id" = "sharded_batch"."id" AND "videos"."shard" = "sharded_batch"."shard" AND "sharded_batch"."shard" >= 0
/// -- MySQL, SQLite
/// UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` +
///     CASE WHEN (`videos`.`id` = ?) THEN ? WHEN (`videos`.`id` = ?) THEN ? END)
/// WHERE `videos`.`id` IN (?, ?) AND `videos`.`shard` = ?
/// -- several fields: SET `views` = …, `likes` = (`videos`.`likes` + CASE … END)
/// -- a composite key: WHERE ((`version` = ? AND `day` = ?) OR …) AND …
/// -- hot and cold parents: CASE WHEN (`videos`.`id` = ?) AND `videos`.`shard` = ? THEN ? … END
/// WHERE (`videos`.`id` IN (?) AND `videos`.`shard` = ? OR `videos`.`id` IN (?, ?) AND `videos`.`shard` = ?)
/// ```
///
/// Each list is padded to a power of two, so that there are few different texts, which stay prepared. Rows of the shard -1 pad a list of
/// values, and the statement leaves them out. Otherwise the last parent of a shard is repeated.
pub(crate) struct CountEach<F, P, V> {
    shards: Vec<CountedShard<P, V>>,
    fields: PhantomData<F>,
}

/// The rows that are counted on the shard of this number.
pub(crate) struct CountedShard<P, V> {
    pub(crate) shard: i32,
    pub(crate) rows: Vec<CountedRow<P, V>>,
}

/// `key = $n`, the key's values, and an amount for each field.
pub(crate) struct CountedRow<P, V> {
    pub(crate) key_is: P,
    pub(crate) key_values: V,
    pub(crate) amounts: Vec<i64>,
}

/// The name of the list of values.
const BATCH: &str = "sharded_batch";

/// The shard number of padding rows. The statement must skip them, because another program may have created a shard of this number.
const NO_SHARD: i32 = -1;

/// The number of rows that pad a list of `rows` rows.
fn padding(rows: usize) -> usize {
    rows.next_power_of_two() - rows
}

impl<P, V> CountedShard<P, V> {
    fn repeated(&self) -> impl Iterator<Item = &CountedRow<P, V>> {
        let last = self.rows.last().into_iter();
        self.rows
            .iter()
            .chain(last.cycle().take(padding(self.rows.len())))
    }
}

impl<F: IntegerFields, P, V> CountEach<F, P, V> {
    pub(crate) fn new(shards: Vec<CountedShard<P, V>>) -> Self {
        CountEach {
            shards,
            fields: PhantomData,
        }
    }

    /// The number of parents.
    pub(crate) fn parents(&self) -> usize {
        self.shards.iter().map(|counted| counted.rows.len()).sum()
    }
}

/// `"sharded_batch"."name"`
fn of_batch<'b, DB: ShardedBackend>(name: &str) -> impl Sql<'b, DB> {
    sql! { id(BATCH), ".", id(name) }
}

fragments! {
    [F: IntegerFields<ParentTable: QueryFragment<DB>>, P: QueryFragment<DB>, V: QueryFragment<DB>,] CountEach<F, P, V>, no query id [F, P, V];
    |self, out| {
        let table = Names::<DB>::of::<F::ParentTable>();
        let parent = table.under_alias();
        let update = sql! { "UPDATE ", table.shards_as_parent(), " SET " };
        let fields = F::NAMES.iter().copied();
        let add_to = |name| sql! { id(name), " = (", parent.column(name), " + " };
        if out.backend().dialect().joins_values() {
            let key = || F::ParentTable::KEY.iter().map(|key| &*key.name).chain([SHARD]);
            let shards = self.shards.iter();
            let rows = shards.flat_map(|on| on.rows.iter().map(move |row| (&on.shard, row)));
            let last = rows.clone().last().into_iter().cycle();
            let none = last.map(|(_, row)| (&NO_SHARD, row));
            let rows = rows.chain(none.take(padding(self.parents())));
            return sql!(out;
                "WITH ", id(BATCH), " (", for name in (key().chain(fields.clone()), ", ") { id(name) }, ") AS (VALUES ",
                for (shard, row) in (rows, ", ") {
                    "(", walk(&row.key_values), ", ", bind(Integer, shard), for n in (&row.amounts, "") { ", ", bind(BigInt, n) }, ")"
                },
                ") ", update, for name in (fields, ", ") { add_to(name), of_batch(name), ")" }, " FROM ", id(BATCH),
                " WHERE ", for name in (key(), " AND ") { parent.column(name), " = ", of_batch(name) },
                " AND ", of_batch(SHARD), " >= 0");
        }
        let shards = self.shards.iter();
        let rows = || shards.clone().flat_map(|on| on.repeated().map(move |row| (&on.shard, row)));
        // On several shards, each amount needs its shard's number too: two keys may name the same parent.
        let are_several = self.shards.len() > 1;
        let is_composite = table.key.len() > 1;
        sql!(out;
            update, for (field, name) in (fields.enumerate(), ", ") {
                add_to(name), "CASE",
                for (shard, row) in (rows(), "") {
                    " WHEN ", table.aliased(&row.key_is), if are_several { " AND ", table.shard_is(shard) },
                    " THEN ", bind(BigInt, &row.amounts[field])
                },
                " END)"
            },
            " WHERE ", if are_several { "(" },
            for counted in (&self.shards, " OR ") {
                // Not every database uses an index for a list of composite keys.
                if is_composite {
                    "(", for row in (counted.repeated(), " OR ") { table.aliased(&row.key_is) }, ")"
                } else {
                    parent.key(), " IN (", for row in (counted.repeated(), ", ") { walk(&row.key_values) }, ")"
                },
                " AND ", table.shard_is(&counted.shard)
            },
            if are_several { ")" })
    };
}

impl<F, P, V, DB> Prepare<DB> for CountEach<F, P, V>
where
    Self: QueryFragment<DB>,
    DB: ShardedBackend,
{
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos::dsl::{id, *};
    use crate::test_schema::{assert_sql, days, sql, videos as table};
    use diesel::expression_methods::EqAll;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::prelude::*;
    use diesel::sqlite::Sqlite;

    /// Rows on `shard`, with an amount for each of the fields `F`.
    fn on<F: IntegerFields>(
        shard: i32,
        ids: &[i64],
    ) -> CountedShard<diesel::dsl::Eq<id, i64>, <table::table as ShardedTable>::KeyValues> {
        let rows = ids.iter().map(|key| CountedRow {
            key_is: id.eq(*key),
            key_values: table::table::key_values(key),
            amounts: [10 * key, -key][..F::NAMES.len()].to_vec(),
        });
        let rows = rows.collect();
        CountedShard { shard, rows }
    }

    #[test]
    fn count_each() {
        let each = |ids: &[i64]| CountEach::<views, _, _>::new(vec![on::<views>(3, ids)]);
        let case = |whens: usize, others: usize| {
            let whens = " WHEN (`videos`.`id` = ?) THEN ?".repeat(whens);
            let others = ", ?".repeat(others);
            format!(
                "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + CASE{whens} END) \
                 WHERE `videos`.`id` IN (?{others}) AND `videos`.`shard` = ?"
            )
        };
        assert_sql!(each(&[7]); Mysql => case(1, 0));
        assert_sql!(each(&[7, 8]); Sqlite => case(2, 1));
        assert_sql!(each(&[7, 8, 9]); Sqlite => case(4, 3));
    }

    #[test]
    fn a_list_of_values_is_padded_by_a_shard_that_is_left_out() {
        let count =
            CountEach::<views, _, _>::new(vec![on::<views>(0, &[7, 8]), on::<views>(5, &[1])]);
        let shown = diesel::debug_query::<Pg, _>(&count).to_string();
        let text = r#"WITH "sharded_batch" ("id", "shard", "views") AS (VALUES ($1, $2, $3), ($4, $5, $6), ($7, $8, $9), ($10, $11, $12)) UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + "sharded_batch"."views") FROM "sharded_batch" WHERE "videos"."id" = "sharded_batch"."id" AND "videos"."shard" = "sharded_batch"."shard" AND "sharded_batch"."shard" >= 0"#;
        let binds = "[7, 0, 70, 8, 0, 80, 1, 5, 10, 1, -1, 10]";
        assert_eq!(shown, format!("{text} -- binds: {binds}"));
    }

    #[test]
    fn count_each_on_two_shards() {
        let count =
            CountEach::<views, _, _>::new(vec![on::<views>(0, &[7, 8, 9]), on::<views>(5, &[1])]);
        assert_eq!(count.parents(), 4);
        let text = sql!(Sqlite, count);
        let filter = "WHERE (`videos`.`id` IN (?, ?, ?, ?) AND `videos`.`shard` = ? OR `videos`.`id` IN (?) AND `videos`.`shard` = ?)";
        assert!(text.ends_with(filter), "{text}");
        let on_its_shard = " WHEN (`videos`.`id` = ?) AND `videos`.`shard` = ? THEN ?";
        assert_eq!(text.matches(on_its_shard).count(), 5, "{text}");
        let binds = diesel::debug_query::<Sqlite, _>(&count).to_string();
        assert!(
            binds.ends_with(
                "binds: [7, 0, 70, 8, 0, 80, 9, 0, 90, 9, 0, 90, 1, 5, 10, 7, 8, 9, 9, 0, 1, 5]"
            ),
            "{binds}"
        );
    }

    #[test]
    fn count_each_of_two_fields() {
        let each =
            || CountEach::<(views, likes), _, _>::new(vec![on::<(views, likes)>(3, &[7, 8])]);
        let case = "CASE WHEN (`videos`.`id` = ?) THEN ? WHEN (`videos`.`id` = ?) THEN ? END";
        let others = format!(
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + {case}), `likes` = (`videos`.`likes` + {case}) \
             WHERE `videos`.`id` IN (?, ?) AND `videos`.`shard` = ?"
        );
        assert_sql!(each(); Mysql => others);
        let text = r#"WITH "sharded_batch" ("id", "shard", "views", "likes") AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8)) UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + "sharded_batch"."views"), "likes" = ("videos"."likes" + "sharded_batch"."likes") FROM "sharded_batch" WHERE "videos"."id" = "sharded_batch"."id" AND "videos"."shard" = "sharded_batch"."shard" AND "sharded_batch"."shard" >= 0"#;
        let shown = diesel::debug_query::<Pg, _>(&each()).to_string();
        assert_eq!(
            shown,
            format!("{text} -- binds: [7, 3, 70, -7, 8, 3, 80, -8]")
        );
    }

    #[test]
    fn count_each_under_a_composite_key() {
        let rows = [(1, 20), (1, 21)].map(|key| CountedRow {
            key_is: days::table.primary_key().eq_all(key),
            key_values: days::table::key_values(&key),
            amounts: vec![1],
        });
        let rows = rows.into();
        let count = CountEach::<days::number, _, _>::new(vec![CountedShard { shard: 3, rows }]);
        let text = sql!(Mysql, count);
        let filter = "WHERE (((`days`.`version` = ?) AND (`days`.`day` = ?)) OR ((`days`.`version` = ?) AND (`days`.`day` = ?))) AND `days`.`shard` = ?";
        assert!(text.ends_with(filter), "{text}");
        let text = sql!(Pg, count);
        let start = r#"WITH "sharded_batch" ("version", "day", "shard", "number") AS (VALUES ($1, $2, $3, $4), ($5, $6, $7, $8)) UPDATE "#;
        assert!(text.starts_with(start), "{text}");
        let filter = r#"WHERE "days"."version" = "sharded_batch"."version" AND "days"."day" = "sharded_batch"."day" AND "days"."shard" = "sharded_batch"."shard" AND "sharded_batch"."shard" >= 0"#;
        assert!(text.ends_with(filter), "{text}");
    }
}

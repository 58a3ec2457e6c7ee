//! Statements about parents that are locked, and about their shards.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{Integer, Text, Untyped};

use super::keys::KeysAre;
use super::names::{Names, zeros};
use super::sql::{Sql, bind, id, on, part, sql, statements, text_of, walk};
use crate::backend::{Dialect, ShardedBackend, literal};
use crate::model::{DOUBLE, SHARD, ShardsColumn};

/// Which of the rows that are held a statement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    Parents,
    Shards,
}

/// The rows that a statement is about.
pub(crate) struct StatementRows<'a, DB: Backend> {
    pub(crate) rows: RowKind,
    pub(crate) names: Names<'a, DB>,
    /// ` WHERE (keys)`
    pub(crate) keys: &'a dyn QueryFragment<DB>,
    pub(crate) shard: Option<i32>,
}

impl<'a, DB: ShardedBackend> StatementRows<'a, DB> {
    /// The names that the rows have in the statement.
    fn names(&self) -> Names<'a, DB> {
        match self.rows {
            RowKind::Parents => self.names,
            RowKind::Shards => self.names.under_alias(),
        }
    }

    /// An expression over the parent, for the rows.
    fn expression<'b>(&'b self, expression: &'b dyn QueryFragment<DB>) -> impl Sql<'b, DB> {
        move |out: AstPass<'_, 'b, DB>| match self.rows {
            RowKind::Parents => expression.walk_ast(out),
            RowKind::Shards => self.names.aliased(expression).push(out),
        }
    }

    /// `parent`, or `shards AS parent`
    fn table<'b>(&'b self) -> impl Sql<'b, DB> {
        move |out: AstPass<'_, 'b, DB>| match self.rows {
            RowKind::Parents => self.names.parent.walk_ast(out),
            RowKind::Shards => self.names.shards_as_parent().push(out),
        }
    }

    /// `DELETE FROM shards AS parent WHERE (keys)`; MySQL: `DELETE parent FROM …`
    fn delete<'b>(&'b self) -> impl Sql<'b, DB> {
        let alias = move |dialect: Dialect| {
            let by_alias = dialect.deletes_by_alias();
            by_alias.then(|| sql! { walk(self.names().parent), " " })
        };
        sql! { "DELETE ", on(alias), "FROM ", self.table(), self.filter() }
    }

    /// `parent WHERE (keys) ORDER BY parent.key`, of all rows and as they are locked
    fn parents<'b>(&'b self) -> impl Sql<'b, DB> {
        sql! {
            walk(self.names.parent), self.filter(), " ORDER BY ", self.names.key(),
            on(Dialect::all_rows), on(Dialect::reads_what_is_locked)
        }
    }

    /// ` WHERE (keys)`, of shards with ` AND parent.shard = $n` if it is one
    fn filter<'b>(&'b self) -> impl Sql<'b, DB> {
        let shard = self.shard.as_ref().filter(|_| self.rows == RowKind::Shards);
        sql! { self.expression(self.keys), if let Some(shard) = shard { " AND ", self.names.shard_is(shard) } }
    }
}

/// Some fields of a table, in their order.
pub(crate) type Fields<'f> = [&'f ShardsColumn];

/// Whether the sums of shards are read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sums {
    /// Of shards that are locked, or nobody else's to lock.
    Read,
    /// As the transaction's snapshot has them, which is as young as the parents' locks. Increments on them do not wait.
    Seen,
    /// The shards are going to be emptied unread: 0 stands for their sum.
    Replaced,
}

/// Values for the bases of a field.
#[derive(Debug)]
pub(crate) struct BaseValues<'a> {
    pub(crate) field: &'a ShardsColumn,
    /// The number of a parent, and a literal: what is added to a sum, or the base itself.
    pub(crate) of: Vec<(usize, String)>,
}

impl BaseValues<'_> {
    pub(crate) fn parents(&self) -> impl Iterator<Item = usize> + '_ {
        self.of.iter().map(|(parent, _)| *parent)
    }

    /// `"views" = ("videos"."views" + CASE WHEN (key) THEN 5 … ELSE 0 END)`, or of a value that is kept `"best" = CASE … END`
    fn assigned<'b, DB: ShardedBackend>(
        &'b self,
        names: Names<'b, DB>,
        keys: &'b [impl QueryFragment<DB>],
    ) -> impl Sql<'b, DB> {
        let of_parent = |parent: usize| keys.get(parent).map(walk);
        move |out: AstPass<'_, 'b, DB>| {
            sql!(out;
            id(&self.field.name), " = ", if self.field.is_sum() { "(", names.column(&self.field.name), " + " },
            "CASE", whens(&self.of, of_parent), if self.field.is_sum() { " ELSE 0 END)" } else { " END" })
        }
    }
}

/// ` WHEN (key) THEN 5 …`
fn whens<'b, DB: ShardedBackend, K: Sql<'b, DB>>(
    values: &'b [(usize, String)],
    key: impl Fn(usize) -> Option<K>,
) -> impl Sql<'b, DB> {
    part(
        move |out: AstPass<'_, 'b, DB>| sql!(out; for (parent, value) in (values, "") { " WHEN ", key(*parent), " THEN ", value.as_str() }),
    )
}

impl ShardsColumn {
    /// A value of the field as it is read, into a [`FieldValue`](crate::model::FieldValue).
    pub(crate) fn value<'b, DB: ShardedBackend>(
        &self,
        value: impl Sql<'b, DB>,
    ) -> impl Sql<'b, DB> {
        let column_type = self.column_type;
        part(move |out: AstPass<'_, 'b, DB>| {
            let dialect = out.backend().dialect();
            let (cast, end) = dialect.value_as_text(column_type);
            match dialect.reads_doubles(column_type) {
                true => sql!(out; "0e0 + ", value, " AS ", id(DOUBLE)),
                false => sql!(out; cast, value, end),
            }
        })
    }
}

/// The parents beside the shards table, which takes their name.
const PARENTS: &str = "diesel_sharded_parents";

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// `NOT EXISTS (SELECT 1 FROM parent AS parents WHERE parents.key = parent.key)`, of shards under the parent's name or alias
    pub(crate) fn has_no_parent(self) -> impl Sql<'b, DB> {
        sql! {
            "NOT EXISTS (SELECT 1 FROM ", walk(self.parent), " AS ", id(PARENTS), " WHERE ",
            for key in (self.key, " AND ") { id(PARENTS), ".", id(&key.name), " = ", self.under_alias().column(&key.name) },
            ")"
        }
    }

    /// `EXISTS (SELECT 1 FROM parent AS parents WHERE parents.key = shards.key AND … parents.field + shards.field = parents.field …)`, where
    /// `column` writes a column of the shards table. Sums that may be out of range are not tried.
    pub(crate) fn is_rest<C: Sql<'b, DB>>(
        self,
        field: &'b ShardsColumn,
        column: &impl Fn(&'b str) -> C,
    ) -> impl Sql<'b, DB> {
        let shard = || column(&field.name);
        let base = move || sql! { id(PARENTS), ".", id(&field.name) };
        sql! {
            "EXISTS (SELECT 1 FROM ", walk(self.parent), " AS ", id(PARENTS), " WHERE ",
            for key in (self.key, " AND ") { id(PARENTS), ".", id(&key.name), " = ", column(&key.name) },
            " AND CASE WHEN ABS(", shard(), ") < 1e300 AND ABS(", base(), ") < 1e300 THEN ",
            base(), " + ", shard(), " = ", base(), " END)"
        }
    }
}

/// `row_security_active('"videos"')`
fn row_security_active<'b, DB: ShardedBackend>(
    table: &'b dyn QueryFragment<DB>,
) -> impl Sql<'b, DB> {
    part(|out: AstPass<'_, 'b, DB>| {
        let name = text_of(table, out.backend())?;
        let name = literal(out.backend().dialect(), &name);
        sql!(out; "row_security_active(", &*name, ")")
    })
}

statements! {
    /// Finds parents that can be seen and were not locked.
    ///
    /// ```sql
    /// SELECT "videos"."id" FROM "videos" WHERE ("videos"."id" = $1 OR …) AND NOT ("videos"."id" = $2 OR …)
    ///     AND row_security_active('"videos"')
    /// ```
    pub(crate) struct NotLocked<'a, P: QueryFragment<DB>, ST> {
        pub(crate) names: Names<'a, DB>,
        pub(crate) keys: &'a KeysAre<P>,
        pub(crate) locked: &'a KeysAre<P>,
        pub(crate) key_sql: PhantomData<ST>,
    }: Query<ST>;
    |self, out| {
        sql!(out;
            "SELECT ", self.names.key_to_read(), " FROM ", walk(self.names.parent), walk(self.keys),
            if !self.locked.0.is_empty() { " AND NOT ", self.locked.any() },
            " AND ", row_security_active(self.names.parent))
    }

    /// Reads the keys of parents that are held and still match the filter.
    ///
    /// ```sql
    /// SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE …) AS "videos" WHERE ("videos"."id" = $1 OR …)
    /// ORDER BY "videos"."id"
    /// ```
    pub(crate) struct PickAgain<'a, ST> {
        pub(crate) names: Names<'a, DB>,
        pub(crate) filter: &'a dyn QueryFragment<DB>,
        pub(crate) keys: &'a dyn QueryFragment<DB>,
        pub(crate) key_sql: PhantomData<ST>,
    }: Query<ST>;
    |self, out| {
        let table = self.names;
        sql!(out;
            table.select_keys_as_parent(self.filter), table.aliased(self.keys),
            " ORDER BY ", table.under_alias().key(), on(Dialect::all_rows))
    }

    /// Locks shards in the order in which increments lock them, and reads which of them are not empty.
    ///
    /// ```sql
    /// SELECT CASE WHEN "videos"."views" <> 0 OR "videos"."likes" <> 0 THEN 1 ELSE 0 END FROM "videos_shards" AS "videos"
    /// WHERE … ORDER BY "videos"."id", "videos"."shard" FOR NO KEY UPDATE
    /// ```
    pub(crate) struct LockShards<'a> {
        pub(crate) of: StatementRows<'a, DB>,
        pub(crate) clause: &'static str,
    }: Query<Integer>;
    |self, out| {
        let table = self.of.names();
        sql!(out;
            "SELECT CASE WHEN ",
            for field in (table.fields, " OR ") { table.column(&field.name), field.merge.is_filled() },
            " THEN 1 ELSE 0 END FROM ", self.of.table(), self.of.filter(),
            " ORDER BY ", table.key(), ", ", table.column(SHARD), on(Dialect::all_rows), self.clause)
    }

    /// Reads the numbers of the shards that [the primary](Names::on_primary) has, or locks those of them that nobody else holds.
    ///
    /// ```sql
    /// SELECT "videos"."shard" FROM "videos_shards" AS "videos" WHERE … ORDER BY "videos"."shard" -- FOR NO KEY UPDATE SKIP LOCKED
    /// ```
    pub(crate) struct SelectShards<'a> {
        pub(crate) of: StatementRows<'a, DB>,
        pub(crate) clause: &'static str,
    }: Query<Integer>;
    |self, out| {
        let shard = || self.of.names().column(SHARD);
        sql!(out;
            self.of.names().on_primary(), "SELECT ", shard(), " FROM ", self.of.table(), self.of.filter(), " ORDER BY ", shard(), on(Dialect::all_rows), self.clause)
    }

    /// Reads the numbers of the shards that there are, and the digits of what each holds of a field of integers.
    ///
    /// ```sql
    /// SELECT "videos"."shard", CAST("videos"."likes" AS TEXT) FROM "videos_shards" AS "videos" WHERE …
    /// ```
    pub(crate) struct ReadShards<'a> {
        pub(crate) of: StatementRows<'a, DB>,
        pub(crate) field: &'a ShardsColumn,
    }: Query<(Integer, Text)>;
    |self, out| {
        let table = self.of.names();
        sql!(out;
            "SELECT ", table.column(SHARD), ", ", self.field.value(table.column(&self.field.name)),
            " FROM ", self.of.table(), self.of.filter(), on(Dialect::all_rows))
    }

    /// Reads a row if row security applies to this role's view of a table.
    ///
    /// ```sql
    /// SELECT 1 WHERE row_security_active('"videos"')
    /// ```
    pub(crate) struct FindPolicy<'a>(pub(crate) &'a dyn QueryFragment<DB>): Query<Integer>;
    |self, out| {
        sql!(out; "SELECT 1 WHERE ", row_security_active(self.0))
    }

    /// Reads what parents hold of some fields, a row for each parent: base and sum of shards of a counted field, base and total of
    /// another one.
    ///
    /// ```sql
    /// SELECT CAST("videos"."views" AS TEXT), CAST((SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards"
    ///     WHERE "videos_shards"."id" = "videos"."id") AS TEXT), … FROM "videos" WHERE … ORDER BY "videos"."id"
    /// SELECT 0e0 + "videos"."score" AS "double", 0e0 + (SELECT …) AS "double", … FROM "videos" WHERE … ORDER BY "videos"."id"
    /// -- MySQL, MariaDB: all SELECTs end in FOR UPDATE, unless sums are only seen
    /// ```
    pub(crate) struct ReadStates<'a> {
        pub(crate) of: StatementRows<'a, DB>,
        pub(crate) fields: &'a Fields<'a>,
        pub(crate) sums: Sums,
    }: Query<Untyped>;
    |self, out| {
        let (table, shard) = (self.of.names, self.of.shard.as_ref());
        let lock = match self.sums {
            Sums::Seen => "",
            Sums::Read | Sums::Replaced => out.backend().dialect().reads_what_is_locked(),
        };
        sql!(out;
            "SELECT ",
            for field in (self.fields.iter().copied(), ", ") {
                field.value(table.column(&field.name)), ", ",
                if !field.is_sum() {
                    field.value(table.peak(field, shard, lock))
                } else {
                    if self.sums == Sums::Replaced { "'0'" } else { field.value(table.sum_of_shards(&field.name, shard, lock)) }
                }
            },
            " FROM ", self.of.parents())
    }

    /// Reads whether at least this many shards of each parent are filled, in key order.
    ///
    /// ```sql
    /// SELECT CASE WHEN (SELECT COUNT(*) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
    ///     AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0)) >= $1 THEN 1 ELSE 0 END
    /// FROM "videos" WHERE … ORDER BY "videos"."id"
    /// -- MySQL, MariaDB: all SELECTs end in FOR UPDATE
    /// ```
    pub(crate) struct FindHot<'a> {
        pub(crate) of: StatementRows<'a, DB>,
        pub(crate) shards: i32,
    }: Query<Integer>;
    |self, out| {
        let table = self.of.names;
        sql!(out;
            "SELECT CASE WHEN (SELECT COUNT(*) FROM ", table.shards_of_parent(None),
            " AND (", for field in (table.fields, " OR ") { table.shards_column(&field.name), field.merge.is_filled() }, ")",
            on(Dialect::reads_what_is_locked), ") >= ", bind(Integer, &self.shards), " THEN 1 ELSE 0 END FROM ", self.of.parents())
    }

    /// Writes columns of the parents or of their shards.
    ///
    /// ```sql
    /// UPDATE "videos" SET … WHERE …
    /// UPDATE "videos_shards" AS "videos" SET … WHERE …
    /// ```
    pub(crate) struct Write<'a> {
        pub(crate) of: StatementRows<'a, DB>,
        pub(crate) assignments: &'a dyn QueryFragment<DB>,
    };
    |self, out| {
        sql!(out; "UPDATE ", self.of.table(), " SET ", self.of.expression(self.assignments), self.of.filter())
    }

    /// Adds shards to their bases where one of them is not zero. Sums that round were read before, and are values.
    ///
    /// ```sql
    /// UPDATE "videos" SET "views" = total, "score" = ("videos"."score" + CASE WHEN ("videos"."id" = $1) THEN 2.5e0 … ELSE 0 END)
    /// WHERE … AND EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
    ///     AND ("videos_shards"."views" <> 0 OR "videos_shards"."score" <> 0))
    /// ```
    pub(crate) struct AddShardsToBases<'a, K: QueryFragment<DB>> {
        pub(crate) of: StatementRows<'a, DB>,
        /// The keys of the parents by their numbers.
        pub(crate) keys: &'a [K],
        pub(crate) values: &'a [BaseValues<'a>],
    };
    |self, out| {
        let (table, shard) = (self.of.names, self.of.shard.as_ref());
        let fields = table.fields.iter().filter_map(|field| {
            let values = || self.values.iter().find(|values| values.field.name == field.name);
            match field.leaves_rests() {
                true => values().map(|values| (field, Some(values))),
                false => Some((field, None)),
            }
        });
        sql!(out;
            "UPDATE ", walk(table.parent),
            " SET ", for (field, values) in (fields, ", ") {
                if let Some(values) = values { values.assigned(table, self.keys) } else { id(&field.name), " = ", table.total(field, shard) }
            }, self.of.filter(),
            " AND EXISTS (SELECT 1 FROM ", table.shards_of_parent(shard),
            " AND (", for field in (table.fields, " OR ") { table.shards_column(&field.name), field.merge.is_filled() }, "))")
    }

    /// Writes to bases what was read from shards, for a database whose statements may not read what their triggers write. Only fields
    /// that are sums may be combined: in a `CASE` the type of all values is one.
    ///
    /// ```sql
    /// UPDATE `videos` SET `views` = (`videos`.`views` + CASE WHEN (`videos`.`id` = ?) THEN 5 … ELSE 0 END) WHERE ((`videos`.`id` = ?) OR …)
    /// UPDATE `videos` SET `best` = CASE WHEN (`videos`.`id` = ?) THEN '90' … END WHERE ((`videos`.`id` = ?) OR …)
    /// ```
    pub(crate) struct WriteValues<'a, K: QueryFragment<DB>> {
        pub(crate) names: Names<'a, DB>,
        /// The keys of the parents by their numbers.
        pub(crate) keys: &'a [K],
        pub(crate) values: &'a [BaseValues<'a>],
        /// Those that have a value.
        pub(crate) written: KeysAre<&'a K>,
    };
    |self, out| {
        sql!(out;
            "UPDATE ", walk(self.names.parent), " SET ",
            for values in (self.values, ", ") { values.assigned(self.names, self.keys) }, walk(&self.written))
    }

    /// Reads the number of each parent's first shard, in key order.
    ///
    /// ```sql
    /// SELECT COALESCE((SELECT MIN("videos_shards"."shard") FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"), 0)
    /// FROM "videos" WHERE … ORDER BY "videos"."id"
    /// -- MySQL, MariaDB: all SELECTs end in FOR UPDATE
    /// ```
    pub(crate) struct SelectFirstShards<'a> {
        pub(crate) of: StatementRows<'a, DB>,
    }: Query<Integer>;
    |self, out| {
        let (table, shard) = (self.of.names, self.of.shard.as_ref());
        sql!(out;
            "SELECT COALESCE((SELECT MIN(", table.shards_column(SHARD), ") FROM ", table.shards_of_parent(shard),
            on(Dialect::reads_what_is_locked), "), 0) FROM ", self.of.parents())
    }

    /// Writes what bases round away to a shard of each parent.
    ///
    /// ```sql
    /// UPDATE "videos_shards" AS "videos" SET "score" = CASE WHEN ("videos"."id" = $1) THEN 1e-17 … ELSE "videos"."score" END
    /// WHERE … AND "videos"."shard" = CASE WHEN ("videos"."id" = $2) THEN 0 … END
    /// ```
    pub(crate) struct WriteRests<'a, K: QueryFragment<DB>> {
        pub(crate) of: StatementRows<'a, DB>,
        /// The keys of the parents by their numbers.
        pub(crate) keys: &'a [K],
        /// The number of a parent, and that of its shard.
        pub(crate) shards: &'a [(usize, String)],
        pub(crate) values: &'a [BaseValues<'a>],
    };
    |self, out| {
        let table = self.of.names();
        let of_parent = |parent: usize| Some(self.of.expression(self.keys.get(parent)?));
        sql!(out;
            "UPDATE ", self.of.table(), " SET ",
            for BaseValues { field, of } in (self.values, ", ") {
                id(&field.name), " = CASE", whens(of, of_parent), " ELSE ", table.column(&field.name), " END"
            },
            self.of.filter(), " AND ", table.column(SHARD), " = CASE", whens(self.shards, of_parent), " END")
    }

    /// Sets fields of shards to zero where they are not.
    ///
    /// ```sql
    /// UPDATE "videos_shards" AS "videos" SET "views" = 0, "likes" = 0
    /// WHERE … AND ("videos"."views" <> 0 OR "videos"."likes" <> 0)
    /// ```
    pub(crate) struct EmptyShards<'a> {
        pub(crate) of: StatementRows<'a, DB>,
        pub(crate) fields: &'a Fields<'a>,
    };
    |self, out| {
        let fields = || self.fields.iter().copied();
        let table = self.of.names();
        sql!(out;
            "UPDATE ", self.of.table(), " SET ", zeros(fields()), self.of.filter(),
            " AND (", for field in (fields(), " OR ") { table.column(&field.name), field.merge.is_filled() }, ")")
    }

    /// Deletes shards from a number on that are empty.
    ///
    /// ```sql
    /// DELETE FROM "videos_shards" AS "videos" WHERE … AND "videos"."shard" >= $n AND "videos"."views" = 0 AND …
    /// -- MySQL, MariaDB
    /// DELETE `videos` FROM `videos_shards` AS `videos` WHERE … AND `videos`.`shard` >= ? AND `videos`.`views` = 0 AND …
    /// ```
    pub(crate) struct RemoveShards<'a> {
        pub(crate) of: StatementRows<'a, DB>,
        pub(crate) first: i32,
    };
    |self, out| {
        let table = self.of.names();
        sql!(out;
            self.of.delete(), " AND ", table.column(SHARD), " >= ", bind(Integer, &self.first),
            for field in (table.fields, "") { " AND ", table.column(&field.name), field.merge.is_empty() })
    }

    /// Deletes the shards that have no parent.
    ///
    /// ```sql
    /// DELETE FROM "videos_shards" AS "videos" WHERE … AND
    ///     NOT EXISTS (SELECT 1 FROM "videos" AS "diesel_sharded_parents" WHERE "diesel_sharded_parents"."id" = "videos"."id")
    /// ```
    pub(crate) struct RemoveOrphans<'a> {
        pub(crate) of: StatementRows<'a, DB>,
    };
    |self, out| {
        sql!(out; self.of.delete(), " AND ", self.of.names.has_no_parent())
    }
}

#[cfg(test)]
mod tests;

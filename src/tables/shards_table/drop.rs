//! Folding every shard and dropping the table, as SQL text that checks its own fold.
//!
//! The bases and the sums of shards are copied to a temporary table before anything is written. Afterwards each base must be the
//! earlier base plus its sum, and each shard must have a row. This check finds a trigger, a policy or a column that suppresses,
//! changes, rounds or cuts the update, on every database. Then nothing is dropped, and every increment stays where it was.
//!
//! The texts are in the folder `sql`.

use crate::backend::{
    Column, DropForm, Quoted, TotalForm, as_one, each, joined, literal, quoted_on,
};

use super::unfit_text::{COLON, GAVE, KEY, NO_ROW, NOTHING, NULL, PLUS};

impl Quoted<'_> {
    /// The whole text that folds and drops the table, for any program.
    pub fn drop_sql(&self) -> String {
        match self.dialect.drop_form() {
            DropForm::Block => self.on_postgres(),
            DropForm::UnderLocks => self.on_mysql(),
            DropForm::RenamedFirst => self.on_sqlite(),
        }
    }

    /// One block, because `LOCK TABLE` needs a transaction, and `psql -f` opens none around several statements. Above READ COMMITTED the
    /// sums may be older than the lock.
    fn on_postgres(&self) -> String {
        let drop = format!(
            include_str!("sql/drop_on_postgres.sql"),
            parent = self.parent,
            shards = self.shards,
            isolation = self.says(
                ": drop it in a transaction that is READ COMMITTED; in any other some counts may not be seen"
            ),
            seen = literal(self.dialect, &self.shards),
            rows = literal(self.dialect, &self.parent),
            keep = literal(self.dialect, &self.name_beside("keep")),
            hidden = self.says(
                ": row security may hide some of its rows; drop it as a role that bypasses row security"
            ),
            cache = self.cache(&self.shards, None),
            totals = self.totals(&self.shards),
            update = self.update(),
            unfit = self.unfit(),
            orphan = self.orphan(&self.shards),
        );
        as_one("DECLARE\n    unfit TEXT;\n    keep TEXT;\n", &drop)
    }

    /// MySQL commits at `LOCK TABLES` and at `DROP TABLE`, so that no transaction encloses the two: the fold takes the increments
    /// out of the shards in a transaction of its own, and what is dropped is empty. The locked tables may appear only once in a
    /// statement. `UPDATE IGNORE` leaves to the check what in strict mode would fail and release the locks. The triggers are dropped after
    /// everything that may fail, because no statement drops one under a condition.
    fn on_mysql(&self) -> String {
        let drop = format!(
            include_str!("sql/drop_on_mysql.sql"),
            parent = self.parent,
            shards = self.shards,
            primary_key = each(&self.key, ", ", |i, _| format!("key{i}")),
            totals = self.totals(&self.shards),
            update = self.update(),
            cache = self.cache(&self.shards, None),
            unfit = self.unfit(),
            orphan = self.orphan(&self.shards),
            drop = literal(self.dialect, &format!("DROP TABLE {}", self.shards)),
        );
        let drop_triggers = self.drop_triggers().into_iter();
        let drop_triggers = drop_triggers.map(|drop| format!(";\n{drop}"));
        drop.trim_end().to_owned() + &joined(drop_triggers, "")
    }

    /// A program that continues after an error must not drop shards that it could not fold. So the table is renamed first: if everything
    /// was rolled back, no table has the other name. And the check is made twice. Its first failure undoes only its own statement, so that
    /// a program that stops there finds its transaction open.
    fn on_sqlite(&self) -> String {
        const RENAMED: &str = "`diesel_sharded_dropped`";
        let columns =
            |columns: &[Column], name: &str| each(columns, ", ", |i, _| format!("{name}{i}"));
        let dropped = &format!("{}{RENAMED}", self.schema); // in its schema it stays
        let in_triggers = RENAMED.replace('`', "\""); // where SQLite renames it so
        let message = format!(
            "{}: a row did not take what its shards hold, or a counter cache adds to it",
            self.shards_table
        );
        let drop = format!(
            include_str!("sql/drop_on_sqlite.sql"),
            drop_triggers = self.drop_triggers().join(";\n"), // rebuilding the parent's table has dropped them
            key = columns(&self.key, "key"),
            bases = columns(&self.fields, "base"),
            sums = columns(&self.fields, "sum"),
            shards = self.shards,
            renamed = RENAMED,
            dropped = dropped,
            totals = self.totals(dropped),
            update = self.update(),
            cache = self.cache(&in_triggers, None),
            unfit = self.unfit(),
            orphan = self.orphan(dropped),
            message = quoted_on(self.dialect, &message),
        );
        drop.trim_end().to_owned()
    }

    /// The bases, and the sums of shards, of the rows that have some.
    fn totals(&self, shards: &str) -> String {
        let parent = &self.parent;
        let key = |table: &str| each(&self.key, ", ", |i, c| format!("{table}.{c} AS key{i}"));
        let bases = each(&self.fields, ", ", |i, c| {
            format!("{parent}.{c} AS base{i}")
        });
        let sums = each(&self.fields, ", ", |i, _| {
            format!("diesel_sharded_sums.sum{i}")
        });
        let summed = each(&self.fields, ", ", |i, c| {
            format!("{}({shards}.{c}) AS sum{i}", c.merge.aggregate())
        });
        let on = |i, c: &Column| format!("diesel_sharded_sums.key{i} = {parent}.{c}");
        format!(
            "SELECT {key}, {bases}, {sums} FROM {parent}
        JOIN (SELECT {shards_key}, {summed} FROM {shards} GROUP BY {group}) AS diesel_sharded_sums ON {on}",
            key = key(parent),
            shards_key = key(shards),
            group = self.key_of(shards),
            on = each(&self.key, " AND ", on),
        )
    }

    /// Adds the sums to the bases.
    fn update(&self) -> String {
        let (parent, is_row) = (&self.parent, self.is_row());
        if self.dialect.joins_before_set() {
            let assign = |i, c: &Column| format!("{parent}.{c} = {}", total(i, c));
            let assignments = each(&self.fields, ", ", assign);
            return format!(
                "UPDATE IGNORE {parent} JOIN diesel_sharded_totals ON {is_row} SET {assignments}"
            );
        }
        let assignments = each(&self.fields, ", ", |i, c| format!("{c} = {}", total(i, c)));
        let totals = self.totals_table();
        format!("UPDATE {parent} SET {assignments} FROM {totals} WHERE {is_row}")
    }

    /// `"videos"."id" = diesel_sharded_totals.key1`
    fn is_row(&self) -> String {
        self.key_is_numbered(&self.parent, "diesel_sharded_totals.key")
    }

    fn totals_table(&self) -> String {
        format!("{}diesel_sharded_totals", self.dialect.temporary_schema())
    }

    /// A row that did not accept the values of its shards, as a text that [`told`](super::unfit_text::told) reads.
    fn unfit(&self) -> String {
        let parent = &self.parent;
        let bases = self.values(|i, _| format!("diesel_sharded_totals.base{i}"));
        let sums = self.values(|i, c| match c.is_sum() {
            true => format!("diesel_sharded_totals.sum{i}"),
            false => total(i, c),
        });
        let found = self.values(|_, c| format!("{parent}.{c}"));
        let is_there = each(&self.key, " AND ", |_, c| {
            format!("{parent}.{c} IS NOT NULL")
        });
        let text = self.concatenated(&[
            self.says(KEY),
            self.key_as_text("diesel_sharded_totals", |i, _| format!("key{i}")),
            format!("'{COLON}'"),
            bases,
            format!("'{PLUS}'"),
            sums,
            format!("'{GAVE}'"),
            format!("CASE WHEN {is_there} THEN {found} ELSE '{NOTHING}' END"),
        ]);
        let fits = each(&self.fields, " AND ", |i, c| {
            let (name, total) = (format!("{parent}.{c}"), total(i, c));
            let is_total = format!("{name} = {total}");
            if !c.is_sum() {
                return format!("({is_total} OR ({name} IS NULL AND {total} IS NULL))");
            }
            match self.dialect.total_form(c.column_type) {
                TotalForm::Checked(condition) => format!(
                    "{is_total} AND EXISTS (SELECT 1 FROM (SELECT {total} AS total) WHERE {condition})",
                ),
                _ => is_total,
            }
        });
        let (totals, is_row) = (self.totals_table(), self.is_row());
        self.any(
            &text,
            &format!("{totals} LEFT JOIN {parent} ON {is_row} WHERE NOT COALESCE({fits}, FALSE)"),
        )
    }

    /// A shard that has no row, as a text that [`told`](super::unfit_text::told) reads.
    fn orphan(&self, shards: &str) -> String {
        let key = self.key_as_text(shards, |_, c| c.to_string());
        let text = self.concatenated(&[self.says(KEY), key, format!("'{NO_ROW}'")]);
        let on = self.key_is_numbered(shards, "diesel_sharded_totals.key");
        let totals = self.totals_table();
        self.any(
            &text,
            &format!(
                "{shards} LEFT JOIN {totals} ON {on} WHERE diesel_sharded_totals.key1 IS NULL"
            ),
        )
    }

    /// One of these texts. NULL if there is none; on MySQL, where an interruption may give NULL, the empty text.
    fn any(&self, text: &str, from: &str) -> String {
        let [before, between, behind] = self.dialect.any_text();
        format!("{before}{text}{between}{from}{behind}")
    }

    fn key_as_text(&self, table: &str, name: impl Fn(usize, &Column) -> String) -> String {
        self.listed(&self.key, |i, column| {
            let (before, behind) = self.dialect.key_as_text(column.column_type);
            format!("{before}{table}.{}{behind}", name(i, column))
        })
    }

    /// The values of all fields as one text: without `COALESCE` a field that is `NULL` would make it `NULL`, which says that all
    /// rows fit.
    fn values(&self, value: impl Fn(usize, &Column) -> String) -> String {
        self.listed(&self.fields, |i, field| {
            format!("COALESCE({}, '{NULL}')", self.as_text(&value(i, field)))
        })
    }

    fn as_text(&self, value: &str) -> String {
        let (before, behind) = self.dialect.as_text();
        format!("{before}{value}{behind}")
    }

    /// Texts with commas in between.
    fn listed(&self, columns: &[Column], text: impl Fn(usize, &Column) -> String) -> String {
        let [before, between, behind] = self.dialect.concatenated();
        let texts = each(columns, &format!("{between}', '{between}"), text);
        format!("{before}{texts}{behind}")
    }

    pub(super) fn concatenated(&self, values: &[String]) -> String {
        let [before, between, behind] = self.dialect.concatenated();
        format!("{before}{}{behind}", values.join(between))
    }
}

/// The condition that a base has to meet, on its columns in the temporary table.
fn total(i: usize, field: &Column) -> String {
    let [base, sum] = ["base", "sum"].map(|name| format!("diesel_sharded_totals.{name}{i}"));
    match field.is_sum() {
        true => format!("{base} + {sum}"),
        false => {
            let beyond = field.merge.beyond();
            format!("CASE WHEN {base} IS NULL OR {sum}{beyond}{base} THEN {sum} ELSE {base} END")
        }
    }
}

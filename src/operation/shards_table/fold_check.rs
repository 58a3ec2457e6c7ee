//! The check of a fold by SQL text: which row does not hold what its shards held.

use crate::backend::{Dialect, TotalForm};
use crate::model::ColumnType;
use crate::query_builder::literal;

use super::quoted::{Column, Quoted, each};
use super::unfit_text::{COLON, GAVE, KEY, NO_ROW, NOTHING, NULL, PLUS};

impl Quoted<'_> {
    /// `"videos"."id" = diesel_sharded_totals.key1`
    pub(super) fn is_row(&self) -> String {
        self.key_is_numbered(&self.parent, "diesel_sharded_totals.key")
    }

    pub(super) fn totals_table(&self) -> &'static str {
        match self.dialect {
            Dialect::Postgres => "pg_temp.diesel_sharded_totals",
            Dialect::Mysql => "diesel_sharded_totals",
            Dialect::Sqlite => "temp.diesel_sharded_totals",
        }
    }

    /// A row that did not accept the values of its shards, as a text that [`told`](super::unfit_text::told) reads.
    pub(super) fn unfit(&self) -> String {
        let parent = &self.parent;
        let bases = self.values(|i, _| format!("diesel_sharded_totals.base{i}"));
        let sums = self.values(|i, c| match c.is_sum() {
            true => format!("diesel_sharded_totals.sum{i}"),
            false => total(i, c),
        });
        let found = self.values(|_, c| format!("{parent}.{}", c.name));
        let is_there = each(&self.key, " AND ", |_, c| {
            format!("{parent}.{} IS NOT NULL", c.name)
        });
        let found = format!("CASE WHEN {is_there} THEN {found} ELSE '{NOTHING}' END");
        let key = self.key_as_text("diesel_sharded_totals", |i, _| format!("key{i}"));
        let text = self.concatenated(&[
            literal(self.dialect, &format!("{}{KEY}", self.shards_table)),
            key,
            format!("'{COLON}'"),
            bases,
            format!("'{PLUS}'"),
            sums,
            format!("'{GAVE}'"),
            found,
        ]);
        let fits = each(&self.fields, " AND ", |i, c| {
            let (name, total) = (format!("{parent}.{}", c.name), total(i, c));
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
    pub(super) fn orphan(&self, shards: &str) -> String {
        let key = self.key_as_text(shards, |_, column| column.name.clone());
        let text = self.concatenated(&[
            literal(self.dialect, &format!("{}{KEY}", self.shards_table)),
            key,
            format!("'{NO_ROW}'"),
        ]);
        let on = each(&self.key, " AND ", |i, c| {
            format!("{shards}.{} = diesel_sharded_totals.key{i}", c.name)
        });
        let totals = self.totals_table();
        self.any(
            &text,
            &format!(
                "{shards} LEFT JOIN {totals} ON {on} WHERE diesel_sharded_totals.key1 IS NULL"
            ),
        )
    }

    /// One of these texts. NULL if there is none; on MySQL, where NULL may come of an interruption, the empty text.
    fn any(&self, text: &str, from: &str) -> String {
        match self.dialect {
            Dialect::Mysql => format!("SELECT COALESCE(MIN({text}), '') FROM {from}"),
            _ => format!("SELECT {text} FROM {from} LIMIT 1"),
        }
    }

    fn key_as_text(&self, table: &str, name: impl Fn(usize, &Column) -> String) -> String {
        self.listed(&self.key, |i, column| {
            let value = format!("{table}.{}", name(i, column));
            self.as_text(&match (column.column_type, self.dialect) {
                (ColumnType::Binary, Dialect::Postgres) => format!("encode({value}, 'hex')"),
                (ColumnType::Binary, _) => format!("HEX({value})"),
                _ => value,
            })
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
        format!("CAST({value} AS {})", self.dialect.text_type())
    }

    /// Texts with commas in between.
    fn listed(&self, columns: &[Column], text: impl Fn(usize, &Column) -> String) -> String {
        match self.dialect {
            Dialect::Mysql => format!("CONCAT({})", each(columns, ", ', ', ", text)),
            _ => each(columns, " || ', ' || ", text),
        }
    }

    pub(super) fn concatenated(&self, values: &[String]) -> String {
        match self.dialect {
            Dialect::Mysql => format!("CONCAT({})", values.join(", ")),
            _ => values.join(" || "),
        }
    }
}

/// The condition that a base has to meet, on its columns in the temporary table.
pub(super) fn total(i: usize, field: &Column) -> String {
    let [base, sum] = ["base", "sum"].map(|name| format!("diesel_sharded_totals.{name}{i}"));
    match field.is_sum() {
        true => format!("{base} + {sum}"),
        false => {
            let beyond = field.merge.beyond();
            format!("CASE WHEN {base} IS NULL OR {sum}{beyond}{base} THEN {sum} ELSE {base} END")
        }
    }
}

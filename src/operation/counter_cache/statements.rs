//! The statement by which a trigger counts.

use crate::operation::shards_table::each;

use super::declaration::Declaration;

/// The tables in which a statement-level trigger finds its rows.
pub(super) const OLD_ROWS: &str = "sharded_old";
pub(super) const NEW_ROWS: &str = "sharded_new";

/// Rows of the child, and whether they are counted or taken back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    pub(super) rows: Rows,
    pub(super) is_taken_back: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    /// Those of a statement, in a table of this name.
    Of(&'static str),
    /// The one row of this name.
    One(&'static str),
    /// All of the child's table.
    All,
    /// The rows that refer to the parent `OLD`.
    OfOldParent,
    /// No row of the child's table: only the database looks at the statement.
    None,
}

impl Side {
    pub(super) fn counted(rows: Rows) -> Self {
        Side {
            rows,
            is_taken_back: false,
        }
    }

    pub(super) fn taken_back(rows: Rows) -> Self {
        Side {
            rows,
            is_taken_back: true,
        }
    }
}

impl Declaration<'_> {
    /// Adds the numbers of both sides to a shard of each parent, in the order of their keys. A parent that is not there is left out:
    /// it takes its shards with it.
    pub(super) fn add(&self, sides: &[Side]) -> String {
        self.add_to(&self.tables.parent, &self.tables.shards, sides)
    }

    /// The same without schemas, for a trigger on SQLite.
    pub(super) fn add_to_bare(&self, sides: &[Side]) -> String {
        self.add_to(&self.tables.bare_parent, &self.tables.bare_shards, sides)
    }

    fn add_to(&self, parent: &str, shards: &str, sides: &[Side]) -> String {
        let tables = &self.tables;
        let counts = self.counts(sides);
        let key = each(&tables.key, ", ", |_, c| format!("{parent}.{}", c.name));
        let is_parent = each(&tables.key, " AND ", |i, c| {
            format!("{parent}.{} = sharded_counts.key{i}", c.name)
        });
        format!(
            "{insert}
    SELECT {key}, {number}, sharded_counts.n
    FROM ({counts}) AS sharded_counts
    {join} {parent} ON {is_parent}
    WHERE sharded_counts.n <> 0 ORDER BY {key}
    {or_add}",
            insert = tables.insert_into(shards, &self.field),
            number = self.shard(),
            join = self.dialect().joins_to_few(),
            or_add = self.or_add(shards),
        )
    }

    /// Adds to the shard that is there already.
    fn or_add(&self, shards: &str) -> String {
        let (tables, field) = (&self.tables, &self.field);
        let sum = format!("{field} = {shards}.{field} +");
        match self.dialect().names_conflict_target() {
            true => format!(
                "ON CONFLICT ({}, {}) DO UPDATE SET {sum} excluded.{field}",
                tables.key_names(),
                tables.shard
            ),
            false => format!("ON DUPLICATE KEY UPDATE {sum} sharded_counts.n"),
        }
    }

    /// Keys of parents and the numbers to add, one row for each key.
    fn counts(&self, sides: &[Side]) -> String {
        if let [side] = sides {
            return self.side(*side);
        }
        let sides: Vec<_> = sides.iter().map(|side| self.side(*side)).collect();
        let keys = each(&self.tables.key, ", ", |i, _| format!("key{i}"));
        format!(
            "SELECT {keys}, SUM(n) AS n FROM (
        {}
    ) AS sharded_sides GROUP BY {keys}",
            sides.join("\n        UNION ALL ")
        )
    }

    /// Keys of parents and the numbers of the child's rows, or their sums. The rows stand under the child's own name, for which the
    /// condition was written.
    fn side(&self, side: Side) -> String {
        let child = &self.child;
        let keys = (1..).zip(&self.by);
        let keys = keys.map(|(i, name)| format!("{child}.{name} AS key{i}"));
        let keys = keys.collect::<Vec<_>>().join(", ");
        let is_one = matches!(side.rows, Rows::One(_));
        let number = match (&self.amount, is_one) {
            (None, true) => "1".to_owned(),
            (None, false) => "COUNT(*)".to_owned(),
            (Some(amount), true) => format!("COALESCE({child}.{amount}, 0)"),
            (Some(amount), false) => format!("COALESCE(SUM({child}.{amount}), 0)"),
        };
        let sign = if side.is_taken_back { "-" } else { "" };
        let rows = self.rows(side.rows);
        let mut conditions = vec![];
        match side.rows {
            Rows::None => conditions.push("1 = 0".to_owned()),
            Rows::OfOldParent => conditions.extend(
                self.by
                    .iter()
                    .zip(&self.tables.key)
                    .map(|(name, key)| format!("{child}.{name} = OLD.{}", key.name)),
            ),
            _ => {}
        }
        conditions.extend(self.condition.iter().map(|sql| format!("({sql})")));
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        };
        let group = match is_one {
            true => String::new(),
            false => {
                let by = self.by.iter().map(|name| format!("{child}.{name}"));
                format!(" GROUP BY {}", by.collect::<Vec<_>>().join(", "))
            }
        };
        format!("SELECT {keys}, {sign}{number} AS n FROM {rows}{filter}{group}")
    }

    /// Rows under the child's name.
    fn rows(&self, rows: Rows) -> String {
        let child = &self.child;
        match rows {
            Rows::Of(table) => format!("{table} AS {child}"),
            Rows::One(row) => {
                let columns: Vec<_> = self
                    .read_columns()
                    .iter()
                    .map(|name| format!("{row}.{name} AS {name}"))
                    .collect();
                format!("(SELECT {}) AS {child}", columns.join(", "))
            }
            Rows::All | Rows::OfOldParent | Rows::None => self.child_rows(),
        }
    }

    /// The child's table under its bare name.
    fn child_rows(&self) -> String {
        match self.child == self.child_table {
            true => self.child.clone(),
            false => format!("{} AS {}", self.child_table, self.child),
        }
    }

    /// The columns that the statement reads: with a condition it may be any.
    fn read_columns(&self) -> Vec<&String> {
        if self.condition.is_some() {
            return self.columns.iter().collect();
        }
        let mut read: Vec<_> = self.by.iter().collect();
        read.extend(
            self.amount
                .iter()
                .filter(|amount| !self.by.contains(amount)),
        );
        read
    }

    /// The same statement for no row. It fails where a table or a column is missing, before a trigger would.
    pub(super) fn check(&self) -> String {
        self.add(&[Side::counted(Rows::None)])
    }

    /// The numbers of all of the child's rows, as a query for keys and numbers.
    pub(super) fn recount(&self) -> String {
        let child = &self.child;
        let by: Vec<_> = self
            .by
            .iter()
            .map(|name| format!("{child}.{name}"))
            .collect();
        let number = match &self.amount {
            None => "COUNT(*)".to_owned(),
            Some(amount) => format!("COALESCE(SUM({child}.{amount}), 0)"),
        };
        let (before, behind) = self
            .dialect()
            .recounted(self.field_type, self.amount.is_some());
        let mut conditions: Vec<_> = by
            .iter()
            .map(|name| format!("{name} IS NOT NULL"))
            .collect();
        conditions.extend(self.condition.iter().map(|sql| format!("({sql})")));
        let by = by.join(", ");
        format!(
            "SELECT {by}, {before}{number}{behind} FROM {} WHERE {} GROUP BY {by}",
            self.child_rows(),
            conditions.join(" AND ")
        )
    }

    /// The rows before a change: those of the statement, or the one of a row trigger.
    pub(super) fn old_rows(&self) -> Side {
        Side::taken_back(match self.dialect().has_transition_tables() {
            true => Rows::Of(OLD_ROWS),
            false => Rows::One("OLD"),
        })
    }

    /// The rows after a change.
    pub(super) fn new_rows(&self) -> Side {
        Side::counted(match self.dialect().has_transition_tables() {
            true => Rows::Of(NEW_ROWS),
            false => Rows::One("NEW"),
        })
    }
}

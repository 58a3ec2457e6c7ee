//! The statement by which a trigger counts.

use crate::backend::Dialect;
use crate::model::ColumnType;
use crate::operation::shards_table::each;

use super::condition::Condition;
use super::declaration::Declaration;

/// The tables in which a statement-level trigger finds its rows.
pub(super) const OLD_ROWS: &str = "sharded_old";
pub(super) const NEW_ROWS: &str = "sharded_new";

/// The rows of a row trigger.
pub(super) const OLD: &str = "OLD";
pub(super) const NEW: &str = "NEW";

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
    /// All of the child's table.
    All,
    /// The rows that refer to the parent `OLD`.
    OfOldParent,
    /// No row, of the columns that the triggers read: only the database looks at the statement.
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
        let tables = &self.tables;
        let (parent, shards) = (&tables.parent, &tables.shards);
        let counts = self.counts(sides);
        let key = tables.key_of(parent);
        let is_parent = tables.key_is_numbered(parent, "sharded_counts.key");
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
            or_add = self.or_add(shards, "sharded_counts.n"),
        )
    }

    /// Adds the number of a statement's one row to a shard that is there, and is done. Else the statement for any rows follows.
    pub(super) fn add_one(&self, side: Side) -> String {
        let (tables, field) = (&self.tables, &self.field);
        let shards = &tables.shards;
        let is_shard = tables.key_is_numbered(shards, "sharded_row.key");
        let sign = if side.is_taken_back { "-" } else { "+" };
        let row = self.side_of(Side::counted(side.rows), true);
        format!(
            "FOR sharded_row IN {row} LIMIT 2 LOOP
    sharded_rows := sharded_rows + 1;
END LOOP;
IF sharded_rows = 0 THEN
    RETURN NULL;
ELSIF sharded_rows = 1 THEN
    UPDATE {shards} SET {field} = {shards}.{field} {sign} sharded_row.n WHERE {is_shard} AND {shards}.{shard} = {number};
    IF FOUND THEN
        RETURN NULL;
    END IF;
END IF",
            shard = tables.shard,
            number = self.shard(),
        )
    }

    /// Adds the numbers of the rows of a row trigger. Where two rows have one parent, their numbers are added up.
    ///
    /// MySQL locks the parent as a foreign key does: the row's statement may have begun before the parent was committed.
    pub(super) fn add_rows(&self, rows: &[&str]) -> String {
        let (tables, dialect) = (&self.tables, self.dialect());
        // All tables of SQLite's triggers are those of their own database.
        let (parent, shards) = match dialect {
            Dialect::Sqlite => (&tables.bare_parent, &tables.bare_shards),
            _ => (&tables.parent, &tables.shards),
        };
        let key = tables.key_of(parent);
        let is_parent = |row: &str| {
            let by = |(i, c): (usize, &str)| format!("{parent}.{c} = {row}.{}", self.by[i]);
            let key = tables.key.iter().map(|c| &*c.name).enumerate();
            key.map(by).collect::<Vec<_>>().join(" AND ")
        };
        let number = |row: &str| {
            let sign = if row == OLD { "-" } else { "" };
            match &self.amount {
                Some(amount) => format!("{sign}COALESCE({row}.{amount}, 0)"),
                None => format!("{sign}1"),
            }
        };
        let condition = |row: &str| self.condition.as_ref().map(|c| c.on_row(row));
        let and_condition =
            |row: &str| condition(row).map_or(String::new(), |c| format!(" AND {c}"));
        let (n, filter) = match rows {
            [row] => {
                let counts = is_parent(row) + &and_condition(row);
                (number(row), counts)
            }
            _ => {
                let numbers = rows.iter().map(|row| {
                    let counts = is_parent(row) + &and_condition(row);
                    format!("CASE WHEN {counts} THEN {} ELSE 0 END", number(row))
                });
                let is_any: Vec<_> = rows.iter().map(|row| is_parent(row)).collect();
                let changes = self.changes(condition);
                let n = numbers.collect::<Vec<_>>().join(" + ");
                (
                    format!("({n})"),
                    format!("({}){changes}", is_any.join(" OR ")),
                )
            }
        };
        let is_fixed = rows.len() == 1 && self.amount.is_none();
        let counts = if is_fixed {
            String::new()
        } else {
            format!(" AND {n} <> 0")
        };
        let order = if rows.len() == 1 {
            String::new()
        } else {
            format!(" ORDER BY {key}")
        };
        format!(
            "{insert}
    SELECT {key}, {shard}, {n} FROM {parent}
    WHERE {filter}{counts}{order}{lock}
    {or_add}",
            insert = tables.insert_into(shards, &self.field),
            shard = self.shard(),
            lock = dialect.shares_lock(),
            or_add = self.or_add(shards, &n),
        )
    }

    /// Leaves the parents alone where an update changes nothing that is read. Texts that are equal here may differ in the parent.
    fn changes(&self, condition: impl Fn(&str) -> Option<String>) -> String {
        if self
            .tables
            .key
            .iter()
            .any(|c| c.column_type == ColumnType::Text)
        {
            return String::new();
        }
        let is = self.dialect().is_same();
        let read = self.by.iter().chain(&self.amount);
        let mut same: Vec<_> = read.map(|c| format!("{OLD}.{c} {is} {NEW}.{c}")).collect();
        same.extend(
            condition(OLD)
                .zip(condition(NEW))
                .map(|(old, new)| format!("{old} {is} {new}")),
        );
        format!(" AND NOT ({})", same.join(" AND "))
    }

    /// Adds to the shard that is there already.
    fn or_add(&self, shards: &str, n: &str) -> String {
        self.tables.or_add(shards, &[(&self.field, n.to_owned())])
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
        self.side_of(side, false)
    }

    /// The same of each row by itself, or of all rows of a parent.
    fn side_of(&self, side: Side, is_one: bool) -> String {
        let child = &self.child;
        let keys = (1..).zip(&self.by);
        let keys = keys.map(|(i, name)| format!("{child}.{name} AS key{i}"));
        let keys = keys.collect::<Vec<_>>().join(", ");
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
            Rows::OfOldParent => conditions.extend(self.refers_to_old_parent()),
            _ => {}
        }
        conditions.extend(self.condition.iter().map(|c| format!("({})", c.text)));
        if let (Some(_), true) = (&self.amount, is_one) {
            conditions.push(format!("{number} <> 0"));
        }
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
            // A name that no row of a trigger has is found here.
            Rows::None if !self.dialect().has_transition_tables() => {
                let columns = self.read_columns().join(", ");
                format!(
                    "(SELECT {columns} FROM {} WHERE 1 = 0) AS {child}",
                    self.child_rows()
                )
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

    /// The columns that the triggers read.
    fn read_columns(&self) -> Vec<&str> {
        let named = self.condition.iter().flat_map(Condition::columns);
        let mut read = vec![];
        for name in self.by.iter().chain(&self.amount).chain(named) {
            if !read.contains(&name.as_str()) {
                read.push(name.as_str());
            }
        }
        read
    }

    /// Locks the rows that refer to the parent `OLD`, and its shards: whoever is about to change one, or has written one that nobody
    /// else sees, ends before they are counted.
    pub(super) fn lock_rows_of_old_parent(&self) -> String {
        let tables = &self.tables;
        let is_parent = self.refers_to_old_parent().join(" AND ");
        let is_parents = tables.key_is(&tables.shards, "OLD");
        format!(
            "PERFORM 1 FROM {} WHERE {is_parent} FOR NO KEY UPDATE;
PERFORM 1 FROM {shards} WHERE {is_parents} FOR NO KEY UPDATE",
            self.child_rows(),
            shards = tables.shards,
        )
    }

    fn refers_to_old_parent(&self) -> Vec<String> {
        let refers = self.by.iter().zip(&self.tables.key);
        refers
            .map(|(name, key)| format!("{}.{name} = OLD.{}", self.child, key.name))
            .collect()
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
        conditions.extend(self.condition.iter().map(|c| format!("({})", c.text)));
        let by = by.join(", ");
        format!(
            "SELECT {by}, {before}{number}{behind} FROM {} WHERE {} GROUP BY {by}",
            self.child_rows(),
            conditions.join(" AND ")
        )
    }

    /// A statement's rows before a change.
    pub(super) fn old_rows(&self) -> Side {
        Side::taken_back(Rows::Of(OLD_ROWS))
    }

    /// The rows after a change.
    pub(super) fn new_rows(&self) -> Side {
        Side::counted(Rows::Of(NEW_ROWS))
    }
}

//! The triggers, created and dropped, and the statements by which they count.

use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{as_one, identifiers, joined, literal, trigger_function};
use crate::error::Error;
use crate::model::ColumnType;

use super::condition::{has_query, on_row};
use super::described::Declaration;

/// The row before and the row after a change, in a row trigger.
const OLD: &str = "OLD";
const NEW: &str = "NEW";

/// The same rows of a whole statement, in tables of these names.
const OLD_ROWS: Rows = Rows::Of("sharded_old");
const NEW_ROWS: Rows = Rows::Of("sharded_new");

/// Rows of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// Those of a statement, in a table of this name.
    Of(&'static str),
    /// All of the child's table.
    All,
    /// The rows that refer to the parent `OLD`.
    OfOldParent,
    /// No row, but all columns that the triggers read: the statement only lets the database check them.
    None,
}

/// The sign of the numbers of rows that are counted, or taken back.
const COUNTED: &str = "";
const TAKEN_BACK: &str = "-";

/// Rows, and the sign of their numbers.
type Side = (&'static str, Rows);

/// What is summed, in a selection that checks it.
const AMOUNT: &str = "sharded_amount";

/// A condition that every row fulfils.
const ALL: &str = "1 = 1";

fn all(conditions: impl Iterator<Item = String>) -> String {
    let sql = joined(conditions, " AND ");
    if sql.is_empty() { ALL.to_owned() } else { sql }
}

fn sum_of(amount: &str) -> String {
    format!("COALESCE(SUM({amount}), 0)")
}

impl Declaration<'_> {
    /// The whole text that creates the triggers.
    ///
    /// # Errors
    /// As [`CounterCache::create_sql`](crate::CounterCache::create_sql).
    pub fn create_sql(&self) -> QueryResult<String> {
        Ok(self.tables.in_savepoint(&self.create_statements()?))
    }

    /// The same, for a transaction that is rolled back at an error. The first statement counts no row: it fails where a table or a column is
    /// missing, before a trigger would.
    pub(super) fn create_statements(&self) -> QueryResult<Vec<String>> {
        let mut read = self.condition.iter().chain(&self.amount);
        if let Some(sql) = read.find(|sql| has_query(sql, self.dialect())) {
            return Err(Error::QueryInTrigger { sql: sql.clone() }.into());
        }
        if self.is_of_all_parents() && self.child_table == self.tables.parent {
            let message =
                "a row does not count all rows of its own table: its insertion would count itself";
            return Err(DieselError::QueryBuilderError(message.into()));
        }
        let check = self.add(&[(COUNTED, Rows::None)]);
        let one_alone = self.tables.refuse_second_cache(&self.field);
        if self.dialect().triggers_call_functions() {
            return Ok(vec![check, self.create_function_and_triggers(&one_alone)]);
        }
        let (lock, unlock) = self.dialect().create_at_once(&self.child_table).unzip();
        let mut statements = vec![check, one_alone];
        statements.extend(lock);
        statements.extend(self.create_row_triggers());
        statements.extend(unlock);
        Ok(statements)
    }

    /// The whole text that drops the triggers.
    pub fn drop_sql(&self) -> String {
        if self.dialect().triggers_call_functions() {
            // The function's triggers are dropped with it, at once. The drop would lock child and parent in an order of its own, while
            // writers lock the child first.
            let (child, function) = (&self.child_table, self.function());
            let found = literal(self.dialect(), child);
            let drop = format!(
                "IF has_table_privilege(to_regclass({found}), 'UPDATE, DELETE, TRUNCATE') THEN
    LOCK TABLE {child} IN ACCESS EXCLUSIVE MODE;
END IF;
DROP FUNCTION IF EXISTS {function}() CASCADE;
"
            );
            return as_one("", &drop);
        }
        let drop = ["insert", "update", "delete"].map(|event| {
            let name = self.trigger(event);
            format!("DROP TRIGGER IF EXISTS {}{name}", self.schema)
        });
        drop.join(";\n")
    }

    /// On MySQL each trigger is a single statement, so a client that splits the text at semicolons leaves it whole.
    fn create_row_triggers(&self) -> [String; 3] {
        let events = [
            ("INSERT", &[NEW][..]),
            ("UPDATE", &[OLD, NEW]),
            ("DELETE", &[OLD]),
        ];
        events.map(|(event, rows)| {
            let name = self.trigger(&event.to_lowercase());
            let create = format!("CREATE TRIGGER {}{name} AFTER {event} ON", self.schema);
            let child = match self.dialect().names_bare_in_triggers() {
                true => &self.child,
                false => &self.child_table,
            };
            let [before, behind] = self.dialect().body_of_trigger();
            format!("{create} {child}{before}{}{behind}", self.add_rows(rows))
        })
    }

    /// One function for all triggers. Nobody else needs a privilege on the shards table.
    fn create_function_and_triggers(&self, one_alone: &str) -> String {
        let (child, parent) = (&self.child_table, &self.tables.parent);
        let text = |text: &str| literal(self.dialect(), text);
        let (function, body) = (self.function(), self.function_body());
        let create = trigger_function("CREATE OR REPLACE FUNCTION", &function, body.trim_end());
        let create = format!(
            include_str!("sql/triggers_on_postgres.sql"),
            one_alone = one_alone,
            child = child,
            child_text = text(child),
            inherits = text(&format!(
                "{child} is a partition, or inherits: what is written through the table above it fires none of its triggers; count the rows of that table"
            )),
            parent = parent,
            of_parent = text(parent),
            left = text(&self.name_of_trigger("rename")),
            create = create.join(";\n"),
            function = function,
            insert = self.trigger("insert"),
            update = self.trigger("update"),
            delete = self.trigger("delete"),
            truncate = self.trigger("truncate"),
            rename = self.trigger("rename"),
            names = self.tables.key_names(),
            old = self.tables.key_of(OLD),
            new = self.tables.key_of(NEW),
        );
        as_one("DECLARE\n    kept TEXT;\n", &create)
    }

    fn function_body(&self) -> String {
        let (old, new) = ((TAKEN_BACK, OLD_ROWS), (COUNTED, NEW_ROWS));
        let one = |side: Side| match self.is_of_all_parents() {
            true => self.add(&[side]),
            false => format!("{};\n{}", self.add_one(side), self.add(&[side])),
        };
        let truncated = format!(
            "{}: truncate it in a transaction that is READ COMMITTED; in any other some of its rows may not be seen",
            self.child_table
        );
        format!(
            include_str!("sql/function_on_postgres.sql"),
            lock = self.lock_rows_of_old_parent(),
            rename = self.add(&[(TAKEN_BACK, Rows::OfOldParent)]),
            insert = one(new),
            update = self.add(&[old, new]),
            delete = one(old),
            isolation = literal(self.dialect(), &truncated),
            truncate = self.add(&[(TAKEN_BACK, Rows::All)]),
        )
    }

    /// Adds the numbers of all sides to a shard of each parent, in the order of their keys. A parent that does not exist is left out: a
    /// deleted parent takes its shards with it.
    fn add(&self, sides: &[Side]) -> String {
        let tables = &self.tables;
        let parent = &tables.parent;
        let key = tables.key_of(parent);
        // Nothing else holds the parents of all rows: one that is deleted meanwhile is left out.
        let calls_function = self.dialect().triggers_call_functions();
        let lock = match self.is_of_all_parents() && calls_function {
            true => format!(" FOR KEY SHARE OF {}", tables.bare_parent),
            false => String::new(),
        };
        let select = format!(
            "SELECT {key}, {shard}, sharded_counts.n
    FROM ({counts}) AS sharded_counts
    {join} {parent} ON {is_parent}
    WHERE sharded_counts.n <> 0 ORDER BY {key}{lock}",
            shard = self.shard,
            counts = self.counts(sides),
            join = self.dialect().joins_to_few(),
            is_parent = match self.is_of_all_parents() {
                true => ALL.to_owned(),
                false => tables.key_is_numbered(parent, "sharded_counts.key"),
            },
        );
        self.upsert(&tables.shards, "sharded_counts.n".to_owned(), &select)
    }

    fn upsert(&self, shards: &str, n: String, select: &str) -> String {
        let fields = [(self.field.clone(), n)];
        self.tables.upsert(shards, &fields, select, "    ")
    }

    /// Adds the number of a statement's single row to an existing shard, and is done. Otherwise the statement for any rows follows.
    fn add_one(&self, (sign, rows): Side) -> String {
        let shards = &self.tables.shards;
        let add = format!(
            include_str!("sql/add_one_on_postgres.sql"),
            row = self.side((COUNTED, rows), true),
            shards = shards,
            field = self.field,
            sign = if sign == COUNTED { "+" } else { sign },
            is_shard = self.tables.key_is_numbered(shards, "sharded_row.key"),
            shard = self.tables.shard,
            number = self.shard,
        );
        add.trim_end().to_owned()
    }

    /// Adds the numbers of the rows of a row trigger. Where two rows have one parent, their numbers are added up.
    ///
    /// MySQL locks the parent as a foreign key does: the row's statement may have begun before the parent was committed.
    fn add_rows(&self, rows: &[&str]) -> String {
        let (parent, shards) = self.tables.in_triggers();
        let key = self.tables.key_of(parent);
        let is_parent = |row: &str| {
            let key = self.tables.key.iter().zip(&self.by);
            all(key.map(|(key, by)| format!("{parent}.{key} = {row}.{by}")))
        };
        let counts = |row: &str| {
            let condition = self.condition.as_ref();
            let condition = condition.map(|sql| format!(" AND ({})", self.on_row(sql, row)));
            is_parent(row) + &condition.unwrap_or_default()
        };
        let number = |row: &str| {
            let sign = if row == OLD { TAKEN_BACK } else { COUNTED };
            match &self.amount {
                Some(amount) => format!("{sign}COALESCE({}, 0)", self.on_row(amount, row)),
                None => format!("{sign}1"),
            }
        };
        let order = match rows.len() > 1 || self.is_of_all_parents() {
            true => format!(" ORDER BY {key}"),
            false => String::new(),
        };
        let (n, filter) = match rows {
            [row] => (number(row), counts(row)),
            _ => {
                let numbers = rows.iter().map(|row| {
                    format!("CASE WHEN {} THEN {} ELSE 0 END", counts(row), number(row))
                });
                let is_any = joined(rows.iter().map(|row| is_parent(row)), " OR ");
                (
                    format!("({})", joined(numbers, " + ")),
                    format!("({is_any}){}", self.changes()),
                )
            }
        };
        let is_fixed = rows.len() == 1 && self.amount.is_none();
        let is_any = match is_fixed {
            true => String::new(),
            false => format!(" AND {n} <> 0"),
        };
        let (shard, lock) = (&self.shard, self.dialect().shares_lock());
        let select = format!(
            "SELECT {key}, {shard}, {n} FROM {parent}\n    WHERE {filter}{is_any}{order}{lock}"
        );
        self.upsert(shards, n, &select)
    }

    /// Leaves the parents alone if an update changes nothing that the triggers read. Texts that are equal here may differ in the parent.
    fn changes(&self) -> String {
        let mut key = self.tables.key.iter();
        if key.any(|c| matches!(c.column_type, ColumnType::Text | ColumnType::Other))
            && !self.is_of_all_parents()
        {
            return String::new();
        }
        let is = self.dialect().is_same();
        let same = self.by.iter();
        let same = same.map(|c| format!("{OLD}.{c} {is} {NEW}.{c}"));
        let others = self.amount.iter().chain(&self.condition);
        let others = others.map(|sql| [OLD, NEW].map(|row| self.on_row(sql, row)));
        let same_others = others.map(|[old, new]| format!("({old}) {is} ({new})"));
        format!(" AND NOT ({})", all(same.chain(same_others)))
    }

    /// The condition or the amount, on columns of a row of another name.
    fn on_row(&self, sql: &str, row: &str) -> String {
        let child = identifiers(&self.child).concat();
        on_row(sql, [&child, &self.child], row, self.dialect())
    }

    /// Keys of parents and the numbers to add, one row for each key.
    fn counts(&self, sides: &[Side]) -> String {
        if let [side] = sides {
            return self.side(*side, false);
        }
        let sides = sides.iter().map(|side| self.side(*side, false));
        let sides = joined(sides, "\n        UNION ALL ");
        let names = || (1..=self.by.len()).map(|i| format!("key{i}"));
        let keys: String = names().map(|name| name + ", ").collect();
        let group = self.group_by(names());
        format!(
            "SELECT {keys}SUM(n) AS n FROM (
        {sides}
    ) AS sharded_sides{group}"
        )
    }

    /// Keys of parents and the numbers of the child's rows, or their sums; of each row by itself, or of all rows of a parent. The rows
    /// stand under the child's own name, for which the condition was written.
    fn side(&self, (sign, rows): Side, is_one: bool) -> String {
        let child = &self.child;
        let keys = self.by.iter().zip(1..);
        let keys = keys.map(|(name, i)| format!("{child}.{name} AS key{i}, "));
        let keys: String = keys.collect();
        let number = match (&self.amount, is_one) {
            (None, true) => "1".to_owned(),
            (Some(amount), true) => format!("COALESCE({amount}, 0)"),
            (Some(_), false) if rows == Rows::None => sum_of(&format!("{child}.{AMOUNT}")),
            (_, false) => self.number(),
        };
        let mut conditions = match rows {
            Rows::None => vec!["1 = 0".to_owned()],
            Rows::OfOldParent => vec![self.refers_to_old_parent()],
            Rows::Of(_) | Rows::All => vec![],
        };
        if rows != Rows::None {
            conditions.extend(self.condition.iter().map(|sql| format!("({sql})")));
        }
        if self.amount.is_some() && is_one {
            conditions.push(format!("{number} <> 0"));
        }
        let filter = match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        };
        let group = match is_one {
            true => String::new(),
            false => self.group_by(self.refers()),
        };
        let rows = self.rows(rows);
        format!("SELECT {keys}{sign}{number} AS n FROM {rows}{filter}{group}")
    }

    /// The number of some rows, or the sum over them.
    fn number(&self) -> String {
        match &self.amount {
            None => "COUNT(*)".to_owned(),
            Some(amount) => sum_of(amount),
        }
    }

    /// Whether no column names a parent, and all rows are counted for each.
    fn is_of_all_parents(&self) -> bool {
        self.by.is_empty()
    }

    /// Groups rows by their parents.
    fn group_by(&self, keys: impl Iterator<Item = String>) -> String {
        match self.is_of_all_parents() {
            true => String::new(),
            false => format!(" GROUP BY {}", joined(keys, ", ")),
        }
    }

    /// The columns that refer to the parent.
    fn refers(&self) -> impl Iterator<Item = String> {
        self.by.iter().map(|name| format!("{}.{name}", self.child))
    }

    /// Rows under the child's name.
    fn rows(&self, rows: Rows) -> String {
        let child = &self.child;
        match rows {
            Rows::Of(table) => format!("{table} AS {child}"),
            Rows::None => self.checked_rows(),
            Rows::All | Rows::OfOldParent => self.child_rows(),
        }
    }

    /// The child's table under its bare name.
    fn child_rows(&self) -> String {
        match self.child == self.child_table {
            true => self.child.clone(),
            false => format!("{} AS {}", self.child_table, self.child),
        }
    }

    /// Selects none of the rows that fulfil the condition. Condition and amount are written as in the triggers, on rows of another name where the
    /// triggers give them one. The same rows are read a second time beside them, so that a column without its table's name is ambiguous,
    /// and fails.
    fn checked_rows(&self) -> String {
        let (child, table) = (&self.child, &self.child_table);
        if self.condition.is_none() && self.amount.is_none() {
            return self.child_rows();
        }
        let is_by_name = self.dialect().triggers_call_functions(); // as the triggers call them
        let row = if is_by_name { child } else { "sharded_row" };
        let checked = |sql: &String| match is_by_name {
            true => sql.clone(),
            false => self.on_row(sql, row),
        };
        let amount = self.amount.as_ref().map(checked);
        let condition = self.condition.as_ref().map(checked);
        let columns = self.by.iter().map(|c| format!("{row}.{c}"));
        let summed = amount.iter().map(|sql| format!("{sql} AS {AMOUNT}"));
        let nothing = self
            .is_of_all_parents()
            .then(|| "NULL AS sharded_key".to_owned());
        let columns = joined(nothing.into_iter().chain(columns).chain(summed), ", ");
        // WHERE accepts no aggregate.
        let amount = amount.iter().map(|sql| format!(" AND {sql} <> 0"));
        let condition = condition.iter().map(|sql| format!(" AND ({sql})"));
        let filter = joined(condition.chain(amount), "");
        format!(
            "(SELECT {columns} FROM {table} AS {row}, {table} AS sharded_other WHERE 1 = 0{filter}) AS {child}"
        )
    }

    /// Locks the rows that refer to the parent `OLD`, and its shards. A transaction that is about to change one, or has written one that
    /// nobody else sees, then ends before they are counted.
    fn lock_rows_of_old_parent(&self) -> String {
        let (rows, is_parent) = (self.child_rows(), self.refers_to_old_parent());
        let shards = &self.tables.shards;
        let is_parents = self.tables.key_is(shards, OLD);
        format!(
            "PERFORM 1 FROM {rows} WHERE {is_parent} FOR NO KEY UPDATE;
PERFORM 1 FROM {shards} WHERE {is_parents} FOR NO KEY UPDATE"
        )
    }

    /// Rows that belong to every parent keep doing so.
    fn refers_to_old_parent(&self) -> String {
        if self.is_of_all_parents() {
            return "1 = 0".to_owned();
        }
        let refers = self.refers().zip(&self.tables.key);
        joined(
            refers.map(|(refers, key)| format!("{refers} = {OLD}.{key}")),
            " AND ",
        )
    }

    /// The numbers of all of the child's rows, as a query for keys and numbers.
    pub fn recount_sql(&self) -> String {
        let (by, number) = (joined(self.refers(), ", "), self.number());
        let is_sum = self.amount.is_some();
        let (before, behind) = self.dialect().recounted(self.field_type, is_sum);
        let not_null = self.refers().map(|name| format!("{name} IS NOT NULL"));
        let conditions = self.condition.iter().map(|sql| format!("({sql})"));
        let filter = all(not_null.chain(conditions));
        let (rows, group) = (self.child_rows(), self.group_by(self.refers()));
        let number = format!("{before}{number}{behind}");
        let rows = format!("FROM {rows} WHERE {filter}{group}");
        if self.is_of_all_parents() {
            let parent = &self.tables.parent;
            let key = self.tables.key_of(parent);
            return format!("SELECT {key}, (SELECT {number} {rows}) FROM {parent}");
        }
        format!("SELECT {by}, {number} {rows}")
    }
}

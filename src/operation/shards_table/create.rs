//! `CREATE TABLE`, and what goes with it.

use diesel::result::{DatabaseErrorKind, Error as DieselError};

use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo};
use crate::error::Error;
use crate::model::{ColumnType, Merge, ShardedTable, ShardsColumn};
use crate::query_builder::literal;

use super::quoted::{Column, Integrity, Quoted, as_one, each, identifiers};
use super::triggers::{ON_SQLITE, texts};

impl Quoted<'_> {
    /// The whole text.
    pub(crate) fn create(&self) -> String {
        let statements = self.create_statements().join(";\n");
        match self.dialect.has_triggers() {
            true => format!("SAVEPOINT diesel_sharded;\n{statements};\nRELEASE diesel_sharded"),
            false => statements,
        }
    }

    /// The same, for a transaction that is rolled back at an error.
    pub(super) fn create_statements(&self) -> Vec<String> {
        let mut statements = match self.dialect {
            Dialect::Postgres if self.key.iter().any(is_collated) => self.create_like_parent(),
            _ => vec![self.create_table()],
        };
        if self.dialect.has_triggers() {
            let create = |end: &str| self.create_on_sqlite(end, &self.schema);
            statements.extend(ON_SQLITE.map(create));
        }
        statements.extend(self.integrity_statements());
        self.in_a_block(statements)
    }

    /// The statements that create triggers in place of the foreign key, beside a table that is there. (SQLite has its own.)
    pub(crate) fn create_integrity(&self) -> Vec<String> {
        self.in_a_block(self.integrity_statements())
    }

    fn integrity_statements(&self) -> Vec<String> {
        match self.integrity {
            Integrity::Triggers if !self.dialect.has_triggers() => self.create_parent_triggers(),
            _ => vec![],
        }
    }

    /// Several statements form one step on PostgreSQL.
    fn in_a_block(&self, statements: Vec<String>) -> Vec<String> {
        match self.dialect {
            Dialect::Postgres if statements.len() > 1 => {
                let statements = statements.join(";\n    ");
                vec![as_one("", &format!("    {statements};\n"))]
            }
            _ => statements,
        }
    }

    fn create_table(&self) -> String {
        let key = self
            .key
            .iter()
            .map(|column| format!("{} {} NOT NULL", column.name, self.key_type(column)));
        let lines: Vec<_> = key
            .chain(self.own_columns())
            .chain([self.primary_key()])
            .chain(self.named_checks())
            .chain(self.foreign_key())
            .collect();
        let options = self.dialect.table_options();
        format!(
            "CREATE TABLE {} (\n    {}\n){options}",
            self.shards,
            lines.join(",\n    ")
        )
    }

    /// With the key's columns from the parent, because only these have a text's collation on PostgreSQL. With another collation
    /// than the parent's key, the index of the shards would not serve a total.
    fn create_like_parent(&self) -> Vec<String> {
        let Quoted { shards, parent, .. } = self;
        let key = each(&self.key, ", ", |_, column| match &column.sql_type {
            Some(sql_type) => format!("CAST({0} AS {sql_type}) AS {0}", column.name),
            None => column.name.clone(),
        });
        let own = self.own_columns().map(|column| format!("ADD {column}"));
        let constraints = [self.primary_key()].into_iter().chain(self.foreign_key());
        let constraints = constraints.map(|constraint| format!("ADD {constraint}"));
        let alter: Vec<_> = own.chain(constraints).collect();
        let options = self.dialect.table_options();
        let alter = alter.join(",\n        ");
        vec![
            format!("CREATE TABLE {shards}{options} AS SELECT {key} FROM {parent} WITH NO DATA"),
            format!("ALTER TABLE {shards}\n        {alter}"),
        ]
    }

    /// `shard` and the sharded fields
    fn own_columns(&self) -> impl Iterator<Item = String> + '_ {
        let fields = self.fields.iter().map(|column| {
            let own = || self.dialect.field_type(column.column_type, column.merge);
            let sql_type = column.of.sql_type.as_deref().unwrap_or_else(own);
            let check = match self.check(column).filter(|_| !self.has_named_checks()) {
                Some(check) => format!(" {check}"),
                None => String::new(),
            };
            let default = match column.merge {
                Merge::Sum => "NOT NULL DEFAULT 0",
                // MySQL's `TIMESTAMP` is not nullable by itself.
                Merge::Max | Merge::Min => "NULL",
            };
            format!("{} {sql_type} {default}{check}", column.name)
        });
        std::iter::once(format!("{} INTEGER NOT NULL", self.shard)).chain(fields)
    }

    /// `CHECK ("views" BETWEEN …)`, where a shard has one.
    pub(crate) fn check(&self, column: &Column) -> Option<String> {
        let (dialect, sql_type) = (self.dialect, column.of.sql_type.as_deref());
        let range = dialect.shard_check(column.merge, column.column_type, sql_type)?;
        Some(format!("CHECK ({}{range})", column.name))
    }

    /// MySQL names a `CHECK` after its table, `videos_shards_chk_1`.
    fn has_named_checks(&self) -> bool {
        !self
            .constraint(&format!("chk_{}", self.fields.len()))
            .is_empty()
    }

    fn named_checks(&self) -> impl Iterator<Item = String> + '_ {
        let fields = self.fields.iter().zip(1..);
        let named = fields.filter(|_| self.has_named_checks());
        named.filter_map(|(column, i)| {
            let constraint = self.constraint(&format!("chk_{i}"));
            Some(format!("{constraint}{}", self.check(column)?))
        })
    }

    /// `CONSTRAINT name `, where MySQL or MariaDB would refuse the name that they make by themselves. MariaDB does so from 64 characters
    /// on, which it takes if they are given.
    fn constraint(&self, end: &str) -> String {
        let own = format!("{}_{end}", self.shards_table.name());
        match self.dialect {
            Dialect::Mysql if own.chars().count() >= 64 => {
                format!("CONSTRAINT {} ", self.bare_beside(end))
            }
            _ => String::new(),
        }
    }

    fn primary_key(&self) -> String {
        format!("PRIMARY KEY ({}, {})", self.key_names(), self.shard)
    }

    pub(crate) fn foreign_key(&self) -> Option<String> {
        if self.integrity != Integrity::ForeignKey {
            return None;
        }
        let key = self.key_names();
        let actions = self.dialect.foreign_key_actions();
        // SQLite looks for it in the database of the shards table.
        let parent = match self.dialect {
            Dialect::Sqlite => &self.bare_parent,
            _ => &self.parent,
        };
        let constraint = self.constraint("ibfk_1");
        Some(format!(
            "{constraint}FOREIGN KEY ({key}) REFERENCES {parent} ({key}){actions}"
        ))
    }
}

/// Whether only the parent has the column's full type.
fn is_collated(column: &Column) -> bool {
    column.column_type == ColumnType::Text && column.sql_type.is_none()
}

/// Whether MySQL or MariaDB refused to create a table because its key has another type or collation than its parent's.
fn is_unlike_parent(dialect: Dialect, error: &DieselError) -> bool {
    let DieselError::DatabaseError(DatabaseErrorKind::Unknown, information) = error else {
        return false;
    };
    let message = information.message();
    dialect == Dialect::Mysql
        && (message.contains("(errno: 150 \"")
            || message.starts_with("Referencing column '")
                && message.ends_with("are incompatible."))
}

/// Names the type to declare, as it is in the database.
pub(super) async fn explain_key<T, DB, M, Conn>(
    quoted: &Quoted<'_>,
    link: &mut Link<'_, M, Conn>,
    error: DieselError,
) -> DieselError
where
    T: ShardedTable,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    if !is_unlike_parent(quoted.dialect, &error) {
        return error;
    }
    let is_chosen = |column: &&ShardsColumn| {
        matches!(column.column_type, ColumnType::Text | ColumnType::Binary)
    };
    let Some(column) = T::KEY.iter().find(is_chosen).or(T::KEY.first()) else {
        return error;
    };
    let Some(parent) = identifiers(&quoted.bare_parent).pop() else {
        return error;
    };
    let schema = match quoted.shards_table.schema() {
        Some(schema) => literal(quoted.dialect, schema),
        None => "DATABASE()".to_owned(),
    };
    let sql = format!(
        "SELECT CONCAT(COLUMN_TYPE, COALESCE(CONCAT(' CHARACTER SET ', CHARACTER_SET_NAME, ' COLLATE ', COLLATION_NAME), '')) \
         FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = {} AND COLUMN_NAME = {}",
        literal(quoted.dialect, &parent),
        literal(quoted.dialect, &column.name),
    );
    let found = texts(link, sql).await;
    match found.ok().and_then(|mut found| found.pop()) {
        Some(sql_type) => Error::KeyTypeMismatch {
            table: T::SHARDS_TABLE.to_string(),
            column: column.name.to_string(),
            sql_type,
            source: error,
        }
        .into(),
        None => error,
    }
}

//! `CREATE TABLE`, and what goes with it.

use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use super::texts;
use crate::backend::{Column, Dialect, ErrorDetail, Integrity, Quoted, each, identifiers, literal};
use crate::connection::{Link, LoadIo};
use crate::error::{Error, database_error};
use crate::model::{ColumnType, Merge, ShardsColumn};

impl Quoted<'_> {
    /// The whole text that creates the table, with its triggers.
    pub fn create_sql(&self) -> String {
        self.in_savepoint(&self.create_statements())
    }

    /// The same, for a transaction that is rolled back at an error.
    pub(super) fn create_statements(&self) -> Vec<String> {
        let is_like_parent = self.dialect.copies_collations() && self.key.iter().any(is_collated);
        let mut statements = match is_like_parent {
            true => self.create_like_parent(),
            false => vec![self.create_table()],
        };
        statements.extend(self.create_triggers());
        self.dialect.in_a_block(statements)
    }

    /// The statements that take back what was created before one of the triggers was refused.
    pub(super) fn undo_create(&self) -> Vec<String> {
        let mut statements = self.drop_triggers();
        statements.push(format!("DROP TABLE {}", self.shards));
        statements
    }

    fn create_table(&self) -> String {
        let key = self.key.iter();
        let key = key.map(|c| format!("{c} {} NOT NULL{}", self.key_type(c), own_default(c)));
        let constraints = self.named_checks().chain(self.foreign_key_sql());
        let lines = key.chain(self.own_columns()).chain([self.primary_key()]);
        let lines: Vec<_> = lines.chain(constraints).collect();
        format!(
            "CREATE TABLE {} (\n    {}\n){}",
            self.shards,
            lines.join(",\n    "),
            self.dialect.table_options()
        )
    }

    /// With the key's columns from the parent, because only these have a text's collation on PostgreSQL. With another collation
    /// than the parent's key, the index of the shards would not serve a total.
    fn create_like_parent(&self) -> Vec<String> {
        let Quoted { shards, parent, .. } = self;
        let key = each(&self.key, ", ", |_, c| match &c.sql_type {
            Some(sql_type) => format!("CAST({c} AS {sql_type}) AS {c}"),
            None => c.to_string(),
        });
        let columns = self.own_columns().chain([self.primary_key()]);
        let alter = columns.chain(self.foreign_key_sql());
        let alter: Vec<_> = alter.map(|added| format!("ADD {added}")).collect();
        let alter = alter.join(",\n        ");
        let options = self.dialect.table_options();
        vec![
            format!("CREATE TABLE {shards}{options} AS SELECT {key} FROM {parent} WITH NO DATA"),
            format!("ALTER TABLE {shards}\n        {alter}"),
        ]
    }

    /// `shard` and the sharded fields
    fn own_columns(&self) -> impl Iterator<Item = String> + '_ {
        let fields = self.fields.iter().map(|column| {
            let sql_type = declared_type(self.dialect, column);
            let check = self.check(column).filter(|_| !self.has_named_checks());
            let check = check.map_or(String::new(), |check| format!(" {check}"));
            let default = match column.merge {
                Merge::Sum => "NOT NULL DEFAULT 0",
                // MySQL's `TIMESTAMP` is not nullable by itself.
                Merge::Max | Merge::Min => "NULL",
            };
            format!("{column} {sql_type} {default}{check}")
        });
        std::iter::once(format!("{} INTEGER NOT NULL", self.shard)).chain(fields)
    }

    /// The `CHECK` that the shards table has for each field, in their order.
    pub fn checks_sql(&self) -> Vec<Option<String>> {
        self.fields.iter().map(|field| self.check(field)).collect()
    }

    /// `CHECK ("views" BETWEEN …)`, where a shard has one.
    fn check(&self, column: &Column) -> Option<String> {
        let sql_type = column.sql_type.as_deref();
        let range = self
            .dialect
            .shard_check(column.merge, column.column_type, sql_type)?;
        Some(format!("CHECK ({column}{range})"))
    }

    /// MySQL names a `CHECK` after its table, `videos_shards_chk_1`.
    fn has_named_checks(&self) -> bool {
        let last = format!("chk_{}", self.fields.len());
        !self.constraint(&last).is_empty()
    }

    fn named_checks(&self) -> impl Iterator<Item = String> + '_ {
        let fields = self.fields.iter().zip(1..);
        let named = fields.filter(|_| self.has_named_checks());
        named.filter_map(|(column, i)| {
            let constraint = self.constraint(&format!("chk_{i}"));
            Some(format!("{constraint}{}", self.check(column)?))
        })
    }

    /// `CONSTRAINT name `, where MySQL or MariaDB would refuse the name that they make by themselves.
    fn constraint(&self, end: &str) -> String {
        let own = format!("{}_{end}", self.shards_table.name());
        match self.dialect.refuses_own_name(&own) {
            true => format!("CONSTRAINT {} ", self.bare_beside(end)),
            false => String::new(),
        }
    }

    fn primary_key(&self) -> String {
        format!("PRIMARY KEY ({}, {})", self.key_names(), self.shard)
    }

    /// The foreign key that the shards table has, if it is to have one.
    pub fn foreign_key_sql(&self) -> Option<String> {
        if self.integrity != Integrity::ForeignKey {
            return None;
        }
        let key = self.key_names();
        let actions = self.dialect.foreign_key_actions();
        let (parent, _) = self.in_triggers(); // SQLite looks for it in the database of the shards table
        let constraint = self.constraint("ibfk_1");
        Some(format!(
            "{constraint}FOREIGN KEY ({key}) REFERENCES {parent} ({key}){actions}"
        ))
    }
}

/// The type that the shards table declares for a sharded field.
pub fn declared_type(dialect: Dialect, field: &ShardsColumn) -> &str {
    let own = || dialect.field_type(field.column_type, field.merge);
    field.sql_type.as_deref().unwrap_or_else(own)
}

/// A default of a key column, which every row has: without one some servers would set a `TIMESTAMP` to the time of each increment.
fn own_default(key: &Column) -> &'static str {
    let sql_type = key.sql_type.as_deref().unwrap_or_default();
    let is_timestamp = sql_type
        .get(..9)
        .is_some_and(|name| name.eq_ignore_ascii_case("TIMESTAMP"));
    if is_timestamp {
        " DEFAULT '2000-01-01'"
    } else {
        ""
    }
}

/// Whether only the parent has the column's full type.
fn is_collated(column: &Column) -> bool {
    column.column_type == ColumnType::Text && column.sql_type.is_none()
}

/// Reads the type of the parent's key column that satisfies a condition.
fn select_type(quoted: &Quoted<'_>, column: &Column, condition: &str) -> String {
    let text = |text: &str| literal(quoted.dialect, text);
    let schema = quoted.shards_table.schema();
    format!(
        "SELECT CONCAT(COLUMN_TYPE, COALESCE(CONCAT(' CHARACTER SET ', CHARACTER_SET_NAME, ' COLLATE ', COLLATION_NAME), '')) \
         FROM information_schema.COLUMNS JOIN information_schema.TABLES USING (TABLE_SCHEMA, TABLE_NAME) \
         WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} AND COLUMN_NAME = {}{condition}",
        schema.map_or("DATABASE()".to_owned(), text),
        text(&identifiers(&quoted.bare_parent).concat()),
        text(&column.name),
    )
}

/// The number in `VARCHAR(255)`.
fn length(sql_type: &str) -> Option<u32> {
    let (_, behind) = sql_type.split_once('(')?;
    behind.split_once(')')?.0.trim().parse().ok()
}

/// Refuses a key column that is shorter than the parent's: without its strict mode MySQL would cut a key, perhaps to another row's. And times
/// of another type: MySQL accepts such a foreign key, and then no shard.
///
/// # Errors
/// [`KeyTypeMismatch`](Error::KeyTypeMismatch).
pub(super) async fn refuse_short_key<M: LoadIo>(
    quoted: &Quoted<'_>,
    link: &mut Link<'_, M>,
) -> QueryResult<()> {
    if !quoted.dialect.cuts_keys() {
        return Ok(());
    }
    for column in &quoted.key {
        let declared = quoted.key_type(column);
        let (is_unlike, message) = match (column.column_type, length(declared)) {
            (ColumnType::Text | ColumnType::Binary, Some(length)) => (
                format!(" AND CHARACTER_MAXIMUM_LENGTH > {length}"),
                format!("it would cut keys to a length of {length}"),
            ),
            (ColumnType::Timestamp, _) => (
                format!(
                    " AND COLUMN_TYPE <> {}",
                    literal(quoted.dialect, &declared.to_lowercase())
                ),
                "a foreign key compares the bytes of times, and those of two types differ"
                    .to_owned(),
            ),
            _ => continue,
        };
        let unlike = texts(link, select_type(quoted, column, &is_unlike)).await?;
        if let Some(sql_type) = unlike.into_iter().next() {
            let source = database_error(DatabaseErrorKind::Unknown, message);
            return Err(key_mismatch(quoted, column, sql_type, source));
        }
    }
    Ok(())
}

fn key_mismatch(
    quoted: &Quoted<'_>,
    column: &Column,
    sql_type: String,
    source: DieselError,
) -> DieselError {
    Error::KeyTypeMismatch {
        table: quoted.shards_table.to_string(),
        column: column.name.to_string(),
        sql_type,
        source,
    }
    .into()
}

/// Names the type to declare, as it is in the database. No key of any type can refer to a view or a partitioned table.
pub(super) async fn explain_key<M: LoadIo>(
    quoted: &Quoted<'_>,
    link: &mut Link<'_, M>,
    error: DieselError,
) -> DieselError {
    if !quoted.dialect.has_detail(&error, ErrorDetail::UnlikeParent) {
        return error;
    }
    let is_chosen =
        |column: &&Column| matches!(column.column_type, ColumnType::Text | ColumnType::Binary);
    let Some(column) = quoted.key.iter().find(is_chosen).or(quoted.key.first()) else {
        return error;
    };
    let can_refer = " AND TABLE_TYPE = 'BASE TABLE' AND CREATE_OPTIONS NOT LIKE '%partitioned%'";
    let found = texts(link, select_type(quoted, column, can_refer)).await;
    match found.ok().and_then(|mut found| found.pop()) {
        Some(sql_type) => key_mismatch(quoted, column, sql_type, error),
        None => error,
    }
}

//! The errors of the tool, and their remedies.

use std::path::{Path, PathBuf};

use diesel::result::Error as DieselError;
use diesel_sharded::model::TableName;

use crate::shell;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no database: set DATABASE_URL, write it to a file `.env`, or give --database-url")]
    NoDatabaseUrl,
    #[error("`{shown}`, from {origin}, leads to no database: {why}. These forms work: {forms}")]
    Address {
        shown: String,
        origin: String,
        why: String,
        forms: String,
    },
    #[error("no connection to the database, whose address is from {origin}: {says}")]
    Connection { origin: String, says: String },
    #[error(transparent)]
    Database(diesel_sharded::Error),

    #[error(
        "there is no table `{table}` in this database that this role may see{}",
        like(similar)
    )]
    NoSuchTable { table: String, similar: Vec<String> },
    #[error(
        "`{name}` has a dot, which would stand for a schema: a shards table and a view are in the schema of their parent, so give the \
         name alone and without a dot: {option}={}",
        shell::quoted(&name.replace('.', "_"))
    )]
    QualifiedName { name: String, option: &'static str },
    #[error("`{table}` is {kind}: only a plain table can have shards")]
    NotATable { table: String, kind: &'static str },
    #[error(
        "`{table}` uses the engine {engine}: shards need InnoDB, ALTER TABLE {quoted} ENGINE = InnoDB"
    )]
    Engine {
        table: String,
        engine: String,
        quoted: String,
    },
    #[error("`{0}` has no primary key, by which shards find their row: add one")]
    NoPrimaryKey(String),
    #[error("`{table}` has no column `{column}`; it has {}", columns.join(", "))]
    NoSuchColumn {
        table: String,
        column: String,
        columns: Vec<String>,
    },
    #[error("`{0}` is no column of a table in this database: write TABLE.COLUMN")]
    NoSuchCounted(String),
    #[error(
        "the columns that name a row of `{table}` are those of its key, in this order: {}; give --counts once for each, all of one \
         table",
        key.join(", ")
    )]
    CountedColumns { table: String, key: Vec<String> },
    #[error(
        "`{column}` has the type `{sql_type}`, and `{key}` has `{key_type}`: a row names its parent by a value of the \
         same kind"
    )]
    CountedType {
        column: String,
        sql_type: String,
        key: String,
        key_type: String,
    },
    #[error("with --counts the command takes one column, the one that holds the number")]
    OneCountedColumn,
    #[error("`{0}` was named twice")]
    NamedTwice(String),
    #[error(
        "`{table}.{column}` may be NULL, and NULL + 1 is NULL: fill it and make it NOT NULL DEFAULT 0 first"
    )]
    Nullable { table: String, column: String },
    #[error("`{table}.{column}` is a generated column: what is computed cannot be counted")]
    Generated { table: String, column: String },
    #[error("`{table}.{column}` is part of the primary key: a counter cannot be")]
    InKey { table: String, column: String },
    #[error(
        "`{table}.{column}` has the type `{sql_type}`, which cannot be counted on shards: a sharded field is a 16, 32 or 64 bit \
         integer, a double or a decimal"
    )]
    FieldType {
        table: String,
        column: String,
        sql_type: String,
    },
    #[error(
        "`{table}.{column}` has the type `{sql_type}`, which cannot be the key of a shards table: keys are 16, 32 or 64 bit \
         integers, varying text or bytes of a length that can be indexed, dates, and UUIDs on PostgreSQL"
    )]
    KeyType {
        table: String,
        column: String,
        sql_type: String,
    },
    #[error(
        "`{table}` has a column `{column}`, and a shards table has its own column `shard`: rename this one"
    )]
    NamedShard { table: String, column: String },
    #[error(
        "`{table}` is sharded already: its shards are in `{shards_table}` (fields {}). To shard other fields too, revert that \
         migration, which folds, and generate one with all of them",
        fields.join(", ")
    )]
    AlreadySharded {
        table: String,
        shards_table: String,
        fields: Vec<String>,
    },
    #[error(
        "{table}.{field} has a counter cache already, `{cache}`, and each field has one: drop it by its migration's down.sql, or count into \
         another field"
    )]
    CountedAlready {
        table: String,
        field: String,
        cache: String,
    },
    #[error("there is a table `{0}` already: choose another name by --shards-table or --view=NAME")]
    TableExists(String),
    #[error(
        "the name `{0}` is longer than the database takes (63 bytes on PostgreSQL, 64 characters on MySQL and MariaDB): choose another by \
         --shards-table or --view=NAME"
    )]
    NameTooLong(String),
    #[error("`{0}` is itself a shards table: its rows are parts of counters")]
    IsShardsTable(String),
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },

    #[error("{}: {message}", file.display())]
    Config { file: PathBuf, message: String },

    #[error(
        "`{table}` is not sharded, or this role may not see its shards table: `{}` begins that",
        shell::command(["generate", table, "COLUMN"])
    )]
    NotSharded { table: String },
    #[error(
        "`{shards_table}` keeps the greatest or the least value of `{table}.{column}` (`#[sharded(max)]` or `#[sharded(min)]`), and the database \
         does not say which: use the library for this table, as in `diesel_sharded::fold({table}).run(conn)`"
    )]
    KeepsValues {
        table: String,
        shards_table: String,
        column: String,
    },
    #[error("`{column}` is no sharded field of `{table}`; these are: {}", fields.join(", "))]
    NoSuchField {
        table: String,
        column: String,
        fields: Vec<String>,
    },
    #[error("--after goes on in one table: name it")]
    AfterWithoutTable,
    #[error(
        "the key of `{table}` has {columns} columns: give --after {columns} times, in their order"
    )]
    AfterColumns { table: String, columns: usize },
    #[error("`{value}` is no key of the type of `{column}` (bytes are written in hexadecimal)")]
    KeyValue { value: String, column: String },
    #[error("there is no counter `{name}`{}", like(.similar))]
    NoSuchCounter { name: String, similar: Vec<String> },
    #[error("{}", .0.iter().map(Error::to_string).collect::<Vec<_>>().join("\nerror: "))]
    Several(Vec<Error>),
    #[error("the recount gave more than one number for the key {key}: group it by the key alone")]
    RecountNotGrouped { key: String },
    #[error(
        "the key {key} of `{table}` does not come back as it is read: its value is of another type than its column, so that no row behind it \
         can be found"
    )]
    NoWayBehind { table: String, key: String },
    #[error("the recount gives `{text}` for the key {key}, which is no number")]
    RecountNoNumber { key: String, text: String },
    #[error(
        "`{table}.{column}` of the row {key} is NULL, and NULL + 1 is NULL: fill it, and make the column NOT NULL DEFAULT 0"
    )]
    NoBase {
        table: String,
        column: String,
        key: String,
    },
    #[error("{table}: {source}")]
    OfTable { table: String, source: Box<Error> },
    #[error(
        "the recount cannot be run: {0}\nIt has to select the {1} column(s) of the key and then one number, as in \
         `SELECT video_id, COUNT(*) FROM likes GROUP BY video_id`"
    )]
    Recount(String, usize),
    #[error(
        "there is no table `{0}`: create the library's tables once by `diesel-sharded setup` (in Rust: \
         `conn.run_pending_migrations(diesel_sharded::MIGRATIONS)`)"
    )]
    NoLibraryTables(String),
    #[error("this role may not {what}: {grant}\nThe database says: {says}")]
    Privilege {
        what: String,
        grant: String,
        says: String,
    },
    #[error("{source}\ngo on with: {go_on}")]
    Unfinished { source: Box<Error>, go_on: String },
    #[error("a migration of the library failed: {0}")]
    Migration(String),
    #[error("nothing was run. {}", .0.join("\n"))]
    LibraryTables(Vec<String>),
    #[error(
        "another `setup` has held the lock of this database for {seconds} s: wait until it ends, and run this again"
    )]
    Locked { seconds: u32 },
    #[error("signals cannot be handled: {0}")]
    Signals(ctrlc::Error),
    #[error("the output cannot be written: {0}")]
    Output(std::io::Error),
}

impl Error {
    pub fn file(path: &Path, source: std::io::Error) -> Self {
        Error::File {
            path: path.to_owned(),
            source,
        }
    }

    /// An error among those of other tables. An error about a privilege names its table already.
    pub fn of_table(self, table: TableName<'_>) -> Self {
        match self {
            error @ Error::Privilege { .. } => error,
            error => Error::OfTable {
                table: table.to_string(),
                source: Box::new(error),
            },
        }
    }

    /// The error ended a command of which a part was done; a command line goes on.
    pub fn unfinished(self, go_on: String) -> Self {
        Error::Unfinished {
            source: Box::new(self),
            go_on,
        }
    }
}

impl From<DieselError> for Error {
    fn from(error: DieselError) -> Self {
        Error::Database(error.into())
    }
}

fn like(similar: &[String]) -> String {
    let names: Vec<_> = similar.iter().map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", names.join(" or ")),
    }
}

//! The errors of the tool, and their remedies.

use std::path::{Path, PathBuf};

use diesel::result::Error as DieselError;
use diesel_sharded::model::TableName;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no database: set DATABASE_URL, write it to a file `.env`, or give --database-url")]
    NoDatabaseUrl,
    /// One that nothing but its text tells from others.
    #[error("{0}")]
    Refused(String),
    /// Its source shows a conflict to a transaction that is retried.
    #[error("{0}")]
    Database(#[source] diesel_sharded::Error),
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}", .0.iter().map(Error::to_string).collect::<Vec<_>>().join("\nerror: "))]
    Several(Vec<Error>),
    #[error("{table}: {source}")]
    OfTable { table: String, source: Box<Error> },
    #[error(
        "the recount cannot be run: {0}\nIt has to select the {1} column(s) of the key and then one number, as in \
         `SELECT video_id, COUNT(*) FROM likes GROUP BY video_id`"
    )]
    Recount(String, usize),
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
    #[error("signals cannot be handled: {0}")]
    Signals(ctrlc::Error),
    #[error("the output cannot be written: {0}")]
    Output(std::io::Error),
}

impl Error {
    pub fn refused(text: impl Into<String>) -> Self {
        Error::Refused(text.into())
    }

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
}

impl From<DieselError> for Error {
    fn from(error: DieselError) -> Self {
        Error::Database(error.into())
    }
}

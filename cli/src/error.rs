//! How a command ended, as an exit code; and errors with their remedies.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use diesel::result::Error as DieselError;
use diesel_sharded::model::TableName;

use crate::output;

/// How a command ended without an error. (An error is exit code 1, wrong usage is 2.) The worse end is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub enum Ended {
    Done,
    /// Something is left to do, or was found.
    LeftOver,
    Interrupted,
}

impl Ended {
    /// An interrupt has ended the command. `rest` tells how to do the rest.
    pub fn interrupted(rest: &str) -> Self {
        output::note(&format!("interrupted: {rest}"));
        Ended::Interrupted
    }

    pub fn left_over_if(something: bool) -> Self {
        match something {
            true => Ended::LeftOver,
            false => Ended::Done,
        }
    }
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> Self {
        ExitCode::from(match ended {
            Ended::Done => 0,
            Ended::LeftOver => 3,
            Ended::Interrupted => 130,
        })
    }
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no database: set DATABASE_URL, write it to a file `.env`, or give --database-url")]
    NoDatabaseUrl,
    /// Any other error, known only by its text.
    #[error("{0}")]
    Refused(String),
    /// By its source, a transaction recognizes a conflict and is retried.
    #[error("{0}")]
    Database(#[source] diesel_sharded::Error),
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}", output::joined("\nerror: ", .0))]
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
    #[error("{source}\n{rest}")]
    Unfinished { source: Box<Error>, rest: String },
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

    /// The error with its table's name, to be listed among errors of other tables. An error about a privilege already names its table.
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

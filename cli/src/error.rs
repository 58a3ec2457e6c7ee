//! How a command ended, as an exit code; and errors with their remedies.

use std::path::Path;

use diesel::result::Error as DieselError;
use diesel_sharded::model::TableName;

use crate::output;

/// How a command ended without an error, with its exit code. (An error is exit code 1, wrong usage is 2.) The worse end is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
#[repr(u8)]
pub enum Ended {
    Done = 0,
    /// Something is left to do, or was found.
    LeftOver = 3,
    Interrupted = 130,
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

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Most errors are known only by their texts.
    #[error("{0}")]
    Refused(String),
    /// By its source, a transaction recognizes a conflict and is retried.
    #[error("{0}")]
    Database(#[source] diesel_sharded::Error),
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
}

impl Error {
    pub fn refused(text: impl Into<String>) -> Self {
        Error::Refused(text.into())
    }

    pub fn file(path: &Path, error: std::io::Error) -> Self {
        Error::Refused(format!("{}: {error}", path.display()))
    }

    /// The error with its table's name, to be listed among errors of other tables. An error about a privilege already names its table.
    pub fn of_table(self, table: TableName<'_>) -> Self {
        match self {
            error @ Error::Privilege { .. } => error,
            error => Error::Refused(format!("{table}: {error}")),
        }
    }
}

impl From<DieselError> for Error {
    fn from(error: DieselError) -> Self {
        Error::Database(error.into())
    }
}

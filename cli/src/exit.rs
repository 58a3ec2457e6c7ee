//! How a command ended, for the shell.

use std::process::ExitCode;

use crate::error::Error;
use crate::output;

/// Not an error: that is exit code 1, and wrong usage 2. The worse is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use]
pub enum Ended {
    Done,
    /// Something is left over, or was found.
    LeftOver,
    Interrupted,
}

impl Ended {
    /// Of a command that goes on after its last batch. The command line that does so is given if an error or an interrupt ended it.
    pub fn of(error: Option<Error>, go_on: Option<String>, left_over: bool) -> Result<Self, Error> {
        match (error, go_on) {
            (Some(error), Some(go_on)) => Err(Error::Unfinished {
                source: Box::new(error),
                go_on,
            }),
            (Some(error), None) => Err(error),
            (None, Some(go_on)) => {
                output::note(&format!("interrupted: go on with: {go_on}"));
                Ok(Ended::Interrupted)
            }
            (None, None) => Ok(Ended::left_over_if(left_over)),
        }
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

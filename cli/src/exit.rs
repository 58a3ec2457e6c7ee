//! How a command ended, for the shell.

use std::process::ExitCode;

/// Not an error: that is exit code 1, and wrong usage 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Ended {
    Done,
    /// Something is left over, or was found.
    LeftOver,
    Interrupted,
}

impl Ended {
    pub fn left_over_if(something: bool) -> Self {
        match something {
            true => Ended::LeftOver,
            false => Ended::Done,
        }
    }

    /// The worse of two.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Ended::Interrupted, _) | (_, Ended::Interrupted) => Ended::Interrupted,
            (Ended::LeftOver, _) | (_, Ended::LeftOver) => Ended::LeftOver,
            _ => Ended::Done,
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

/// The text of `--help` about it.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    an error; what was committed before it stays, and no total is wrong
  2    wrong usage
  3    something is left over: rows that were busy or whose base does not take its shards (fold, resize), totals that differ
       from the recount (verify) or could not be repaired (backfill), a migration that is missing or out of date
       (generate --locked), triggers that are missing or totals that their columns do not hold (status), problems (doctor)
  130  interrupted (Ctrl-C, SIGTERM): the open batch was finished, and where to go on was printed";

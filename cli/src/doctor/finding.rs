//! The outcome of one check.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// It may be meant so.
    Warning,
    Problem,
}

#[derive(Debug, Serialize)]
pub struct Finding {
    pub level: Level,
    pub check: &'static str,
    pub says: String,
    /// A command, a statement or a sentence.
    pub remedy: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, says: impl Into<String>) -> Self {
        Finding {
            level: Level::Ok,
            check,
            says: says.into(),
            remedy: None,
        }
    }

    pub fn warning(
        check: &'static str,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Finding {
            level: Level::Warning,
            remedy: Some(remedy.into()),
            ..Finding::ok(check, says)
        }
    }

    pub fn problem(
        check: &'static str,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Finding {
            level: Level::Problem,
            ..Finding::warning(check, says, remedy)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        write!(f, "{level:<8} {}: {}", self.check, self.says)?;
        let remedy = self.remedy.iter().flat_map(|remedy| remedy.lines());
        for line in remedy {
            write!(f, "\n         {line}")?;
        }
        Ok(())
    }
}

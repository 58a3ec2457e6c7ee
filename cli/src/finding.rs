//! The finding of a check of a database, and its remedy.

use std::fmt;

use clap::builder::styling::AnsiColor;
use serde::Serialize;

use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// It may be intended.
    Warning,
    Problem,
}

/// The outcome of one check.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub level: Level,
    check: &'static str,
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
        Finding::warning(check, says, remedy).at(Level::Problem)
    }

    /// The same finding at another level.
    pub fn at(self, level: Level) -> Self {
        Finding { level, ..self }
    }

    pub fn is_ok(&self) -> bool {
        self.level == Level::Ok
    }

    /// The text of a finding that is printed alone, with the remedy on separate lines.
    pub fn note(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}\n{remedy}", self.says),
            None => self.says.clone(),
        }
    }
}

impl Finding {
    /// The text for a list, coloured where people read it.
    pub fn painted(&self) -> String {
        let text = self.to_string();
        match self.level {
            Level::Ok => text,
            Level::Warning => output::coloured(text, AnsiColor::Yellow),
            Level::Problem => output::coloured(text, AnsiColor::Red),
        }
    }
}

/// The form in which `doctor` lists it.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        let text = self.note().trim_end().replace('\n', "\n         ");
        write!(f, "{level:<8} {}: {text}", self.check)
    }
}

//! The finding of a check of a database, and its remedy.

use clap::builder::styling::{AnsiColor, Style};
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

    /// The form in which `doctor` lists it.
    pub fn listed(&self) -> String {
        let (level, style) = match self.level {
            Level::Ok => ("ok", Style::new()),
            Level::Warning => ("warning", AnsiColor::Yellow.on_default()),
            Level::Problem => ("problem", AnsiColor::Red.on_default()),
        };
        let text = self.note().trim_end().replace('\n', "\n         ");
        let (gap, level) = (" ".repeat(8 - level.len()), output::styled(level, style));
        format!("{level}{gap} {}: {text}", self.check)
    }

    /// The text of a finding that is printed alone, with the remedy on separate lines.
    pub fn note(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}\n{remedy}", self.says),
            None => self.says.clone(),
        }
    }
}

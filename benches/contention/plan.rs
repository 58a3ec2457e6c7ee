//! The plan of a run, by its arguments.

use std::time::Duration;

use diesel::prelude::*;

use crate::arena::Arena;
use crate::load::Pace;
use crate::shapes::{SHAPES, Shape};
use crate::tasks::TASKS;

/// The sections of a run, in order.
pub const SECTIONS: [&str; 10] = [
    "hot",
    "disks",
    TASKS,
    SHAPES,
    "keys",
    "transactions",
    "limits",
    "reads",
    "snapshot",
    "process",
];

const OPTIONS: &str = "--quick, --only SECTION, --database postgres|mysql|sqlite, --shape TEXT, --rounds N, --slice MS";

/// The arguments: which sections run, on which databases, and for how long.
pub struct Plan {
    pub quick: bool,
    pub pace: Pace,
    /// The one section that runs; all of them if `None`.
    only: Option<String>,
    /// The name of the one database that is measured; all of them if `None`.
    database: Option<&'static str>,
    /// The start of the names of the shapes that are measured.
    shape: String,
}

impl Plan {
    /// Parses the arguments of this process. Cargo adds `--bench`.
    pub fn from_arguments() -> Result<Self, String> {
        let mut plan = Plan {
            quick: false,
            pace: Pace {
                rounds: 3,
                slice: Duration::from_millis(150),
                warm_up: Duration::from_millis(50),
            },
            only: None,
            database: None,
            shape: String::new(),
        };
        let (mut rounds, mut slice) = (None, None);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_default();
            match argument.as_str() {
                "--bench" => {}
                "--quick" => {
                    plan.quick = true;
                    plan.pace = Pace {
                        rounds: 1,
                        slice: Duration::from_millis(40),
                        warm_up: Duration::from_millis(15),
                    };
                }
                "--only" => {
                    let section = value();
                    if !SECTIONS.contains(&section.as_str()) {
                        return Err(format!(
                            "--only {section}: the sections are {}",
                            SECTIONS.join(", ")
                        ));
                    }
                    plan.only = Some(section);
                }
                "--database" => plan.database = Some(database(&value())?),
                "--shape" => {
                    plan.shape = value();
                    if plan.shapes().next().is_none() {
                        return Err(format!(
                            "--shape {}: the shapes are {}",
                            plan.shape,
                            Shape::ALL.map(Shape::name).join("; ")
                        ));
                    }
                }
                "--rounds" => rounds = Some(positive("--rounds", &value())?),
                "--slice" => slice = Some(positive("--slice", &value())?),
                _ => return Err(format!("{argument}: known are {OPTIONS}")),
            }
        }
        // `--quick` may stand after them.
        if let Some(rounds) = rounds {
            plan.pace.rounds = rounds as usize;
        }
        if let Some(milliseconds) = slice {
            plan.pace.slice = Duration::from_millis(milliseconds.into());
        }
        Ok(plan)
    }

    pub fn is_on(&self, database: &str) -> bool {
        self.database.is_none_or(|only| only == database)
    }

    pub fn shapes(&self) -> impl Iterator<Item = Shape> + use<> {
        let start = self.shape.clone();
        let shapes = Shape::ALL.into_iter();
        shapes.filter(move |shape| shape.name().starts_with(&start))
    }

    pub fn has(&self, section: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == section)
    }

    pub fn threads(&self, quick: &'static [usize], full: &'static [usize]) -> &'static [usize] {
        if self.quick { quick } else { full }
    }
}

/// The name that the report gives the database.
fn database(option: &str) -> Result<&'static str, String> {
    match option {
        "postgres" => Ok(PgConnection::NAME),
        "mysql" => Ok(MysqlConnection::NAME),
        "sqlite" => Ok(SqliteConnection::NAME),
        _ => Err(format!("--database {option}: known are {OPTIONS}")),
    }
}

fn positive(option: &str, value: &str) -> Result<u32, String> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{option} {value}: not a positive number")),
    }
}

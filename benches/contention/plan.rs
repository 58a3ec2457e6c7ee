//! The plan of a run, by its arguments.

use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded_benches::names::{
    DISKS, HOT, LONG, PROCESS, READS, SHAPES, SNAPSHOT, TASKS, TOP,
};

use crate::arena::Arena;
use crate::load::Pace;
use crate::shapes::Shape;

/// The sections of a run, in order.
pub const SECTIONS: [&str; 12] = [
    HOT,
    DISKS,
    TASKS,
    SHAPES,
    "keys",
    "transactions",
    "limits",
    READS,
    TOP,
    SNAPSHOT,
    PROCESS,
    LONG,
];

const OPTIONS: &str = "--quick, --only SECTION, --database postgres|mysql|sqlite, --shape TEXT, --rounds N, --slice MS, --minutes N, --publish";

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
    /// The time of the section [`LONG`].
    minutes: u32,
    /// Whether the measurements replace those in the report that is published.
    pub publish: bool,
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
            minutes: 30,
            publish: false,
        };
        let (mut rounds, mut slice, mut minutes) = (None, None, None);
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
                "--publish" => plan.publish = true,
                "--minutes" => minutes = Some(positive("--minutes", &value())?),
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
        if let Some(minutes) = minutes {
            if plan.only.as_deref() != Some(LONG) {
                return Err(format!("--minutes {minutes}: only with --only {LONG}"));
            }
            plan.minutes = minutes;
        }
        if plan.publish && !plan.shape.is_empty() {
            return Err("--shape measures a part of a section: it cannot be published".into());
        }
        Ok(plan)
    }

    /// The pace of the long run: slices of a minute and more if there is time, so that checkpoints and vacuums fall into them.
    pub fn long_pace(&self, contenders: usize) -> Pace {
        let databases = if self.database.is_some() { 1 } else { 2 };
        let time = Duration::from_secs(60 * u64::from(self.minutes));
        let time = time / databases / contenders as u32;
        let rounds = (time.as_secs() / 60).max(1);
        Pace {
            rounds: rounds as usize,
            slice: time / rounds as u32,
            warm_up: Duration::from_secs(1),
        }
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
        match &self.only {
            Some(only) => only == section,
            None => section != LONG,
        }
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

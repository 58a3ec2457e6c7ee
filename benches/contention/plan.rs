//! The plan of a run, by its arguments.

use std::time::Duration;

use crate::load::Pace;
use crate::tasks::TASKS;

/// The sections of a run, in order.
pub const SECTIONS: [&str; 9] = [
    "hot",
    "disks",
    TASKS,
    "keys",
    "transactions",
    "limits",
    "reads",
    "snapshot",
    "process",
];

/// The arguments: which sections run, and for how long.
pub struct Plan {
    pub quick: bool,
    pub pace: Pace,
    /// The one section that runs; all of them if `None`.
    only: Option<String>,
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
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
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
                    let section = arguments.next().unwrap_or_default();
                    if !SECTIONS.contains(&section.as_str()) {
                        return Err(format!(
                            "--only {section}: the sections are {}",
                            SECTIONS.join(", ")
                        ));
                    }
                    plan.only = Some(section);
                }
                _ => return Err(format!("{argument}: known are --quick and --only SECTION")),
            }
        }
        Ok(plan)
    }

    pub fn has(&self, section: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == section)
    }

    pub fn threads(&self, quick: &'static [usize], full: &'static [usize]) -> &'static [usize] {
        if self.quick { quick } else { full }
    }
}

//! The history: every client's operations and their outcomes.
//!
//! Each client appends to a file of its own, and writes a line of JSON before each call and after it. It goes on only when the
//! line is written. So the log of a killed client can be read: a call without an end may have happened.
//!
//! Times are those of the system's monotonic clock, which all processes of a machine share. A client reads the clock before the
//! call and after it. So if the log says that one operation ended before another began, it did.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::operation::{Answer, Operation, Refused};

/// Nanoseconds of the system's monotonic clock.
pub type Moment = u64;

pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    let nanoseconds = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    Moment::try_from(nanoseconds).expect("the clock began at zero")
}

/// The time between the beginning of an operation and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub began: Moment,
    pub ended: Moment,
}

impl Span {
    /// After everything.
    pub const END: Span = Span {
        began: Moment::MAX,
        ended: Moment::MAX,
    };
}

/// A line of a log.
#[derive(Debug, Serialize, Deserialize)]
struct Event {
    at: Moment,
    /// The number of the operation within its client.
    number: u64,
    /// The nanoseconds that the call took, without the logging; 0 in the line before the call.
    took: u64,
    what: What,
}

#[derive(Debug, Serialize, Deserialize)]
enum What {
    Invoke(Operation),
    Ok(Answer),
    Refused(Refused),
}

/// The log of one client.
#[derive(Debug)]
pub struct Log {
    file: File,
    number: u64,
}

impl Log {
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)?;
        Ok(Log { file, number: 0 })
    }

    /// Runs `operation` by `call`, and writes a line before it and after it.
    pub fn record(
        &mut self,
        operation: &Operation,
        call: impl FnOnce(&Operation) -> Result<Answer, Refused>,
    ) -> io::Result<Result<Answer, Refused>> {
        self.number += 1;
        self.write(What::Invoke(operation.clone()), Duration::ZERO)?;
        let began = Instant::now();
        let result = call(operation);
        let took = began.elapsed();
        let what = result.clone().map_or_else(What::Refused, What::Ok);
        self.write(what, took)?;
        Ok(result)
    }

    /// Writes a line by a single `write`, which a kill does not interrupt.
    fn write(&mut self, what: What, took: Duration) -> io::Result<()> {
        let event = Event {
            at: now(),
            number: self.number,
            took: u64::try_from(took.as_nanos()).expect("less than centuries"),
            what,
        };
        let mut line = serde_json::to_vec(&event)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

/// The outcome of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It happened, and this is its answer.
    Ok(Answer),
    /// It did not happen.
    Failed(Refused),
    /// It may have happened, or may still happen. There is no error if its client was killed.
    Unknown(Option<Refused>),
}

/// One operation of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The client's name: the stem of its log's name.
    pub client: String,
    /// The number of the operation within its client.
    pub number: u64,
    pub operation: Operation,
    /// It ended at `Moment::MAX` if it never did.
    pub span: Span,
    /// The time of the call without the logging; zero if it never ended.
    pub took: Duration,
    pub outcome: Outcome,
}

impl Done {
    pub fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Ok(_))
    }

    pub fn may_have_happened(&self) -> bool {
        !matches!(self.outcome, Outcome::Failed(_))
    }

    /// The number of its client among those of the round.
    pub fn client_number(&self) -> u16 {
        self.client.parse().expect("a client's number")
    }

    /// Names it by its place in the logs, and by its kind.
    pub fn at(&self) -> String {
        let (number, client) = (self.number, &self.client);
        let kind = self.operation.kind();
        format!("operation {number} of client {client}, {kind}")
    }
}

/// The operations of all clients, in the order in which they began.
#[derive(Debug, Clone)]
pub struct History {
    pub operations: Vec<Done>,
}

impl History {
    /// Reads all logs in `folder`.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let mut operations = vec![];
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension() == Some("jsonl".as_ref()) {
                let client = path.file_stem().unwrap_or_default().to_string_lossy();
                operations.extend(read_client(&client, &fs::read_to_string(&path)?)?);
            }
        }
        operations.sort_by_key(|done: &Done| done.span.began);
        Ok(History { operations })
    }
}

fn read_client(client: &str, text: &str) -> io::Result<Vec<Done>> {
    let mut operations: BTreeMap<u64, Done> = BTreeMap::new();
    // A kill may have cut the last line off: then its call was not made, or its end is not known.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in complete.lines() {
        let event: Event = serde_json::from_str(line)?;
        let outcome = match event.what {
            What::Invoke(operation) => {
                let done = Done {
                    client: client.to_owned(),
                    number: event.number,
                    operation,
                    span: Span {
                        began: event.at,
                        ended: Moment::MAX,
                    },
                    took: Duration::ZERO,
                    outcome: Outcome::Unknown(None),
                };
                operations.insert(event.number, done);
                continue;
            }
            What::Ok(answer) => Outcome::Ok(answer),
            What::Refused(refused) if refused.unknown => Outcome::Unknown(Some(refused)),
            What::Refused(refused) => Outcome::Failed(refused),
        };
        let begun = operations.get_mut(&event.number);
        let never = || io::Error::other(format!("{} ends and never began", event.number));
        let begun = begun.ok_or_else(never)?;
        begun.span.ended = event.at;
        begun.took = Duration::from_nanos(event.took);
        begun.outcome = outcome;
    }
    Ok(operations.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{By, On};
    use tempfile::TempDir;

    fn count(n: i64) -> Operation {
        Operation::count(On::Row(1), By::Update, n)
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = TempDir::new().unwrap();
        let mut log = Log::create(&folder.path().join("a.jsonl")).unwrap();
        let refused = |unknown| Refused {
            unknown,
            kind: "Lost".into(),
            text: "gone".into(),
        };
        for result in [Ok(Answer::Rows(1)), Err(refused(false)), Err(refused(true))] {
            let given = log.record(&count(7), |_| result.clone()).unwrap();
            assert_eq!(given, result);
        }
        let history = History::read(folder.path()).unwrap();
        let outcomes = history.operations.iter().map(|done| &done.outcome);
        assert_eq!(
            outcomes.collect::<Vec<_>>(),
            [
                &Outcome::Ok(Answer::Rows(1)),
                &Outcome::Failed(refused(false)),
                &Outcome::Unknown(Some(refused(true)))
            ]
        );
        for done in &history.operations {
            assert!(done.span.began <= done.span.ended && done.span.ended < Moment::MAX);
            assert_eq!(done.operation, count(7));
        }
    }

    /// Wherever a kill cuts the file, the complete lines can be read, and a call without an end may have happened.
    #[test]
    fn a_log_that_is_cut_off_can_be_read() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.jsonl");
        let mut log = Log::create(&path).unwrap();
        for n in [1, 2] {
            let done = log.record(&count(n), |_| Ok(Answer::Rows(1)));
            done.unwrap().unwrap();
        }
        let whole = fs::read_to_string(&path).unwrap();
        let ends: Vec<_> = whole.match_indices('\n').map(|(end, _)| end + 1).collect();
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let history = History::read(folder.path()).unwrap();
            let lines = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(history.operations.len(), lines.div_ceil(2), "{length}");
            let ended = history.operations.iter().filter(|done| done.is_ok());
            assert_eq!(ended.count(), lines / 2, "{length}");
        }
    }
}

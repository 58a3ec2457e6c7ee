//! The judgement of a history.

use super::finding::Finding;
use crate::history::{History, Outcome};
use crate::store::NO_CONNECTION;

/// The checker's findings, and the numbers of operations that it checked.
#[derive(Debug, Clone)]
pub struct Judgement {
    pub findings: Vec<Finding>,
    pub ok: usize,
    pub failed: usize,
    pub unknown: usize,
    /// The number of totals that were compared with their bounds.
    pub reads: usize,
}

impl Judgement {
    /// Counts the operations of a history, with no findings yet.
    pub(crate) fn of<O, A>(history: &History<O, A>) -> Self {
        let mut judgement = Judgement {
            findings: vec![],
            ok: 0,
            failed: 0,
            unknown: 0,
            reads: 0,
        };
        for done in &history.operations {
            *match done.outcome {
                Outcome::Ok(_) => &mut judgement.ok,
                Outcome::Failed(_) => &mut judgement.failed,
                Outcome::Unknown(_) => &mut judgement.unknown,
            } += 1;
        }
        judgement
    }
}

/// The kinds of errors that the library's own operations may report under faults. Each tells the outcome, or that it is unknown.
pub(crate) const TOLD: [&str; 7] = [
    "ConflictPersisted",
    "ConnectionLost",
    "DeadlinePassed",
    "DiskFull",
    "NodeNotReady",
    "OutcomeUnknown",
    NO_CONNECTION,
];

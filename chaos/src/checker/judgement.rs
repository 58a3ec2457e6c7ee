//! The judgement of a history.

use super::finding::Finding;
use crate::history::{History, Outcome};
use crate::store::NO_CONNECTION;

/// What the checker found, and how much it looked at.
#[derive(Debug, Clone)]
pub struct Judgement<F = Finding> {
    pub findings: Vec<F>,
    pub ok: usize,
    pub failed: usize,
    pub unknown: usize,
    /// Reads that were compared with the bounds.
    pub reads: usize,
}

impl<F> Judgement<F> {
    /// Counts the operations; nothing is found yet.
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

/// The kinds of errors by which the library may tell under faults what became of an operation of its own.
pub(crate) const TOLD: [&str; 6] = [
    "ConflictPersisted",
    "ConnectionLost",
    "DeadlinePassed",
    "DiskFull",
    "OutcomeUnknown",
    NO_CONNECTION,
];

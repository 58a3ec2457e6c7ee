//! Those who send statements: writers, or the workers of coalescers.

/// The steps of a count that take a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Up to the lock.
    Prepare,
    /// From the lock to the flush.
    Write,
    /// From the flush to the answer.
    Finish,
    /// The whole work of a writer that has a coalescer.
    Add,
}

#[derive(Debug, Clone, Default)]
pub struct Actor {
    pub process: usize,
    /// Its number among the writers of its process.
    pub number: usize,
    pub shard: usize,
    /// The rank that it holds in its process.
    pub rank: Option<usize>,
    /// When a writer's count began.
    pub began: u64,
    /// The writers whose counts a worker's batch carries.
    pub carries: Vec<usize>,
    /// When it began to wait for a lock or for a flush.
    pub since: u64,
}

impl Actor {
    pub fn new(process: usize, number: usize) -> Self {
        Actor {
            process,
            number,
            ..Actor::default()
        }
    }
}

//! Who counts, and on which shards.

/// How a count chooses its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// There is one row, as without shards.
    OneRow,
    /// Any shard.
    Random,
    /// Each writer has its own. Those of a process are neighbours, and begin anywhere.
    Striped,
    /// The lowest rank of a hot row that is free in the process. The ranks of a process are neighbours, and begin anywhere.
    Adaptive,
    /// Each process has a coalescer, with a shard of its own.
    Coalesced,
}

/// Writers that count on one hot row, each as soon as its last count is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub processes: usize,
    /// The writers of each process.
    pub writers: usize,
    /// The most shards of the row.
    pub shards: usize,
    pub choice: Choice,
}

impl Load {
    /// All writers.
    pub fn all_writers(&self) -> usize {
        self.processes * self.writers
    }

    /// The rows that counts may go to.
    pub(super) fn rows(&self) -> usize {
        match self.choice {
            Choice::OneRow => 1,
            _ => self.shards,
        }
    }

    /// The shard of a rank in a process that begins at `offset`. Rank 0 is the same shard in each process, and comes last.
    pub(super) fn shard_of_rank(&self, rank: usize, offset: usize) -> usize {
        let others = self.shards - 1;
        match rank < others {
            true => 1 + (offset + rank) % others,
            false => 0,
        }
    }
}

//! Sessions: one operation each, at a step of it.

use crate::database::Mode;
use crate::outcome::Outcome;
use crate::rows::{Key, Place, RowId};

/// A session that carries out one operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Session {
    /// The step to take next.
    pub step: Step,
    /// The rows that the statement of this step found when it began, if it waits.
    pub waiting: Option<Vec<(Place, RowId)>>,
    /// The lock for which it waits.
    pub blocked_at: Option<(Place, Mode)>,
    /// The operation's variables.
    pub memory: Memory,
    /// The number of this attempt, from 1.
    pub attempt: u8,
    /// The operation's outcome, once it has ended.
    pub outcome: Option<Outcome>,
}

/// An operation's variables.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Memory {
    /// The parents that are held.
    pub held: Vec<Key>,
    /// `Held::shard`: the one shard that is held, or all.
    pub only: Option<u8>,
    /// `Held::filled`.
    pub filled: Option<u8>,
    /// The states that were read, in the order of `held`.
    pub states: Vec<State>,
    /// The states that the next `check` expects.
    pub expected: Vec<State>,
    /// The number of parents counted.
    pub counted: u8,
    /// The missing shard was created.
    pub created: bool,
    /// The total on which an exchange decided, with its own count.
    pub total: i8,
    /// The number of the last batch.
    pub batch: i8,
    /// The number of the batch whose COMMIT was not answered.
    pub sent: i8,
    /// At some step there was no parent.
    pub met_no_parent: bool,
}

/// The values of a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// Its base.
    pub base: i8,
    /// The sum of its shards.
    pub shards: i8,
}

/// A step: one statement, by its name in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The application begins a transaction of its own and reads in it.
    CallersBegin,
    /// `Statement::CountByKey`.
    CountByKey,
    /// `Statement::Create`, the SQL of `CreateShards`.
    CreateShards,
    /// `begun.check`: whether the transaction is still there.
    CheckTransaction,
    /// `COMMIT`.
    Commit,
    /// `Held::lock_parents`.
    LockParents,
    /// `Locked::lock_shards`.
    LockShards,
    /// `Held::not_locked`.
    NotLocked,
    /// `Locked::states`, before anything is written.
    States,
    /// `AddShardsToBases`, in `Locked::fold`.
    AddShardsToBases,
    /// The first `check` of `Locked::fold`.
    CheckAdded,
    /// `EmptyShards`.
    EmptyShards,
    /// The last `check`.
    CheckExpected,
    /// `Locked::remove_shards`.
    RemoveShards,
    /// `Locked::write_bases`: its write.
    WriteBases,
    /// `AddWithin`, in `Bounded::add_to_a_shard`.
    AddWithin,
    /// `RowCounter::total`, by which a bounded count may be refused.
    Total,
    /// `ToShares`, in `Bounded::add_to_held`.
    ToShares,
    /// `Held::states`, for the sum that the shards hold by then.
    StatesOfShares,
    /// `Statement::CountOnce`: the key and the count in one statement.
    CountOnce,
    /// `claim`: `InsertKeys` and `FindKeys`.
    Claim,
    /// `release`: `DeleteKeys`.
    Release,
    /// `BatchSender::commit_at_once`.
    CommitAtOnce,
    /// `stamp`, the first statement of a batch's transaction.
    Stamp,
    /// `Token::register`.
    Register,
    /// `Find`, in `Token::was_committed`.
    Find,
    /// `stamp`, in `Token::was_committed`.
    StampBeyond,
    /// The COMMIT of `Token::was_committed`.
    CommitAnswer,
    /// An application deletes a parent.
    DeleteParent,
    /// An application inserts a parent.
    InsertParent,
    /// An application changes a parent's key.
    RenameParent,
    /// The foreign key does the same to the parent's shards.
    Cascade,
    /// An application adds to a base by `diesel::update`.
    AddToBase,
    /// `DeleteOld`, of a coalescer whose clock is wrong.
    DeleteOld,
}

impl Session {
    /// A session before its first step.
    pub fn at(step: Step) -> Self {
        Session {
            step,
            waiting: None,
            blocked_at: None,
            memory: Memory::default(),
            attempt: 1,
            outcome: None,
        }
    }

    /// Ends the operation.
    pub fn end(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
        self.waiting = None;
        self.blocked_at = None;
        self.memory = Memory {
            met_no_parent: self.memory.met_no_parent,
            ..Memory::default()
        };
    }

    /// Goes on with this step.
    pub fn next(&mut self, step: Step) {
        self.waiting = None;
        self.blocked_at = None;
        self.step = step;
    }

    /// Begins another attempt.
    pub fn again(&mut self, step: Step) {
        self.attempt += 1;
        self.restart(step);
    }

    /// Begins at this step, on another connection, and keeps only what outlasts a connection.
    pub fn restart(&mut self, step: Step) {
        self.next(step);
        self.memory = Memory {
            batch: self.memory.batch,
            sent: self.memory.sent,
            met_no_parent: self.memory.met_no_parent,
            ..Memory::default()
        };
    }
}

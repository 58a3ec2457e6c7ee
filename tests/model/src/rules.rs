//! The rules of the code, and the surroundings in which it runs.

/// Everything that operations depend on, beside the rows.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The connections' default level of isolation.
    pub isolation: Isolation,
    /// Policies, triggers and settings.
    pub surroundings: Surroundings,
    /// The fixes that the code is to lack.
    pub left_out: &'static [Fix],
    /// The application's closures swallow errors.
    pub swallows_errors: bool,
}

impl Rules {
    /// Whether the code has this fix.
    pub fn has(&self, fix: Fix) -> bool {
        !self.left_out.contains(&fix)
    }
}

/// Policies, triggers and settings of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surroundings {
    /// Counting connections check foreign keys.
    pub checks_foreign_keys: bool,
    /// Row security shows parents, and hides them from locks and updates.
    pub row_security: bool,
    /// A trigger suppresses updates of parents.
    pub suppresses_updates: bool,
    /// A trigger on updates of parents counts on their first shard.
    pub counts_in_trigger: bool,
}

impl Default for Surroundings {
    fn default() -> Self {
        Surroundings {
            checks_foreign_keys: true,
            row_security: false,
            suppresses_updates: false,
            counts_in_trigger: false,
        }
    }
}

/// A level of isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Isolation {
    /// Each statement reads the rows that are committed. A statement that waited for a row goes on with that very row, if it is still
    /// there, and never sees a row that was inserted meanwhile: `READ COMMITTED` of PostgreSQL.
    #[default]
    ReadCommitted,
    /// The first statement fixes what all of them read. A write or a lock of a row that has changed since fails: `REPEATABLE READ` of
    /// PostgreSQL, and of MariaDB with `innodb_snapshot_isolation`.
    Snapshot,
    /// The first plain read fixes what plain reads see. Writes and locks take the newest rows, unchecked: `REPEATABLE READ` of InnoDB.
    SnapshotUnchecked,
}

impl Isolation {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Isolation::ReadCommitted,
        Isolation::Snapshot,
        Isolation::SnapshotUnchecked,
    ];
}

/// A rule of the code that prevents a fault. Each can be left out, to see the fault that it prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fix {
    /// `Held::lock` works only on parents whose locks it acquired (record 0009).
    OnlyLockedParents,
    /// `Held::lock_parents` locks the parents: the mutex of fold, set and exchange (record 0008).
    LocksParents,
    /// `Locked::lock_shards` locks the shards.
    LocksShards,
    /// Parents are locked before their shards (invariant 6).
    ParentsFirst,
    /// `check` compares bases and shards after the last write (record 0009).
    ChecksWrites,
    /// `check` also compares them between the base's write and the shards' (record 0009).
    ChecksBetweenWrites,
    /// A fold refuses to empty more shards than it locked.
    CountsEmptiedShards,
    /// `RemoveShards` removes empty shards alone.
    RemovesEmptyShards,
    /// `ReadStates` ends in `FOR UPDATE` on MySQL.
    ReadsWhatIsLocked,
    /// Own transactions that hold parents are `READ COMMITTED` (record 0003).
    HoldingIsolation,
    /// A bounded count gives room only to shards that have some (record 0017).
    GivesWhereRoomIs,
    /// A count that meets no shard creates it and counts again (record 0002).
    CreatesMissingShards,
    /// An unknown outcome is reported and not retried (invariant 11).
    ReportsUnknown,
    /// A transaction that might be gone is checked before its COMMIT (record 0003).
    ChecksTransaction,
    /// The idempotency key and the count commit together (record 0011).
    KeyBesideCount,
    /// The key is claimed by an insert, before the count (record 0011).
    ClaimsByInsert,
    /// The key is released where nothing was counted (record 0011).
    ReleasesKey,
    /// `CountOnce` fails where its shard was removed after it looked (record 0011).
    MissingShardFails,
    /// `Token::was_committed` is asked before a batch is sent again (record 0010).
    AsksMark,
    /// It locks the mark, and so waits for the old COMMIT (record 0010).
    LocksMark,
    /// It writes a mark beyond the one that was not committed (record 0010).
    StampsBeyond,
    /// A batch's stamp meets only an earlier mark (record 0010).
    ComparesMark,
    /// A missing mark means an unknown outcome (record 0010).
    MissingMarkIsUnknown,
    /// A future that was dropped inside a transaction breaks its connection (record 0012).
    BreaksDroppedConnection,
}

//! The fixes that the protocols consist of. Each can be left out, to see the fault that it prevents.

/// A rule of the code that prevents a fault.
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

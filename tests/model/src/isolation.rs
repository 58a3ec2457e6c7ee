//! The levels of isolation, as far as the protocols can tell them apart.

/// A level of isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Each statement reads the rows that are committed. A statement that waited for a row goes on with that very row, if it is still
    /// there, and never sees a row that was inserted meanwhile: `READ COMMITTED` of PostgreSQL.
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

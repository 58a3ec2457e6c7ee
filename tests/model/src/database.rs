//! The database: committed rows, transactions with their locks, and what each may read.

use std::collections::BTreeMap;

use crate::ledger::{Effect, Ledger};
use crate::outcome::Failure;
use crate::rows::{Place, Row, RowId};
use crate::rules::Isolation;

/// The connection that a transaction is on.
pub type ConnectionId = usize;

/// The database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Database {
    /// The rows that are committed.
    pub committed: BTreeMap<Place, Row>,
    /// The transactions that are open, by connection.
    pub transactions: BTreeMap<ConnectionId, Transaction>,
    /// The right totals.
    pub ledger: Ledger,
    last_id: RowId,
}

/// An open transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// Its level of isolation.
    pub isolation: Isolation,
    /// A statement failed: nothing of it is left, though it is still open.
    pub is_aborted: bool,
    snapshot: Option<BTreeMap<Place, Row>>,
    /// `None` for a row that it deleted.
    writes: BTreeMap<Place, Option<Row>>,
    locks: BTreeMap<Place, Mode>,
    effects: Vec<Effect>,
}

/// The strength of a lock, by PostgreSQL's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// `FOR KEY SHARE`, of a foreign key.
    KeyShare,
    /// `FOR NO KEY UPDATE`, of an update.
    NoKeyUpdate,
    /// `FOR UPDATE`, and of a delete or a new key.
    Update,
}

impl Mode {
    fn conflicts(self, other: Mode) -> bool {
        match (self, other) {
            (Mode::KeyShare, other) | (other, Mode::KeyShare) => other == Mode::Update,
            _ => true,
        }
    }
}

/// A statement that cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Another transaction holds the lock.
    Blocked(Place, Mode),
    /// The statement fails.
    Failed(Failure),
}

impl Database {
    /// Inserts a committed row.
    pub fn put(&mut self, place: Place, value: i8) {
        let id = self.new_id();
        self.committed.insert(place, Row { id, value });
    }

    /// Begins a transaction.
    pub fn begin(&mut self, connection: ConnectionId, isolation: Isolation) {
        let transaction = Transaction {
            isolation,
            is_aborted: false,
            snapshot: None,
            writes: BTreeMap::new(),
            locks: BTreeMap::new(),
            effects: vec![],
        };
        self.transactions.insert(connection, transaction);
    }

    /// Commits. Rows become visible and effects count; an aborted transaction is rolled back instead.
    pub fn commit(&mut self, connection: ConnectionId) {
        let Some(transaction) = self.transactions.remove(&connection) else {
            return;
        };
        if transaction.is_aborted {
            return;
        }
        for (place, row) in transaction.writes {
            match row {
                Some(row) => {
                    self.committed.insert(place, row);
                    if let Place::Parent(_) = place {
                        self.ledger.totals.entry(row.id).or_insert(row.value);
                    }
                }
                None => drop(self.committed.remove(&place)),
            }
        }
        for effect in transaction.effects {
            self.ledger.enter(effect);
        }
        self.forget_totals();
    }

    /// Rolls back.
    pub fn roll_back(&mut self, connection: ConnectionId) {
        self.transactions.remove(&connection);
    }

    /// Rolls back what a failed statement's transaction did, and leaves it open.
    pub fn abort(&mut self, connection: ConnectionId) {
        if let Some(Transaction { isolation, .. }) = self.transactions.remove(&connection) {
            self.begin(connection, isolation);
            self.transaction(connection).is_aborted = true;
        }
    }

    /// The transaction that is open on a connection.
    ///
    /// # Panics
    /// There is none.
    pub fn transaction(&mut self, connection: ConnectionId) -> &mut Transaction {
        let transaction = self.transactions.get_mut(&connection);
        transaction.expect("a transaction is open")
    }

    /// The row that a plain read sees.
    pub fn read(&mut self, connection: ConnectionId, place: Place) -> Option<Row> {
        self.fix_snapshot(connection, true);
        let transaction = &self.transactions[&connection];
        match (transaction.writes.get(&place), &transaction.snapshot) {
            (Some(own), _) => *own,
            (None, Some(snapshot)) => snapshot.get(&place).copied(),
            (None, None) => self.committed.get(&place).copied(),
        }
    }

    /// The row that a statement finds that is going to lock or write it.
    pub fn find(&mut self, connection: ConnectionId, place: Place) -> Option<Row> {
        match self.transactions[&connection].isolation {
            Isolation::SnapshotUnchecked => self.newest(connection, place),
            _ => self.read(connection, place),
        }
    }

    /// The newest row: the transaction's own, or the committed one.
    pub fn newest(&self, connection: ConnectionId, place: Place) -> Option<Row> {
        match self.transactions[&connection].writes.get(&place) {
            Some(own) => *own,
            None => self.committed.get(&place).copied(),
        }
    }

    /// All places where the transaction or anyone else has a row.
    pub fn places(&self, connection: ConnectionId) -> Vec<Place> {
        let transaction = &self.transactions[&connection];
        let own = transaction.writes.keys();
        let fixed = transaction.snapshot.iter().flat_map(BTreeMap::keys);
        let mut places: Vec<_> = self.committed.keys().chain(own).chain(fixed).collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter().copied().collect()
    }

    /// Locks the row that was found at a place. Returns it as it is by now; `None` if it is no longer there.
    ///
    /// # Errors
    /// The lock is another's, or the row has changed since the snapshot.
    pub fn lock(
        &mut self,
        connection: ConnectionId,
        place: Place,
        found: RowId,
        mode: Mode,
    ) -> Result<Option<Row>, Stop> {
        self.fix_snapshot(connection, false);
        if self.holder(connection, place, mode).is_some() {
            return Err(Stop::Blocked(place, mode));
        }
        let newest = self.newest(connection, place);
        let committed = self.committed.get(&place).copied();
        let transaction = self.transaction(connection);
        let is_own = transaction.writes.contains_key(&place);
        if let (Isolation::Snapshot, Some(snapshot)) =
            (transaction.isolation, &transaction.snapshot)
        {
            let is_old = snapshot.get(&place).copied() != committed;
            if is_old && !is_own && mode != Mode::KeyShare {
                return Err(Stop::Failed(Failure::Serialization));
            }
        }
        let Some(row) = newest.filter(|row| row.id == found) else {
            return Ok(None);
        };
        let held = transaction.locks.entry(place).or_insert(mode);
        *held = mode.max(*held);
        Ok(Some(row))
    }

    /// Inserts a row, unless there is one. Returns whether it did.
    ///
    /// # Errors
    /// Another transaction is inserting or deleting it, or it is newer than the snapshot.
    pub fn insert(
        &mut self,
        connection: ConnectionId,
        place: Place,
        value: i8,
    ) -> Result<bool, Stop> {
        self.fix_snapshot(connection, false);
        if self.holder(connection, place, Mode::Update).is_some()
            && !self.committed_for_good(connection, place)
        {
            return Err(Stop::Blocked(place, Mode::Update));
        }
        if self.newest(connection, place).is_some() {
            let isolation = self.transactions[&connection].isolation;
            return match isolation == Isolation::Snapshot && self.read(connection, place).is_none()
            {
                true => Err(Stop::Failed(Failure::Serialization)),
                false => Ok(false),
            };
        }
        let id = self.new_id();
        self.write(connection, place, Some(Row { id, value }));
        Ok(true)
    }

    /// Whether the transaction inserted the row that is at a place.
    pub fn has_inserted(&self, connection: ConnectionId, place: Place) -> bool {
        let own = self.transactions[&connection].writes.get(&place);
        matches!(own, Some(Some(_)))
    }

    /// Writes a row that is locked, or deletes it.
    pub fn write(&mut self, connection: ConnectionId, place: Place, row: Option<Row>) {
        let transaction = self.transaction(connection);
        let mode = match (place, row) {
            (Place::Parent(_), Some(_)) => Mode::NoKeyUpdate,
            _ => Mode::Update,
        };
        let held = transaction.locks.entry(place).or_insert(mode);
        *held = mode.max(*held);
        transaction.writes.insert(place, row);
    }

    /// Records the effect that the transaction has if it commits.
    pub fn record(&mut self, connection: ConnectionId, effect: Effect) {
        self.transaction(connection).effects.push(effect);
    }

    /// The transaction whose lock is in the way.
    pub fn holder(
        &self,
        connection: ConnectionId,
        place: Place,
        mode: Mode,
    ) -> Option<ConnectionId> {
        let mut others = self
            .transactions
            .iter()
            .filter(|(id, _)| **id != connection);
        let holds = |transaction: &Transaction| {
            let held = transaction.locks.get(&place);
            held.is_some_and(|held| held.conflicts(mode))
        };
        let holder = others.find(|(_, transaction)| holds(transaction));
        holder.map(|(id, _)| *id)
    }

    /// A row is committed, and whoever has it locked does not delete it: an insert finds it without waiting.
    fn committed_for_good(&self, connection: ConnectionId, place: Place) -> bool {
        let mut others = self
            .transactions
            .iter()
            .filter(|(id, _)| **id != connection);
        self.committed.contains_key(&place)
            && others.all(|(_, other)| other.writes.get(&place) != Some(&None))
    }

    fn fix_snapshot(&mut self, connection: ConnectionId, reads: bool) {
        let committed = &self.committed;
        let Some(transaction) = self.transactions.get_mut(&connection) else {
            return;
        };
        let fixes = match transaction.isolation {
            Isolation::ReadCommitted => false,
            Isolation::Snapshot => true,
            Isolation::SnapshotUnchecked => reads,
        };
        if fixes {
            let snapshot = &mut transaction.snapshot;
            snapshot.get_or_insert_with(|| committed.clone());
        }
    }

    fn forget_totals(&mut self) {
        let committed = &self.committed;
        let is_there = |id: &RowId| {
            let mut rows = committed.iter();
            rows.any(|(place, row)| matches!(place, Place::Parent(_)) && row.id == *id)
        };
        self.ledger.totals.retain(|id, _| is_there(id));
    }

    fn new_id(&mut self) -> RowId {
        self.last_id += 1;
        self.last_id
    }
}

//! One step of one session: the statements that all operations share.

use crate::database::{ConnectionId, Database, Mode, Stop};
use crate::ledger::{Change, Effect};
use crate::outcome::{Failure, Outcome};
use crate::rows::{Key, Place, Row};
use crate::rules::{Fix, Isolation, Rules};
use crate::session::{Session, Step};

/// A session's turn.
pub struct Turn<'a> {
    /// The rules and the surroundings.
    pub rules: &'a Rules,
    /// The database.
    pub database: &'a mut Database,
    /// The session, and its number.
    pub session: &'a mut Session,
    /// Its number, by which effects are told apart.
    pub number: usize,
    /// The connection that it is on.
    pub connection: ConnectionId,
    /// Another session left its transaction open on this connection.
    pub is_left_open: bool,
}

/// The result of a step that may wait or fail.
pub type Stepped = Result<(), Stop>;

impl Turn<'_> {
    /// Whether the code has this fix.
    pub fn has(&self, fix: Fix) -> bool {
        self.rules.has(fix)
    }

    /// Goes on with this step.
    pub fn next(&mut self, step: Step) {
        self.session.next(step);
    }

    /// Ends the operation; a transaction that is still open is rolled back.
    pub fn end(&mut self, outcome: Outcome) {
        self.database.roll_back(self.connection);
        self.session.end(outcome);
    }

    /// Commits, and ends the operation.
    pub fn commit(&mut self, outcome: Outcome) {
        self.database.commit(self.connection);
        self.session.end(outcome);
    }

    /// The statement fails by this error, which is reported.
    pub fn fail<T>(&self, failure: Failure) -> Result<T, Stop> {
        Err(Stop::Failed(failure))
    }

    /// Whether a transaction is open.
    pub fn is_inside(&self) -> bool {
        self.database.transactions.contains_key(&self.connection)
    }

    /// Begins a transaction at this level, unless this turn goes on with one.
    pub fn begin(&mut self, isolation: Isolation) {
        if !self.is_inside() {
            self.database.begin(self.connection, isolation);
        }
    }

    /// Runs a statement that commits by itself.
    pub fn at_once<T>(
        &mut self,
        statement: impl FnOnce(&mut Self) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.begin(self.rules.isolation);
        let done = statement(self)?;
        if !self.is_left_open {
            self.database.commit(self.connection);
        }
        Ok(done)
    }

    /// The row that a plain read sees.
    pub fn read(&mut self, place: Place) -> Option<Row> {
        self.database.read(self.connection, place)
    }

    /// Fixes which rows this statement has found, if it has not begun before.
    pub fn find(&mut self, places: impl IntoIterator<Item = Place>) {
        let found = places.into_iter().filter_map(|place| {
            let row = self.database.find(self.connection, place)?;
            Some((place, row.id))
        });
        let found: Vec<_> = found.collect();
        let re_evaluates =
            self.database.transactions[&self.connection].isolation == Isolation::SnapshotUnchecked;
        match &mut self.session.waiting {
            Some(_) if !re_evaluates => {}
            waiting => *waiting = Some(found),
        }
    }

    /// Locks the rows that the statement found, in their order. Returns those that are still there.
    pub fn lock_found(&mut self, mode: Mode) -> Result<Vec<(Place, Row)>, Stop> {
        let found = self.session.waiting.clone().unwrap_or_default();
        let mut locked = vec![];
        for (place, id) in found {
            if let Some(row) = self.database.lock(self.connection, place, id, mode)? {
                locked.push((place, row));
            }
        }
        self.session.waiting = None;
        Ok(locked)
    }

    /// Finds rows and locks them.
    pub fn lock(
        &mut self,
        places: impl IntoIterator<Item = Place>,
        mode: Mode,
    ) -> Result<Vec<(Place, Row)>, Stop> {
        self.find(places);
        self.lock_found(mode)
    }

    /// Writes a value to a row that is locked.
    pub fn write(&mut self, place: Place, row: Row, value: i8) {
        let row = Row { value, ..row };
        self.database.write(self.connection, place, Some(row));
    }

    /// The places of the shards of these parents, in the order of keys.
    pub fn shards_of(&self, keys: &[Key]) -> Vec<Place> {
        let mut places = self.database.places(self.connection);
        places.retain(|place| {
            let parent = place.parent_of_shard();
            parent.is_some_and(|key| keys.contains(&key))
        });
        places
    }

    /// Records the effect of this operation on a parent.
    pub fn record(&mut self, key: Key, change: Change) {
        let Some(parent) = self.database.newest(self.connection, Place::Parent(key)) else {
            return;
        };
        let effect = Effect {
            session: self.number,
            parent: parent.id,
            change,
        };
        self.database.record(self.connection, effect);
    }

    /// `CountByKey`: adds to a shard. The number of rows.
    pub fn count_by_key(&mut self, key: Key, shard: u8, n: i8) -> Result<u8, Stop> {
        self.note_parent(key);
        self.find([Place::Shard(key, shard)]);
        self.count_found(key, n)
    }

    /// Adds to the shard that the statement found.
    pub fn count_found(&mut self, key: Key, n: i8) -> Result<u8, Stop> {
        let Some((place, row)) = self.lock_found(Mode::NoKeyUpdate)?.pop() else {
            return Ok(0);
        };
        self.write(place, row, row.value + n);
        self.record(key, Change::Add(n));
        Ok(1)
    }

    /// `CreateShards`: inserts an empty shard unless there is one. Returns the number of parents that it met.
    pub fn create_shard(&mut self, key: Key, shard: u8) -> Result<u8, Stop> {
        self.note_parent(key);
        self.find([Place::Parent(key)]);
        if self.session.waiting.as_ref().is_none_or(Vec::is_empty) {
            self.session.waiting = None;
            return Ok(0);
        }
        let place = Place::Shard(key, shard);
        let is_there = self.database.newest(self.connection, place).is_some();
        if !is_there && self.rules.surroundings.checks_foreign_keys {
            let parents = self.lock_found(Mode::KeyShare)?;
            if parents.is_empty() {
                return self.fail(Failure::ParentGone);
            }
        }
        self.database.insert(self.connection, place, 0)?;
        self.session.waiting = None;
        Ok(1)
    }

    /// Notes whether there is no such parent now.
    pub fn note_parent(&mut self, key: Key) {
        let parent = self.database.committed.get(&Place::Parent(key));
        self.session.memory.met_no_parent |= parent.is_none();
    }
}

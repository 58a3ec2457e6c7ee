//! Parents that are held with their shards, as in `engine::hold`.

use crate::database::Mode;
use crate::database::Stop;
use crate::ledger::Change;
use crate::outcome::Failure;
use crate::rows::{Key, Place, Row};
use crate::rules::{Fix, Isolation};
use crate::session::State;
use crate::turn::{Stepped, Turn};

/// The level of a transaction that holds parents.
pub(super) fn begin_holding(turn: &mut Turn<'_>) {
    let isolation = match turn.has(Fix::HoldingIsolation) {
        true => Isolation::ReadCommitted,
        false => turn.rules.isolation,
    };
    turn.begin(isolation);
}

/// `Held::lock_parents`: locks the parents that are there, and keeps the keys of those that it locked.
pub(super) fn lock_parents(turn: &mut Turn<'_>, keys: &[Key]) -> Stepped {
    let places = keys.iter().map(|key| Place::Parent(*key));
    keys.iter().for_each(|key| turn.note_parent(*key));
    turn.find(places);
    let locked = match (
        turn.rules.surroundings.row_security,
        turn.has(Fix::LocksParents),
    ) {
        (true, _) => vec![],
        (false, true) => turn.lock_found(Mode::Update)?,
        (false, false) => {
            let found = turn.session.waiting.take();
            let found = found.unwrap_or_default().into_iter();
            found
                .map(|(place, id)| (place, Row { id, value: 0 }))
                .collect()
        }
    };
    let held = match turn.has(Fix::OnlyLockedParents) {
        true => keys_of(&locked),
        false => keys.to_vec(),
    };
    turn.session.memory.held = held;
    Ok(())
}

fn keys_of(rows: &[(Place, Row)]) -> Vec<Key> {
    let keys = rows.iter().filter_map(|(place, _)| match place {
        Place::Parent(key) => Some(*key),
        _ => None,
    });
    keys.collect()
}

/// `Held::not_locked`, by which `lock_all` refuses parents that can be seen and not locked.
pub(super) fn not_locked(turn: &mut Turn<'_>, keys: &[Key]) -> bool {
    let hides = turn.rules.surroundings.row_security;
    let held = turn.session.memory.held.clone();
    let mut others = keys.iter().filter(|key| !held.contains(key));
    hides && others.any(|key| turn.read(Place::Parent(*key)).is_some())
}

/// `Locked::lock_shards`: locks the shards of these parents, and tells how many of them are not empty.
pub(super) fn lock_shards(turn: &mut Turn<'_>, keys: &[Key]) -> Stepped {
    if !turn.has(Fix::LocksShards) {
        return Ok(());
    }
    let places = shards_held(turn, keys);
    let locked = turn.lock(places, Mode::Update)?;
    let filled = locked.iter().filter(|(_, row)| row.value != 0).count();
    turn.session.memory.filled = Some(filled as u8);
    Ok(())
}

/// `HeldRows`: the shards of these parents, or the one of them that is held.
pub(super) fn shards_held(turn: &Turn<'_>, keys: &[Key]) -> Vec<Place> {
    let only = turn.session.memory.only;
    let mut places = turn.shards_of(keys);
    places.retain(|place| match place {
        Place::Shard(_, shard) => only.is_none_or(|only| only == *shard),
        _ => false,
    });
    places
}

/// `Locked::states`: reads bases and sums.
pub(super) fn states(turn: &mut Turn<'_>) -> Result<Vec<State>, Stop> {
    let mut states = vec![];
    for key in turn.session.memory.held.clone() {
        let Some(base) = read_held(turn, Place::Parent(key))? else {
            return turn.fail(Failure::Removed);
        };
        let mut shards = 0;
        for place in shards_held(turn, &[key]) {
            shards += read_held(turn, place)?.map_or(0, |row| row.value);
        }
        states.push(State {
            base: base.value,
            shards,
        });
    }
    Ok(states)
}

/// Reads a row that is held: on InnoDB by a lock, which meets the newest one.
fn read_held(turn: &mut Turn<'_>, place: Place) -> Result<Option<Row>, Stop> {
    let isolation = turn.database.transactions[&turn.connection].isolation;
    let by_lock = isolation == Isolation::SnapshotUnchecked && turn.has(Fix::ReadsWhatIsLocked);
    match by_lock {
        false => Ok(turn.read(place)),
        true => {
            let Some(row) = turn.database.newest(turn.connection, place) else {
                return Ok(None);
            };
            turn.database
                .lock(turn.connection, place, row.id, Mode::Update)
        }
    }
}

/// `check`: compares the states with what is expected.
pub(super) fn check(turn: &mut Turn<'_>) -> Stepped {
    let found = states(turn)?;
    match found == turn.session.memory.expected {
        true => Ok(()),
        false => turn.fail(Failure::Altered),
    }
}

/// Writes the bases of held parents, as far as triggers and policies let it.
pub(super) fn write_bases(
    turn: &mut Turn<'_>,
    keys: &[Key],
    value: impl Fn(&mut Turn<'_>, Key, i8) -> i8,
) -> Stepped {
    let surroundings = turn.rules.surroundings;
    let resisting = surroundings.row_security || surroundings.suppresses_updates;
    let locked = turn.lock(
        keys.iter().map(|key| Place::Parent(*key)),
        Mode::NoKeyUpdate,
    )?;
    for (place, row) in locked {
        let (Place::Parent(key), false) = (place, resisting) else {
            continue;
        };
        let value = value(turn, key, row.value);
        turn.write(place, row, value);
        if surroundings.counts_in_trigger {
            count_in_trigger(turn, key)?;
        }
    }
    Ok(())
}

/// A trigger on the parent counts on one of its shards.
fn count_in_trigger(turn: &mut Turn<'_>, key: Key) -> Stepped {
    let place = Place::Shard(key, 0);
    turn.database.insert(turn.connection, place, 0)?;
    if let Some(row) = turn.database.newest(turn.connection, place) {
        turn.write(place, row, row.value + 1);
        turn.record(key, Change::Add(1));
    }
    Ok(())
}

/// `EmptyShards`: sets the shards to zero that are not.
pub(super) fn empty_shards(turn: &mut Turn<'_>) -> Stepped {
    let mut places = shards_held(turn, &turn.session.memory.held);
    let connection = turn.connection;
    places.retain(|place| {
        let row = turn.database.find(connection, *place);
        row.is_some_and(|row| row.value != 0)
    });
    let locked = turn.lock(places, Mode::NoKeyUpdate)?;
    let mut emptied = 0;
    for (place, row) in locked.into_iter().filter(|(_, row)| row.value != 0) {
        turn.write(place, row, 0);
        emptied += 1;
    }
    let filled = turn.session.memory.filled;
    let appeared = filled.is_some_and(|filled| emptied > filled);
    match appeared && turn.has(Fix::CountsEmptiedShards) {
        true => turn.fail(Failure::Serialization),
        false => Ok(()),
    }
}

/// `Locked::remove_shards`: removes the shards from this number on that are empty.
pub(super) fn remove_shards(turn: &mut Turn<'_>, first: u8) -> Stepped {
    let mut places = shards_held(turn, &turn.session.memory.held);
    places.retain(|place| matches!(place, Place::Shard(_, shard) if *shard >= first));
    let locked = turn.lock(places, Mode::Update)?;
    let only_empty = turn.has(Fix::RemovesEmptyShards);
    for (place, _) in locked
        .iter()
        .filter(|(_, row)| row.value == 0 || !only_empty)
    {
        turn.database.write(turn.connection, *place, None);
    }
    Ok(())
}

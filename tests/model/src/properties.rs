//! Properties of every state, and outcomes that some states reach.

use stateright::Property;

use crate::database::Database;
use crate::operation::Operation;
use crate::outcome::{Failure, Outcome};
use crate::rows::Place;
use crate::scenario::{InFlight, Scenario, World};

/// Base + shards is the total at first, and all that took effect since.
pub const TOTALS: &str = "totals are exact";
/// `Ok` means that it happened once, an error that it did not, an unknown outcome either.
pub const OUTCOMES: &str = "outcomes are true";
/// No bounded count leads out of its bounds.
pub const BOUNDS: &str = "bounds are kept";
/// Counts of one idempotency key take effect once, and a repeat is told so only if they did.
pub const REQUESTS: &str = "a request counts once";
/// `Ok(0)` means that there was no such parent.
pub const PARENTS: &str = "no rows means no parent";
/// Each shard has a parent.
pub const ORPHANS: &str = "shards have parents";
/// Nothing is sent again while the old COMMIT may still take effect.
pub const RESENDS: &str = "nothing is sent twice";
/// No sessions wait for each other in a circle.
pub const DEADLOCKS: &str = "locks have one order";
/// A session that has not ended can go on, now or after another one.
pub const PROGRESS: &str = "nobody waits for ever";

/// Notes the totals of the rows that are there at first.
pub(crate) fn note_totals(database: &mut Database) {
    let parents = database
        .committed
        .iter()
        .filter_map(|(place, row)| match place {
            Place::Parent(key) => Some((row.id, total(database, *key))),
            _ => None,
        });
    database.ledger.totals = parents.collect();
}

/// Base + shards, of what is committed.
fn total(database: &Database, key: u8) -> i8 {
    let rows = database
        .committed
        .iter()
        .filter(|(place, _)| **place == Place::Parent(key) || place.parent_of_shard() == Some(key));
    rows.map(|(_, row)| row.value).sum()
}

pub(crate) fn all() -> Vec<Property<Scenario>> {
    let mut properties = vec![
        Property::always(TOTALS, |_, world: &World| totals_are_exact(world)),
        Property::always(OUTCOMES, outcomes_are_true),
        Property::always(BOUNDS, |_, world: &World| {
            !world.database.ledger.left_bounds
        }),
        Property::always(REQUESTS, requests_count_once),
        Property::always(PARENTS, no_rows_means_no_parent),
        Property::always(ORPHANS, |_, world: &World| shards_have_parents(world)),
        Property::always(RESENDS, nothing_is_sent_twice),
        Property::always(DEADLOCKS, |scenario: &Scenario, world: &World| {
            let mut sessions = 0..world.sessions.len();
            scenario.may_deadlock || !sessions.any(|session| scenario.is_deadlocked(world, session))
        }),
        Property::always(PROGRESS, |scenario: &Scenario, world: &World| {
            scenario.can_go_on(world)
        }),
    ];
    properties.extend(reached());
    properties
}

macro_rules! reached {
    ($($name:ident = $text:literal: $outcome:pat,)*) => {
        /// The names of outcomes that scenarios reach.
        pub mod reaches {
            $(#[doc = $text] pub const $name: &str = $text;)*
        }

        fn reached() -> Vec<Property<Scenario>> {
            vec![$(Property::sometimes(reaches::$name, |_, world: &World| {
                world.sessions.iter().any(|session| matches!(session.outcome, Some($outcome)))
            })),*]
        }
    };
}

reached! {
    COUNTED = "Ok": Outcome::Counted(1),
    NO_ROWS = "Ok(0)": Outcome::Counted(0),
    DONE = "Ok of another operation": Outcome::Done,
    REPEATED = "Ok of a repeat": Outcome::Repeated(_),
    REFUSED = "Ok(false)": Outcome::Refused,
    UNKNOWN = "Error::OutcomeUnknown": Outcome::Unknown,
    SERIALIZATION = "Conflict::SerializationFailure": Outcome::Failed(Failure::Serialization),
    LOCK_TIMEOUT = "Conflict::LockTimeout": Outcome::Failed(Failure::LockTimeout),
    DEADLOCK = "Conflict::Deadlock": Outcome::Failed(Failure::Deadlock),
    PARENT_GONE = "Conflict::ParentGone": Outcome::Failed(Failure::ParentGone),
    CONNECTION_LOST = "Error::ConnectionLost": Outcome::Failed(Failure::ConnectionLost),
    ABORTED = "Error::TransactionAborted": Outcome::Failed(Failure::TransactionAborted),
    REUSED = "Error::IdempotencyKeyReused": Outcome::Failed(Failure::IdempotencyKeyReused),
    NOT_LOCKED = "Unfit::NotLocked": Outcome::Failed(Failure::NotLocked),
    REMOVED = "Unfit::Removed": Outcome::Failed(Failure::Removed),
    ALTERED = "Unfit::Altered": Outcome::Failed(Failure::Altered),
    NOT_FOUND = "DieselError::NotFound": Outcome::Failed(Failure::NotFound),
}

fn totals_are_exact(world: &World) -> bool {
    let database = &world.database;
    database.committed.iter().all(|(place, row)| match place {
        Place::Parent(key) => database.ledger.totals.get(&row.id) == Some(&total(database, *key)),
        _ => true,
    })
}

fn outcomes_are_true(scenario: &Scenario, world: &World) -> bool {
    let sessions = world.sessions.iter().enumerate();
    sessions
        .zip(&scenario.operations)
        .all(|((number, session), operation)| {
            let landed = world.database.ledger.landed(number);
            // A client that came again may have counted before.
            let came_again = operation.request().is_some() && session.attempt > 1;
            match session.outcome {
                Some(Outcome::Counted(rows)) => landed == rows,
                Some(Outcome::Failed(_) | Outcome::Refused) if !came_again => landed == 0,
                Some(Outcome::Done) => true,
                _ => landed <= 1,
            }
        })
}

fn requests_count_once(scenario: &Scenario, world: &World) -> bool {
    let requests = scenario.operations.iter().enumerate();
    requests.clone().all(|(number, operation)| {
        let Some(request) = operation.request() else {
            return true;
        };
        let same = requests
            .clone()
            .filter(|(_, other)| other.request() == Some(request));
        let landed: u8 = same
            .map(|(other, _)| world.database.ledger.landed(other))
            .sum();
        match world.sessions[number].outcome {
            Some(Outcome::Repeated(rows)) => landed == rows,
            _ => landed <= 1,
        }
    })
}

fn no_rows_means_no_parent(scenario: &Scenario, world: &World) -> bool {
    let sessions = world.sessions.iter().zip(&scenario.operations);
    sessions
        .into_iter()
        .all(|(session, operation)| match (operation, session.outcome) {
            // A set skips a parent that was replaced while it waited, as an `UPDATE` of PostgreSQL does.
            (Operation::SetTotal(_), _) => true,
            (_, Some(Outcome::Counted(0))) => session.memory.met_no_parent,
            _ => true,
        })
}

fn shards_have_parents(world: &World) -> bool {
    let committed = &world.database.committed;
    let mut parents = committed.keys().filter_map(|place| place.parent_of_shard());
    parents.all(|key| committed.contains_key(&Place::Parent(key)))
}

fn nothing_is_sent_twice(scenario: &Scenario, world: &World) -> bool {
    let is_sent_again = |flight: &InFlight| {
        let session = &world.sessions[flight.number];
        let counts = matches!(
            scenario.operations[flight.number],
            Operation::Count(_) | Operation::Coalescer(_)
        );
        counts
            && session.attempt > flight.session.attempt
            && session.outcome.is_none()
            && !session.step.resolves()
    };
    let flights = world.in_flight.iter().enumerate();
    flights
        .filter(|(_, flight)| is_sent_again(flight))
        .all(|(number, flight)| {
            let before = world.database.ledger.landed(flight.number);
            let mut later = world.clone();
            // Transactions that hold the locks that it needs may be rolled back.
            later
                .database
                .transactions
                .retain(|id, _| *id == flight.connection);
            scenario.land(&mut later, number);
            later.database.ledger.landed(flight.number) == before
        })
}

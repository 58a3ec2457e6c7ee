//! A scenario: sessions with their operations, the rules of the code, the surroundings, and the faults that may strike.

use crate::database::{ConnectionId, Database, Stop};
use crate::operation::Operation;
use crate::outcome::{Failure, Outcome};
use crate::rows::Place;
use crate::rules::{Fix, Rules};
use crate::session::Session;
use crate::turn::Turn;

/// Everything that stays the same while the model runs.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The rules and the surroundings.
    pub rules: Rules,
    /// The rows at the beginning.
    pub rows: Vec<(Place, i8)>,
    /// The operations, one for each session.
    pub operations: Vec<Operation>,
    /// How many connections may be killed before a COMMIT is sent.
    pub kills: u8,
    /// How many connections may be cut while a COMMIT is in flight.
    pub cuts: u8,
    /// How many futures may be dropped.
    pub drops: u8,
    /// The application's transactions may deadlock, as the documentation says.
    pub may_deadlock: bool,
}

/// A state of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    /// The database.
    pub database: Database,
    /// The sessions.
    pub sessions: Vec<Session>,
    /// The connection of each session.
    pub connections: Vec<ConnectionId>,
    /// Connections that a dropped future left inside a transaction, whose next user does not know.
    pub left_open: Vec<ConnectionId>,
    /// The messages whose connections are lost, and which may still arrive.
    pub in_flight: Vec<InFlight>,
    pub(crate) kills: u8,
    pub(crate) cuts: u8,
    pub(crate) drops: u8,
}

/// A step whose answer nobody will receive.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InFlight {
    /// The number of the session that sent it.
    pub number: usize,
    /// The connection that is lost.
    pub connection: ConnectionId,
    /// The session as it was then.
    pub session: Session,
}

impl Scenario {
    /// A scenario without faults, whose code has all fixes.
    pub fn new(rows: &[(Place, i8)], operations: &[Operation]) -> Self {
        Scenario {
            rules: Rules::default(),
            rows: rows.to_vec(),
            operations: operations.to_vec(),
            kills: 0,
            cuts: 0,
            drops: 0,
            may_deadlock: false,
        }
    }

    /// The same with so many connections that may be killed, and so many that may be cut.
    pub fn with_faults(self, kills: u8, cuts: u8) -> Self {
        Scenario {
            kills,
            cuts,
            ..self
        }
    }

    /// The same with these rules.
    pub fn with(self, change: impl FnOnce(&mut Rules)) -> Self {
        let mut scenario = self;
        change(&mut scenario.rules);
        scenario
    }

    /// Whether these sessions wait for each other in a circle.
    pub fn is_deadlocked(&self, world: &World, session: usize) -> bool {
        let mut waits_for = session;
        for _ in 0..world.sessions.len() {
            let Some((place, mode)) = world.sessions[waits_for].blocked_at else {
                return false;
            };
            let own = world.connections[waits_for];
            let holder = world.database.holder(own, place, mode);
            let holder = holder.and_then(|holder| {
                let mut connections = world.connections.iter();
                connections.position(|connection| *connection == holder)
            });
            match holder {
                Some(holder) if holder == session => return true,
                Some(holder) => waits_for = holder,
                None => return false,
            }
        }
        false
    }

    /// Whether all sessions have ended, or something can happen.
    pub fn can_go_on(&self, world: &World) -> bool {
        let mut open = world.sessions.iter().enumerate();
        let goes_on = |(number, session): (usize, &Session)| {
            session.blocked_at.is_none()
                || self.is_deadlocked(world, number)
                || self.is_granted(world, number)
        };
        let all_have_ended = world.sessions.iter().all(|it| it.outcome.is_some());
        all_have_ended
            || !world.in_flight.is_empty()
            || open.any(|(number, it)| it.outcome.is_none() && goes_on((number, it)))
    }

    /// Whether a session's statement, which waited, would not wait now.
    fn is_granted(&self, world: &World, number: usize) -> bool {
        let mut later = world.clone();
        let session = &mut later.sessions[number];
        let connection = world.connections[number];
        self.take(&mut later.database, session, number, connection, false) || later != *world
    }

    /// Takes one step. Returns whether it could be taken.
    pub(crate) fn take(
        &self,
        database: &mut Database,
        session: &mut Session,
        number: usize,
        connection: ConnectionId,
        is_left_open: bool,
    ) -> bool {
        let operation = self.operations[number];
        let mut turn = Turn {
            rules: &self.rules,
            database,
            session,
            number,
            connection,
            is_left_open,
        };
        match operation.take(&mut turn) {
            Ok(()) => true,
            Err(Stop::Blocked(place, mode)) => {
                session.blocked_at = Some((place, mode));
                false
            }
            Err(Stop::Failed(failure)) => {
                operation.failed(&mut turn, failure);
                true
            }
        }
    }

    /// Lets the message of this number arrive. Returns whether it could be carried out.
    pub fn land(&self, world: &mut World, flight: usize) -> bool {
        let InFlight {
            number,
            connection,
            mut session,
        } = world.in_flight.remove(flight);
        let landed = self.take(&mut world.database, &mut session, number, connection, false);
        world.database.roll_back(connection);
        landed
    }
}

impl World {
    fn new_connection(&self) -> ConnectionId {
        let in_flight = self.in_flight.iter().map(|flight| &flight.connection);
        let used: Vec<_> = self.connections.iter().chain(in_flight).collect();
        (0..).find(|id| !used.contains(&id)).unwrap_or(usize::MAX)
    }

    pub(crate) fn cut(&mut self, scenario: &Scenario, number: usize) {
        let connection = self.connections[number];
        self.in_flight.push(InFlight {
            number,
            connection,
            session: self.sessions[number].clone(),
        });
        self.connections[number] = self.new_connection();
        scenario.operations[number].cut(&mut self.sessions[number], &scenario.rules);
        self.cuts -= 1;
    }

    pub(crate) fn drop_future(&mut self, scenario: &Scenario, number: usize) {
        let connection = self.connections[number];
        self.drops -= 1;
        self.sessions[number].end(Outcome::Failed(Failure::ConnectionLost));
        let mut others = 0..self.sessions.len();
        let begins = others.find(|other| {
            *other != number
                && self.sessions[*other] == Session::at(scenario.operations[*other].first())
        });
        match begins {
            Some(other) if !scenario.rules.has(Fix::BreaksDroppedConnection) => {
                self.connections.swap(number, other);
                self.left_open.push(connection);
            }
            _ => self.database.roll_back(connection),
        }
    }
}

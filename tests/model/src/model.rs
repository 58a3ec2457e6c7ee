//! The scenario as a model for the checker: its states and transitions.

use stateright::{Model, Property};

use crate::database::Database;
use crate::outcome::Failure;
use crate::properties;
use crate::scenario::{Scenario, World};
use crate::session::{Session, Step};

/// A transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The session of this number takes its step.
    Take(usize, Step),
    /// The server ends the session's connection, and with it its transaction.
    Kill(usize),
    /// The session's connection is lost while this step's commit is on its way.
    Cut(usize, Step),
    /// The session's future is dropped.
    Drop(usize),
    /// The session is the victim of a deadlock.
    Deadlock(usize),
    /// The message on a lost connection arrives, late.
    Land(usize),
    /// It never arrives, and the server ends the transaction.
    Lose(usize),
}

impl Model for Scenario {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut database = Database::default();
        for (place, value) in &self.rows {
            database.put(*place, *value);
        }
        let sessions = self
            .operations
            .iter()
            .map(|operation| Session::at(operation.first()));
        let sessions: Vec<_> = sessions.collect();
        let mut world = World {
            database,
            connections: (0..sessions.len()).collect(),
            sessions,
            left_open: vec![],
            in_flight: vec![],
            kills: self.kills,
            cuts: self.cuts,
            drops: self.drops,
        };
        properties::note_totals(&mut world.database);
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (number, session) in world.sessions.iter().enumerate() {
            if session.outcome.is_some() {
                continue;
            }
            actions.push(Action::Take(number, session.step));
            let connection = world.connections[number];
            let is_inside = world.database.transactions.contains_key(&connection);
            let commits = self.operations[number].commits(session);
            if world.kills > 0 && is_inside && !commits {
                actions.push(Action::Kill(number));
            }
            if world.drops > 0 && is_inside && !commits {
                actions.push(Action::Drop(number));
            }
            if world.cuts > 0 && commits && session.blocked_at.is_none() {
                actions.push(Action::Cut(number, session.step));
            }
            if self.is_deadlocked(world, number) {
                actions.push(Action::Deadlock(number));
            }
        }
        for flight in 0..world.in_flight.len() {
            actions.push(Action::Land(flight));
            actions.push(Action::Lose(flight));
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Take(number, _) => {
                let connection = world.connections[number];
                let is_left_open = world.left_open.contains(&connection);
                let World {
                    database, sessions, ..
                } = &mut world;
                let session = &mut sessions[number];
                self.take(database, session, number, connection, is_left_open);
                if world == *last {
                    return None; // it still waits
                }
            }
            Action::Kill(number) => {
                world.kills -= 1;
                world.database.roll_back(world.connections[number]);
                let operation = self.operations[number];
                operation.rolled_back(&mut world.sessions[number], Failure::ConnectionLost);
            }
            Action::Deadlock(number) => {
                world.database.roll_back(world.connections[number]);
                let operation = self.operations[number];
                operation.rolled_back(&mut world.sessions[number], Failure::Deadlock);
            }
            Action::Cut(number, _) => world.cut(self, number),
            Action::Drop(number) => world.drop_future(self, number),
            Action::Land(flight) => {
                if !self.land(&mut world, flight) {
                    return None; // it waits for a lock
                }
            }
            Action::Lose(flight) => {
                let lost = world.in_flight.remove(flight);
                world.database.roll_back(lost.connection);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

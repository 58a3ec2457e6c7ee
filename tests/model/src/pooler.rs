//! Kept statements behind a pooler in transaction mode, as in `query_builder::kept`: two clients whose drivers give their statements the
//! same name, and the server's connections, any of which may carry out a client's next transaction.

use stateright::{Model, Property};

/// Every count lands on the table that its client means.
pub const TABLES: &str = "counts land on their own tables";
/// A client sees that its statement was lost: `Error::StatementLost`.
pub const LOST: &str = "Error::StatementLost";
/// A client counts.
pub const COUNTED: &str = "Ok";

/// Clients behind a pooler. The client of a number counts on the table of that number.
#[derive(Debug, Clone)]
pub struct Pooler {
    /// A kept statement has a `TextGuard`: a bind that has to equal a hash of its text.
    pub guards: bool,
    /// How many connections to the server there are.
    pub servers: usize,
    /// How often each client counts.
    pub counts: u8,
}

/// A state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prepared {
    /// The table on which each server connection's statement of the one name counts, if there is one.
    servers: Vec<Option<usize>>,
    clients: [Client; 2],
    /// The counts on each table.
    tables: [u8; 2],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Client {
    /// Its driver takes the statement for prepared.
    has_prepared: bool,
    /// Counts that were acknowledged.
    acknowledged: u8,
    /// Attempts that are left.
    left: u8,
    /// The server reported the statement as another one, or as unknown.
    lost: bool,
}

/// The pooler sends the client's next transaction over a connection to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The client.
    pub client: usize,
    /// The server's connection.
    pub server: usize,
}

impl Model for Pooler {
    type State = Prepared;
    type Action = Sent;

    fn init_states(&self) -> Vec<Prepared> {
        let client = Client {
            left: self.counts,
            ..Client::default()
        };
        vec![Prepared {
            servers: vec![None; self.servers],
            clients: [client.clone(), client],
            tables: [0; 2],
        }]
    }

    fn actions(&self, state: &Prepared, actions: &mut Vec<Sent>) {
        for (client, Client { left, .. }) in state.clients.iter().enumerate() {
            if *left > 0 {
                actions.extend((0..self.servers).map(|server| Sent { client, server }));
            }
        }
    }

    fn next_state(&self, last: &Prepared, Sent { client, server }: Sent) -> Option<Prepared> {
        let mut next = last.clone();
        let Client {
            has_prepared,
            acknowledged,
            left,
            lost,
        } = &mut next.clients[client];
        let prepared = &mut next.servers[server];
        match (*has_prepared, *prepared) {
            (false, None) => {
                *prepared = Some(client);
                *has_prepared = true;
            }
            // "already exists", or "does not exist"
            (false, Some(_)) | (true, None) => {
                *lost = true;
                *left -= 1;
            }
            (true, Some(table)) if table != client && self.guards => {
                *lost = true;
                *left -= 1;
            }
            (true, Some(table)) => {
                next.tables[table] += 1;
                *acknowledged += 1;
                *left -= 1;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TABLES, |_, state: &Prepared| {
                let clients = state.clients.iter().zip(state.tables);
                clients
                    .into_iter()
                    .all(|(client, counts)| client.acknowledged == counts)
            }),
            Property::sometimes(LOST, |_, state: &Prepared| {
                state.clients.iter().any(|client| client.lost)
            }),
            Property::sometimes(COUNTED, |_, state: &Prepared| {
                state.clients.iter().any(|client| client.acknowledged > 0)
            }),
        ]
    }
}

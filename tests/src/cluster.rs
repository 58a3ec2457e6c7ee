//! A cluster of three nodes that all accept writes, of a test's own.

use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::dsl::{select, sql};
use diesel::prelude::*;
use diesel::sql_types::Text;

use crate::ask_until;

/// The nodes of a cluster.
pub const NODES: usize = 3;
/// The database that a test works in.
pub(crate) const DATABASE: &str = "test";

/// A running cluster, which the test may do anything to. It is stopped when it is dropped, and at the latest with this process.
pub trait Cluster: Sync + Sized {
    /// Whether the cluster takes tables with foreign keys.
    const HAS_FOREIGN_KEYS: bool;

    /// Makes the reads of a session wait until its node has applied the commits of the others.
    const WAIT_FOR_OTHERS: &'static str;

    /// A cluster whose nodes are safe from the loss of their processes only together.
    fn start() -> Self;

    /// A cluster whose nodes can be cut off from each other.
    fn start_behind_a_switch() -> Self;

    /// The folder of a node's Unix socket.
    fn folder(&self, node: usize) -> &Path;

    /// How many transactions the nodes have aborted because of others.
    fn conflicts(&self) -> u64;

    /// Ends a node as a crash would.
    fn kill(&self, node: usize);

    /// Starts a node again after [`kill`](Self::kill), and waits until it has the commits of the others.
    fn rejoin(&self, node: usize);

    /// Cuts a node off from the others, not from the test.
    fn cut_off(&self, node: usize);

    /// Reconnects it, and waits until it has the commits of the others.
    fn plug_in(&self, node: usize);

    /// Waits until a node has this many members in its cluster.
    fn wait_for_members(&self, node: usize, members: usize);

    /// Waits until a node that was cut off refuses to write.
    fn wait_until_it_refuses(&self, node: usize);

    /// The query for what a node says of itself.
    fn query(status: &str) -> String;

    /// The end of a node's log.
    fn log(&self, node: usize) -> String;

    /// The database on one of the nodes.
    fn url(&self, node: usize) -> String {
        url_by_socket(self.folder(node), DATABASE)
    }

    fn administrate(&self, node: usize) -> ConnectionResult<MysqlConnection> {
        MysqlConnection::establish(&url_by_socket(self.folder(node), "mysql"))
    }

    /// What a node says of itself: a status variable, or the result of a query.
    fn status(&self, node: usize, of: &str) -> ConnectionResult<String> {
        let value = sql::<Text>(&format!("({})", Self::query(of)));
        let value = select(value).get_result(&mut self.administrate(node)?);
        value.map_err(ConnectionError::CouldntSetupConfiguration)
    }

    /// Waits until a node says this of itself. The start of three servers can be slow on a slow machine.
    fn wait_until(&self, node: usize, of: &str, value: &str) {
        let log = || self.log(node);
        ask_until(log, || match self.status(node, of) {
            Ok(status) if status == value => Ok(()),
            status => Err(format!("{of} of node {node} is {status:?} and not {value}")),
        });
    }

    fn connect(&self, node: usize) -> MysqlConnection {
        let url = self.url(node);
        MysqlConnection::establish(&url).unwrap_or_else(|e| panic!("{url}: {e}"))
    }

    /// A connection whose reads wait until the node has applied the commits of the others.
    fn up_to_date(&self, node: usize) -> MysqlConnection {
        let mut conn = self.connect(node);
        conn.batch_execute(Self::WAIT_FOR_OTHERS)
            .expect("a setting of the session");
        conn
    }
}

/// The address of a database of the server whose Unix socket is in this folder.
pub(crate) fn url_by_socket(folder: &Path, database: &str) -> String {
    let socket = folder.join("socket");
    format!(
        "mysql://root@localhost/{database}?unix_socket={}",
        socket.display()
    )
}

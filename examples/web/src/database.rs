//! The pages' connections, and the threads that they run in.

use std::sync::Arc;

use diesel::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::connection::{AnyConnection, Connections, connect, pool};
use crate::error::PageError;
use crate::{Result, schema};

/// A request waits for its turn without a thread, however many there are.
#[derive(Clone)]
pub struct Database {
    url: String,
    connections: Connections,
    turns: Arc<Semaphore>,
}

impl Database {
    /// Connects, and creates the tables that are missing.
    pub fn open(url: &str) -> Result<Self> {
        let opened = connect(url).and_then(|mut conn| schema::migrate(&mut conn));
        opened.map_err(|error| {
            let error = error.to_string();
            let words: Vec<_> = error.split_whitespace().collect(); // in one line
            let error = words.join(" ");
            format!("DATABASE_URL, which is for the site alone: {error}")
        })?;
        let size = match is_sqlite(url) {
            true => {
                // With its one writer at a time SQLite gains nothing by shards, and by default keeps to one. Here they are to be
                // seen on `/admin`.
                ShardChoice::Striped.set_global();
                4
            }
            false => 16,
        };
        Ok(Database {
            url: url.to_owned(),
            connections: pool(url, size)?,
            turns: Arc::new(Semaphore::new(size as usize)),
        })
    }

    /// Runs `work` on a connection, in a thread that may wait for the database.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut AnyConnection) -> QueryResult<T> + Send + 'static,
    ) -> std::result::Result<T, PageError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(PageError::internal)?;
        let connections = self.connections.clone();
        let worked = spawn_blocking(move || {
            let _turn = turn; // is over when the connection is back in the pool
            let mut conn = connections.get().map_err(PageError::unavailable)?;
            Ok(work(&mut conn).map_err(diesel_sharded::Error::from)?)
        });
        worked.await.map_err(PageError::internal)?
    }

    pub fn is_sqlite(&self) -> bool {
        is_sqlite(&self.url)
    }

    /// A connection beside the pages'.
    pub fn connect(&self) -> Result<AnyConnection> {
        connect(&self.url)
    }

    /// Connections beside the pages', for background work.
    pub fn background(&self) -> Result<Connections> {
        pool(&self.url, 3)
    }
}

fn is_sqlite(url: &str) -> bool {
    !url.contains("://")
}

//! The library on a database, as a client uses it.

use diesel::connection::TransactionManager;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel_sharded::Error;
use diesel_sharded::coalescer::Coalescer;
use std::time::Duration;

use crate::backend::{ChaosConnection, Done};
use crate::operation::{Operation, Refused, Totals};
use crate::store::{NO_CONNECTION, NOT_THERE, Store};

/// A connection, made anew when it is lost, and the coalescer of the process.
pub struct SqlStore<Conn: ChaosConnection> {
    url: String,
    conn: Option<Conn>,
    coalescer: Option<Coalescer<Conn>>,
}

impl<Conn: ChaosConnection> SqlStore<Conn> {
    pub fn new(url: impl Into<String>, coalescer: Option<Coalescer<Conn>>) -> Self {
        SqlStore {
            url: url.into(),
            conn: None,
            coalescer,
        }
    }

    fn connect(&self) -> Result<Conn, Refused> {
        let refused = |text| Refused {
            unknown: false,
            kind: NO_CONNECTION.into(),
            text,
        };
        let mut conn = Conn::establish(&self.url).map_err(|error| refused(error.to_string()))?;
        conn.set_up().map_err(|error| refused(error.to_string()))?;
        Ok(conn)
    }
}

impl<Conn: ChaosConnection> Store for SqlStore<Conn> {
    fn run(&mut self, operation: &Operation) -> Result<Totals, Refused> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.connect()?,
        };
        let done = conn.run(operation, self.coalescer.as_ref());
        // A lost connection is dropped; any other has to be as good as before.
        let lost = |conn: &mut Conn| {
            Conn::TransactionManager::is_broken_transaction_manager(conn) || conn.ping().is_err()
        };
        if done.is_ok() || !lost(&mut conn) {
            self.conn = Some(conn);
        }
        match done {
            Ok(Done::Read(totals)) => Ok(totals),
            Ok(Done::Nothing) => Ok(vec![]),
            Ok(Done::Rows(counted, there)) if counted == there => Ok(vec![]),
            Ok(Done::Rows(counted, there)) => Err(Refused {
                unknown: true,
                kind: NOT_THERE.into(),
                text: format!("{counted} of {there} rows were counted"),
            }),
            Err(error) => Err(refused(&error)),
        }
    }
}

fn refused(error: &Error) -> Refused {
    let text = error.to_string();
    let error = match error {
        Error::InBatch { source } => source,
        error => error,
    };
    let kind = format!("{error:?}");
    let kind = kind.split(|c: char| !c.is_alphanumeric()).next();
    Refused {
        // What TransactionAborted leaves behind depends on the database, says its documentation.
        unknown: matches!(
            error,
            Error::OutcomeUnknown { .. } | Error::TransactionAborted
        ),
        kind: kind.unwrap_or_default().to_owned(),
        text,
    }
}

/// A coalescer over a pool of its own.
pub fn coalescer<Conn: ChaosConnection + Send>(
    url: &str,
    deadline: Duration,
) -> Result<Coalescer<Conn>, Box<dyn std::error::Error + Send + Sync>>
where
    Conn::Backend: diesel_sharded::BackendOf<Conn>,
{
    let pool = Pool::builder()
        .max_size(2)
        .min_idle(Some(0))
        .connection_timeout(deadline)
        .connection_customizer(Box::new(SetUp))
        .build(ConnectionManager::<Conn>::new(url))?;
    Coalescer::builder(pool).deadline(deadline).build()
}

#[derive(Debug)]
struct SetUp;

impl<Conn: ChaosConnection> CustomizeConnection<Conn, diesel::r2d2::Error> for SetUp {
    fn on_acquire(&self, conn: &mut Conn) -> Result<(), diesel::r2d2::Error> {
        conn.set_up().map_err(diesel::r2d2::Error::QueryError)
    }
}

//! A client's access to a database through the library.

use diesel::connection::TransactionManager;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel_sharded::Error;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::combine::Combiner;

use crate::backend::{ChaosConnection, Settings};
use crate::operation::{Answer, By, NO_CONNECTION, Operation, Refused, Store, kind};

/// A connection, which is replaced when it is lost, and the coalescer of the process.
pub struct SqlStore<Conn: ChaosConnection> {
    url: String,
    settings: Settings,
    conn: Result<Conn, String>,
    /// Whether the last operation failed, so that the connection may be lost.
    failed: bool,
    coalescer: Option<Coalescer<Conn>>,
    combiner: Option<Combiner>,
}

impl<Conn: ChaosConnection> SqlStore<Conn> {
    pub fn new(
        url: impl Into<String>,
        settings: Settings,
        coalescer: Option<Coalescer<Conn>>,
    ) -> Self {
        SqlStore {
            url: url.into(),
            settings,
            conn: Err("there was none yet".into()),
            failed: false,
            coalescer,
            combiner: None,
        }
    }

    /// The same, whose connections are admitted to a combiner.
    pub fn combining(mut self, combiner: Option<Combiner>) -> Self {
        self.combiner = combiner;
        self
    }

    /// The connection, if there is one.
    pub fn connection(&mut self) -> Option<&mut Conn> {
        self.conn.as_mut().ok()
    }

    fn connect(&self) -> Result<Conn, String> {
        let mut conn = Conn::establish(&self.url).map_err(|error| error.to_string())?;
        conn.set_up(self.settings)
            .map_err(|error| error.to_string())?;
        if let Some(combiner) = &self.combiner {
            combiner
                .admit(&mut conn)
                .map_err(|error| error.to_string())?;
        }
        Ok(conn)
    }

    fn run_on_connection(&mut self, operation: &Operation) -> Result<Answer, Refused> {
        let conn = self.conn.as_mut().map_err(|error| Refused {
            unknown: false,
            kind: NO_CONNECTION.into(),
            text: error.clone(),
        })?;
        let done = conn.run(operation);
        self.failed = done.is_err();
        done.map_err(|error| refused(&error))
    }
}

impl<Conn: ChaosConnection> Store for SqlStore<Conn> {
    /// Replaces a lost connection. Any other connection must still work.
    fn prepare(&mut self) {
        let is_lost = match &mut self.conn {
            Err(_) => true,
            Ok(_) if !self.failed => false,
            Ok(conn) => {
                Conn::TransactionManager::is_broken_transaction_manager(conn)
                    || conn.ping().is_err()
            }
        };
        if is_lost {
            self.conn = self.connect();
        }
        self.failed = false;
    }

    fn run(&mut self, operation: &Operation) -> Result<Answer, Refused> {
        match operation {
            Operation::Count(count) if count.by == By::Coalescer => {
                let coalescer = self.coalescer.as_ref().expect("the process has one");
                Conn::coalesce(coalescer, count).map_err(|error| refused(&error))
            }
            _ => self.run_on_connection(operation),
        }
    }
}

/// Converts an error to the form that clients log.
fn refused(error: &Error) -> Refused {
    Refused {
        // By its documentation, the effect of TransactionAborted depends on the database, and what is pending may be counted later.
        unknown: matches!(
            error,
            Error::OutcomeUnknown { .. } | Error::TransactionAborted | Error::FlushPending { .. }
        ),
        kind: kind(error),
        text: error.to_string(),
    }
}

/// Creates a coalescer with a pool of its own.
pub fn coalescer<Conn: ChaosConnection>(
    url: &str,
    settings: Settings,
) -> Result<Coalescer<Conn>, Box<dyn std::error::Error + Send + Sync>> {
    let pool = Pool::builder()
        .max_size(2)
        .min_idle(Some(0))
        .connection_timeout(settings.deadline)
        .connection_customizer(Box::new(SetUp(settings)))
        .build(ConnectionManager::<Conn>::new(url))?;
    Coalescer::builder(pool).deadline(settings.deadline).build()
}

#[derive(Debug)]
struct SetUp(Settings);

impl<Conn: ChaosConnection> CustomizeConnection<Conn, diesel::r2d2::Error> for SetUp {
    fn on_acquire(&self, conn: &mut Conn) -> Result<(), diesel::r2d2::Error> {
        conn.set_up(self.0).map_err(diesel::r2d2::Error::QueryError)
    }
}

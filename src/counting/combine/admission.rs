//! Which connections combine without being told: those that were asked what they are, and have not changed since.

use std::sync::atomic::{AtomicBool, Ordering};

use diesel::connection::{Instrumentation, InstrumentationEvent, LoadConnection};
use diesel::result::{Error as DieselError, QueryResult};
use sha2::{Digest, Sha256};

use super::{Combiner, Meeting};
use crate::backend::{BackendOf, Dialect, words};
use crate::connection::{Io, Link, LoadIo, in_any_transaction, now, read};
use crate::error::Error;
use crate::query_builder::text_of_others;
use crate::tables::shards_table::texts;

/// Whether a connection of this process was ever admitted: without one, callers need not look.
static IS_ANY: AtomicBool = AtomicBool::new(false);

pub(super) fn is_any() -> bool {
    IS_ANY.load(Ordering::Relaxed)
}

/// A connection's admission to a combiner. Diesel keeps it as the connection's instrumentation, and tells it each statement.
struct Admission {
    combiner: Combiner,
    /// The hash of what the connection is.
    identity: u128,
    dialect: Dialect,
    standing: Standing,
    /// What it is when the statement that was sent last has succeeded, and when it has failed.
    then_stands: [Standing; 2],
    then: Option<Box<dyn Instrumentation>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Combines,
    /// In a transaction that was begun by text.
    Suspended,
    /// A statement may have changed what the connection is.
    Ended,
}

/// Where those who count on this connection meet others, if it is admitted.
pub(super) fn meeting<M: Io>(link: &mut Link<'_, M>) -> Option<Meeting> {
    if !is_any() || M::is_shared() {
        return None;
    }
    let admission = M::instrumentation(link.conn).downcast_ref::<Admission>()?;
    Some(Meeting {
        combiner: admission.combiner.clone(),
        identity: (admission.standing == Standing::Combines).then_some(admission.identity),
    })
}

/// Whether the connection was admitted, and may not combine at the moment.
pub(super) fn is_barred<M: Io>(link: &mut Link<'_, M>) -> bool {
    meeting(link).is_some_and(|meeting| meeting.identity.is_none())
}

impl Combiner {
    /// Admits a connection: from now on all increments on it combine with those on other connections that this combiner has admitted, and that
    /// are the same: the same server, database, schemas, role and settings. Returns whether the connection combines. An SQLite database that
    /// has no file does not, nor does a connection with temporary tables of SQLite's.
    ///
    /// Call it once for each new connection, where the pool makes it. A combiner is itself a `CustomizeConnection` for Diesel's pool:
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use diesel_sharded::combine::Combiner;
    /// # fn pool(url: &str) -> Result<(), diesel::r2d2::PoolError> {
    /// let pool = Pool::builder()
    ///     .connection_customizer(Box::new(Combiner::new()))
    ///     .build(ConnectionManager::<SqliteConnection>::new(url))?;
    /// # Ok(())
    /// # }
    /// # fn main() -> QueryResult<()> {
    /// let mut alone = SqliteConnection::establish(":memory:").expect("a database");
    /// assert!(!Combiner::new().admit(&mut alone)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ```sql
    /// SELECT CAST(ROW(pg_postmaster_start_time(), …, current_database(), current_user, current_schemas(true), …) AS TEXT)  -- PostgreSQL
    /// ```
    ///
    /// The connection's [instrumentation](diesel::connection::Connection::set_instrumentation) becomes one of this crate, which reads the SQL
    /// of your own statements. It tells everything to the instrumentation that [`instrumented_by`](Self::instrumented_by) says, by default
    /// [Diesel's](diesel::connection::set_default_instrumentation); one that was set on the connection is lost. If you set another one
    /// afterwards, the connection's increments no longer combine. See [`combine`](crate::combine#admission) for what ends an admission.
    ///
    /// # Errors
    /// [`AlreadyInTransaction`](DieselError::AlreadyInTransaction), and an error of the query, as on a server that lacks its functions.
    pub fn admit<Conn, DB>(&self, conn: &mut Conn) -> QueryResult<bool>
    where
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        now(self.admit_on(&mut Link::blocking(conn)))
    }

    /// The asynchronous form of [`admit`](Self::admit). Pools of `diesel_async` make their connections by `ManagerConfig::custom_setup`:
    ///
    /// ```no_run
    /// # use diesel::{ConnectionError, ConnectionResult};
    /// # use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
    /// # use diesel_async::pooled_connection::ManagerConfig;
    /// # use diesel_async::AsyncConnection;
    /// # use diesel_sharded::combine::Combiner;
    /// # type Conn = SyncConnectionWrapper<diesel::SqliteConnection>;
    /// async fn connect(url: String, combiner: Combiner) -> ConnectionResult<Conn> {
    ///     let mut conn = Conn::establish(&url).await?;
    ///     let admitted = combiner.admit_async(&mut conn).await;
    ///     admitted.map_err(ConnectionError::CouldntSetupConfiguration)?;
    ///     Ok(conn)
    /// }
    ///
    /// let combiner = Combiner::new();
    /// let mut config = ManagerConfig::default();
    /// config.custom_setup = Box::new(move |url| Box::pin(connect(url.to_owned(), combiner.clone())));
    /// ```
    ///
    /// # Errors
    /// Those of the blocking form.
    #[cfg(feature = "async")]
    pub fn admit_async<'c, Conn, DB>(
        &'c self,
        conn: &'c mut Conn,
    ) -> crate::connection::BoxFuture<'c, QueryResult<bool>>
    where
        Conn: diesel_async::AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let mut link = Link::awaited(conn);
        Box::pin(async move { self.admit_on(&mut link).await })
    }

    /// The same combiner; connections that it admits tell their events to an instrumentation that `make` returns. By default it is
    /// [Diesel's](diesel::connection::set_default_instrumentation).
    pub fn instrumented_by(mut self, make: fn() -> Option<Box<dyn Instrumentation>>) -> Self {
        self.instrumentation = make;
        self
    }

    async fn admit_on<M: LoadIo>(&self, link: &mut Link<'_, M>) -> QueryResult<bool> {
        if M::is_shared() {
            return Err(Error::SharedConnection.into());
        }
        if in_any_transaction(link).await? {
            return Err(DieselError::AlreadyInTransaction);
        }
        let dialect = link.dialect();
        let answer = read!(link, texts(link, dialect.asks_identity().to_owned()))?;
        let answer = answer.first();
        let hash = Sha256::digest(answer.map_or("", |text| text));
        let (identity, _) = hash.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let standing = match answer {
            Some(_) => Standing::Combines,
            None => Standing::Ended,
        };
        let admission = Admission {
            combiner: self.clone(),
            identity: u128::from_be_bytes(*identity),
            dialect,
            standing,
            then_stands: [standing; 2],
            then: (self.instrumentation)(),
        };
        M::set_instrumentation(link.conn, admission);
        IS_ANY.store(true, Ordering::Relaxed);
        Ok(answer.is_some())
    }
}

/// Admits each connection of a pool.
#[cfg(feature = "r2d2")]
impl<Conn, DB> diesel::r2d2::CustomizeConnection<Conn, diesel::r2d2::Error> for Combiner
where
    Conn: LoadConnection<Backend = DB> + 'static,
    DB: BackendOf<Conn>,
{
    fn on_acquire(&self, conn: &mut Conn) -> Result<(), diesel::r2d2::Error> {
        let admitted = self.admit(conn).map(drop);
        admitted.map_err(diesel::r2d2::Error::QueryError)
    }
}

impl Instrumentation for Admission {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match &event {
            InstrumentationEvent::StartQuery { query, .. } if self.standing != Standing::Ended => {
                let text = text_of_others(query);
                let said = text.iter().flat_map(|text| parts(text));
                let said: Vec<_> = said.map(|part| Says::of(part, self.dialect)).collect();
                let before = self.standing;
                if said.contains(&Says::Other) {
                    self.standing = Standing::Ended;
                } else if said.contains(&Says::Begins) {
                    self.standing = Standing::Suspended;
                }
                self.then_stands = match said.as_slice() {
                    [.., Says::Ends] => [Standing::Combines, self.standing],
                    // If it fails, it has begun nothing.
                    [Says::Begins] => [self.standing, before],
                    // Of an empty transaction only the second statement fails: this crate makes one immediate so.
                    [Says::Ends, Says::Begins] if self.dialect.begins_immediate() => {
                        [self.standing, Standing::Combines]
                    }
                    _ => [self.standing; 2],
                };
            }
            InstrumentationEvent::FinishQuery { error, .. }
                if self.standing == Standing::Suspended =>
            {
                self.standing = self.then_stands[usize::from(error.is_some())];
            }
            _ => {}
        }
        if let Some(then) = &mut self.then {
            then.on_connection_event(event);
        }
    }
}

/// The statements of a text, if it has no literals, names or comments that may hide a semicolon; otherwise the whole text.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let text = text.trim().trim_end_matches(';');
    let is_plain = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b' ' | b';');
    let end = if text.bytes().all(is_plain) {
        ';'
    } else {
        '\0'
    };
    text.split(end).map(str::trim)
}

/// What a statement means for an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Nothing,
    /// A transaction begins.
    Begins,
    /// The transaction ends.
    Ends,
    /// It may do anything.
    Other,
}

impl Says {
    fn of(text: &str, dialect: Dialect) -> Self {
        let text = text.to_ascii_uppercase();
        let is_own = |own| text.contains(own);
        if ["@DIESEL_SHARDED_", "'DIESEL_SHARDED."]
            .into_iter()
            .any(is_own)
        {
            return Says::Nothing; // this crate's own settings
        }
        let mut words = words(&text);
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        match first {
            _ if text.contains(';') => Says::Other, // several statements
            "COMMIT" | "END" | "ROLLBACK" | "ABORT" if first == text => Says::Ends,
            "ROLLBACK" if second == "TO" => Says::Nothing,
            "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" => Says::Begins,
            "SAVEPOINT" if dialect.savepoint_begins() => Says::Begins,
            "SAVEPOINT" | "RELEASE" => Says::Nothing,
            "SET" if dialect.sets_in_transaction().contains(&second) => Says::Nothing,
            "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "WITH" | "VALUES" | "REPLACE"
            | "TRUNCATE" | "ANALYZE" | "EXPLAIN" | "COPY" | "LISTEN" | "NOTIFY"
                if !dialect.changes_session(&text) =>
            {
                Says::Nothing
            }
            _ => Says::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str, dialect: Dialect) -> Vec<Says> {
        parts(text).map(|part| Says::of(part, dialect)).collect()
    }

    #[test]
    fn each_text_says_what_it_may_change() {
        use Says::{Begins, Ends, Nothing, Other};
        for dialect in Dialect::ALL {
            let expect = |text, expected: &[Says]| {
                assert_eq!(says(text, dialect), expected, "{dialect:?}: {text}");
            };
            expect("SELECT 1", &[Nothing]);
            expect(" update \"videos\" SET views = 1; ", &[Nothing]);
            expect("SELECT 1; SELECT '2'", &[Other]);
            expect("BEGIN;\nSET search_path = b;\nCOMMIT", &[Other]);
            expect("COMMIT; SET search_path = b", &[Other]);
            expect("SAVEPOINT s1; SET ROLE x", &[Other]);
            expect("START TRANSACTION; USE tenant_2; COMMIT", &[Other]);
            expect("SET LOCAL a = '1s'; SET search_path = b", &[Other]);
            expect("ROLLBACK TO s1; SET ROLE x", &[Other]);
            expect("SELECT 1 /*; COMMIT; */", &[Other]);
            expect("BEGIN ISOLATION LEVEL SERIALIZABLE", &[Begins]);
            expect("start transaction", &[Begins]);
            expect("COMMIT AND CHAIN", &[Begins]);
            expect("Commit;", &[Ends]);
            expect("ROLLBACK TO SAVEPOINT one", &[Nothing]);
            expect("BEGIN; ROLLBACK", &[Begins, Ends]);
            expect("COMMIT; BEGIN IMMEDIATE", &[Ends, Begins]);
            expect("RESET ALL", &[Other]);
            expect("", &[Other]);
            expect(
                "SET autocommit = COALESCE(@diesel_sharded_autocommit, 1)",
                &[Nothing],
            );
            let has_local = dialect == Dialect::Postgres;
            expect(
                "SET LOCAL a = 1",
                &[if has_local { Nothing } else { Other }],
            );
            let has_functions = if has_local { Other } else { Nothing };
            expect("SELECT \"set_config\"('a', 'b', false)", &[has_functions]);
            expect("SELECT temperature FROM templates", &[Nothing]);
            expect("SELECT 1 INTO TEMP videos", &[has_functions]);
            let has_variables = dialect == Dialect::Mysql;
            expect(
                "SELECT @a := 1",
                &[if has_variables { Other } else { Nothing }],
            );
            let begins = dialect == Dialect::Sqlite;
            expect("SAVEPOINT one", &[if begins { Begins } else { Nothing }]);
        }
    }
}

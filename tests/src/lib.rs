//! Databases to test on: one empty database a test, on a server that the whole test process shares.
//!
//! A server is, in this order: the one at `POSTGRES_DATABASE_URL` or `MYSQL_DATABASE_URL`; a private one, started from the
//! installed binaries in a temporary folder on a free port and stopped with the process; a container of the images that
//! `scripts/images.sh` builds. `TEST_SERVERS=containers` asks for the last at once. SQLite's database is a file in
//! `SQLITE_DATABASE_URL`, a folder, or in the temporary folder. A Redis server, for cached totals, is always a private one, and
//! a test's own; so are a Galera cluster of three nodes, a group of MySQL servers in containers, a PostgreSQL primary
//! with its standby, and a MariaDB primary with its replica.

pub mod awaited;
pub mod cluster;
mod container;
pub mod documents;
pub mod fixture;
pub mod galera;
pub mod group_replication;
pub mod haproxy;
mod in_front;
pub mod interrupter;
pub mod link;
pub mod own_server;
pub mod pgbouncer;
pub mod pgpool;
pub mod players;
mod programs;
pub mod prometheus;
pub mod proxy;
pub mod redis;
pub mod refusing;
pub mod replication;
pub mod role;
pub mod schema;

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::dsl::{select, sql};
use diesel::prelude::*;
use diesel::r2d2::{
    ConnectionManager, CustomizeConnection, Error as PoolError, Pool, PooledConnection,
    R2D2Connection,
};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::Text;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncMysqlConnection, AsyncPgConnection};
use diesel_sharded::Conflict;
use diesel_sharded::retry::RetryPolicy;
use tempfile::TempDir;

use self::awaited::Awaited;
use self::fixture::Run;

/// The kinds of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Postgres,
    /// PostgreSQL whose commits wait for the disk: always a private one.
    SyncedPostgres,
    /// MySQL or MariaDB.
    Mysql,
}

impl Server {
    /// The address of a running server, with a user that may do everything, up to the database's name.
    fn address(self) -> &'static str {
        static POSTGRES: OnceLock<String> = OnceLock::new();
        static SYNCED_POSTGRES: OnceLock<String> = OnceLock::new();
        static MYSQL: OnceLock<String> = OnceLock::new();
        let address = match self {
            Server::Postgres => &POSTGRES,
            Server::SyncedPostgres => &SYNCED_POSTGRES,
            Server::Mysql => &MYSQL,
        };
        address.get_or_init(|| self.start())
    }

    fn start(self) -> String {
        let variable = match self {
            Server::Postgres => "POSTGRES_DATABASE_URL",
            Server::SyncedPostgres => return programs::start(self).expect("a private server"),
            Server::Mysql => "MYSQL_DATABASE_URL",
        };
        if let Ok(url) = std::env::var(variable) {
            let (address, _database) = url
                .rsplit_once('/')
                .unwrap_or_else(|| panic!("{variable} has no database: {url}"));
            return address.to_owned();
        }
        if std::env::var("TEST_SERVERS").as_deref() == Ok("containers") {
            return container::start(self);
        }
        programs::start(self).unwrap_or_else(|missing| {
            eprintln!("{missing}; trying a container");
            container::start(self)
        })
    }

    /// A database that is there from the start.
    fn maintenance_url(self) -> String {
        match self {
            Server::Postgres | Server::SyncedPostgres => format!("{}/postgres", self.address()),
            Server::Mysql => format!("{}/mysql", self.address()),
        }
    }

    fn execute(self, sql: &str) {
        connected(&self.maintenance_url()).run(sql);
    }
}

/// A connection to a server, of whichever kind it is.
pub(crate) fn connected(url: &str) -> Box<dyn SimpleConnection> {
    fn to<Conn: Connection + 'static>(url: &str) -> Box<dyn SimpleConnection> {
        let conn = Conn::establish(url);
        Box::new(conn.unwrap_or_else(|e| panic!("no connection to {url}: {e}")))
    }
    match url.starts_with("mysql") {
        true => to::<MysqlConnection>(url),
        false => to::<PgConnection>(url),
    }
}

/// An empty database that is deleted when dropped.
#[derive(Debug)]
pub struct Database {
    url: String,
    on: On,
}

#[derive(Debug)]
enum On {
    Server(Server, String),
    Folder(#[expect(dead_code, reason = "deletes the folder when dropped")] TempDir),
}

impl Database {
    pub fn on_server(server: Server) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "sharded_{}_{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        server.execute(&format!("CREATE DATABASE {name}"));
        Database {
            url: format!("{}/{name}", server.address()),
            on: On::Server(server, name),
        }
    }

    pub fn in_file() -> Self {
        let folder = match std::env::var_os("SQLITE_DATABASE_URL") {
            Some(folder) => TempDir::new_in(folder),
            None => TempDir::new(),
        }
        .expect("a temporary folder");
        Database {
            url: folder.path().join("test.db").to_string_lossy().into_owned(),
            on: On::Folder(folder),
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The settings of MySQL's programs for the server of a URL, and the name of the database there.
pub fn mysql_client(url: &str) -> (String, &str) {
    let (server, database) = url.rsplit_once('/').expect("a database");
    let server = server.trim_start_matches("mysql://");
    let (user, address) = server.split_once('@').expect("a user");
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let (host, port) = address.split_once(':').unwrap_or((address, "3306"));
    let settings = format!(
        "[client]\nprotocol=tcp\nuser={user}\npassword={password}\nhost={host}\nport={port}\n"
    );
    (settings, database)
}

impl Drop for Database {
    fn drop(&mut self) {
        if let (On::Server(server, name), false) = (&self.on, std::thread::panicking()) {
            let force = match server {
                Server::Postgres | Server::SyncedPostgres => " WITH (FORCE)",
                Server::Mysql => "",
            };
            server.execute(&format!("DROP DATABASE {name}{force}"));
        }
    }
}

/// A connection type that the tests run on.
pub trait TestConnection: Connection + Sized {
    /// A new, empty database for connections of this type.
    fn database() -> Database;

    /// The name and version of the database at the other end of this connection.
    fn version(&mut self) -> String;

    /// A connection to `database`, set up as an application would.
    fn connect(database: &Database) -> Self {
        Self::establish(database.url()).unwrap_or_else(|e| panic!("{}: {e}", database.url()))
    }
}

/// PostgreSQL and MySQL, through any driver.
macro_rules! on_server {
    ($($conn:ty: $server:ident, $version:literal;)+) => {$(
        impl TestConnection for $conn {
            fn version(&mut self) -> String {
                let version = select(sql::<Text>($version));
                RunQueryDsl::get_result(version, self).expect("a version")
            }

            fn database() -> Database {
                Database::on_server(Server::$server)
            }
        }
    )+};
}

on_server! {
    PgConnection: Postgres, "version()";
    MysqlConnection: Mysql, "VERSION()";
    Awaited<AsyncPgConnection>: Postgres, "version()";
    Awaited<AsyncMysqlConnection>: Mysql, "VERSION()";
}

/// SQLite, through any driver.
macro_rules! in_file {
    ($($conn:ty)+) => {$(
        impl TestConnection for $conn {
            fn version(&mut self) -> String {
                let version = select(sql::<Text>("'SQLite ' || sqlite_version()"));
                RunQueryDsl::get_result(version, self).expect("a version")
            }

            fn database() -> Database {
                Database::in_file()
            }

            fn connect(database: &Database) -> Self {
                let mut conn = <Self as Connection>::establish(database.url()).expect("a SQLite file");
                SimpleConnection::batch_execute(
                    &mut conn,
                    "PRAGMA busy_timeout = 60000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;",
                )
                .expect("pragmas");
                conn
            }
        }
    )+};
}

in_file! {
    SqliteConnection
    Awaited<SyncConnectionWrapper<SqliteConnection>>
}

impl<C> TestConnection for PooledConnection<ConnectionManager<C>>
where
    C: TestConnection + R2D2Connection + 'static,
    Self: Connection,
{
    fn database() -> Database {
        C::database()
    }

    fn version(&mut self) -> String {
        C::version(self)
    }

    fn connect(database: &Database) -> Self {
        let pool = Pool::builder().max_size(1);
        let pool = pool.build(ConnectionManager::new(database.url()));
        pool.and_then(|pool| pool.get()).expect("a connection")
    }
}

/// A policy whose deadline a starved machine does not reach. It allows no more attempts than the default one.
pub const fn patient() -> RetryPolicy {
    RetryPolicy::new().with_deadline(Duration::from_secs(600))
}

/// A policy that records the conflicts it meets.
pub fn recording() -> (RetryPolicy, Arc<Mutex<Vec<Conflict>>>) {
    let met = Arc::new(Mutex::new(vec![]));
    let writes = Arc::clone(&met);
    let policy = RetryPolicy::new().with_notify(move |attempted| {
        writes
            .lock()
            .expect("no panic while it is held")
            .push(attempted.conflict);
    });
    (policy, met)
}

/// A key that no other test of this process counts on: the process remembers by key what it waited for, whatever the database.
pub fn own_key() -> i64 {
    static NEXT: AtomicI64 = AtomicI64::new(1_000_001);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Draws the shards (and jitters) of the given numbers in turn, then the last one forever.
pub fn drawing(numbers: &'static [u64]) -> impl Fn() -> u64 {
    let next = AtomicU32::new(0);
    move || numbers[(next.fetch_add(1, Ordering::Relaxed) as usize).min(numbers.len() - 1)]
}

/// A pool of two connections, which are opened when they are needed.
pub fn pool<Conn: R2D2Connection + 'static>(url: &str) -> Pool<ConnectionManager<Conn>> {
    pool_with(url, &[])
}

/// The same, where each connection begins with these statements.
pub fn pool_with<Conn: R2D2Connection + 'static>(
    url: &str,
    settings: &[&str],
) -> Pool<ConnectionManager<Conn>> {
    #[derive(Debug)]
    struct Settings(Vec<String>);

    impl<Conn: SimpleConnection> CustomizeConnection<Conn, PoolError> for Settings {
        fn on_acquire(&self, conn: &mut Conn) -> Result<(), PoolError> {
            let mut settings = self.0.iter();
            let set = settings.try_for_each(|setting| conn.batch_execute(setting));
            set.map_err(PoolError::QueryError)
        }
    }

    let settings = Settings(settings.iter().copied().map(str::to_owned).collect());
    let pool = Pool::builder().max_size(2).min_idle(Some(0));
    let pool = pool.connection_customizer(Box::new(settings));
    pool.build(ConnectionManager::new(url)).expect("a pool")
}

/// A conflict, as every database may report it.
pub fn conflict() -> DieselError {
    let text = Box::new("could not serialize access".to_owned());
    DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, text)
}

/// The value that `work` returns, and the statements that it sends.
pub fn sent<Conn: Connection, T>(
    conn: &mut Conn,
    work: impl FnOnce(&mut Conn) -> T,
) -> (T, Vec<String>) {
    let sent = Arc::new(Mutex::new(vec![]));
    let sending = Arc::clone(&sent);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            sending
                .lock()
                .expect("no panic while it is held")
                .push(query.to_string());
        }
    });
    let done = work(conn);
    conn.set_instrumentation(|_: InstrumentationEvent<'_>| {});
    let sent = std::mem::take(&mut *sent.lock().expect("no panic while it is held"));
    (done, sent)
}

/// Does `work` in a transaction of Diesel's that is rolled back.
pub fn rolled_back<Conn: Connection>(conn: &mut Conn, work: impl FnOnce(&mut Conn)) {
    let undone = conn.transaction(|conn| {
        work(conn);
        Err::<(), _>(DieselError::RollbackTransaction)
    });
    assert_eq!(undone, Err(DieselError::RollbackTransaction));
}

/// The longest window of a unique count: no test meets its end.
pub const HUNDRED_YEARS: Duration = Duration::from_secs(3_155_760_000);

/// Tells threads to stop when it is dropped, also where the test fails.
#[derive(Debug)]
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until it is so, however slow the machine is.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let never = || String::from("in five minutes");
    ask_until(never, || {
        is_so().then_some(()).ok_or(format!("not so: {what}"))
    });
}

/// Asks until there is an answer, however slow the machine is. If there is none, the test fails with the last refusal and the log.
pub fn ask_until<T, E: Display>(
    log: impl FnOnce() -> String,
    mut ask: impl FnMut() -> Result<T, E>,
) -> T {
    let patience = Instant::now() + Duration::from_secs(300);
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(_) if Instant::now() < patience => thread::sleep(Duration::from_millis(5)),
            Err(refusal) => panic!("{refusal}\n{}", log()),
        }
    }
}

/// Counts on rows by the library's update, and gives their number.
#[macro_export]
macro_rules! count {
    ($rows:expr, $changes:expr, $conn:expr) => {
        update($rows).set($changes).execute($conn).unwrap()
    };
}

/// Inserts rows by a plain statement of Diesel's.
#[macro_export]
macro_rules! insert {
    ($table:expr, $rows:expr, $conn:expr) => {
        diesel::RunQueryDsl::execute(diesel::insert_into($table).values($rows), $conn).unwrap()
    };
}

/// Changes rows by a plain statement of Diesel's, past the shards.
#[macro_export]
macro_rules! edit {
    ($rows:expr, $changes:expr, $conn:expr) => {
        diesel::RunQueryDsl::execute(diesel::update($rows).set($changes), $conn).unwrap()
    };
}

/// Deletes rows by a plain statement of Diesel's.
#[macro_export]
macro_rules! delete {
    ($rows:expr, $conn:expr) => {
        diesel::RunQueryDsl::execute(diesel::delete($rows), $conn).unwrap()
    };
}

/// A number that the database computes from a text of SQL.
#[macro_export]
macro_rules! number {
    ($sql:expr, $conn:expr) => {
        diesel::RunQueryDsl::get_result::<i64>(
            diesel::select(diesel::dsl::sql::<diesel::sql_types::BigInt>($sql)),
            $conn,
        )
        .unwrap()
    };
}

/// An operation succeeds, and gives this value.
#[macro_export]
macro_rules! gives {
    ($operation:expr, $value:expr $(, $($context:tt)+)?) => {
        assert_eq!($crate::awaited::Done::done($operation), Ok($value) $(, $($context)+)?)
    };
}

/// A value is of this pattern; otherwise the test shows the value.
#[macro_export]
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $guard:expr)?) => {
        match $value {
            ref value => assert!(matches!(value, $pattern $(if $guard)?), "{value:?}"),
        }
    };
}

/// A table that is counted on: its columns, and the struct that names its fields, whose attributes stand at the columns.
#[macro_export]
macro_rules! counted_table {
    ($(#[$sharded:meta])* $vis:vis $Model:ident of $table:ident ($($key:ident),+) {
        $($(#[$attribute:meta])*
        $column:ident -> $sql:ident $(<$inner:ident>)? = $($field:ident)::+ $(<$of:ident>)?,)+
    }) => {
        diesel::table! {
            $table ($($key),+) { $($column -> $sql $(<$inner>)?,)+ }
        }

        #[derive(diesel_sharded::prelude::ShardedField)]
        #[diesel(table_name = $table, primary_key($($key),+))]
        $(#[$sharded])*
        #[expect(dead_code, reason = "the derive reads the fields' types")]
        $vis struct $Model {
            $($(#[$attribute])* $column: $($field)::+ $(<$of>)?,)+
        }
    };
}

//! The databases that are measured: their connections, tables and SQL.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use diesel::dsl::{select, sql};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_migrations::MigrationHarness;
use diesel_sharded::{MIGRATIONS, ShardsTable};
use diesel_sharded_benches::measured::Measured;
use diesel_sharded_benches::names;
use diesel_sharded_tests::Database;
use diesel_sharded_tests::fixture::Run;
use diesel_sharded_tests::proxy::delayed;

use crate::schema::{self, EVENTS, PLAIN, ROWS, SHARDED, SLOTS, SLOTTED, for_each_sharded};

/// The disk that a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// No disk.
    Free,
    /// This machine's disk.
    Local,
    /// This machine's disk, and every packet travels for 0.25 ms.
    Remote,
    /// This machine's disk and 1 ms more, as behind a network.
    Slow,
}

impl Disk {
    pub fn name(self) -> &'static str {
        match self {
            Disk::Free => names::NO_DISK,
            Disk::Local => names::LOCAL_DISK,
            Disk::Remote => names::REMOTE,
            Disk::Slow => names::SLOW_DISK,
        }
    }
}

/// The way of a packet over a network: its round trip takes 0.5 ms.
const WAY: Duration = Duration::from_micros(250);

/// A database with the tables of [`schema`]. Its commits wait for `disk`.
pub struct Stage<Conn> {
    database: Arc<Database>,
    /// Of the database as the measured connections reach it.
    url: Arc<str>,
    pub disk: Disk,
    connection: PhantomData<fn() -> Conn>,
}

impl<Conn: Arena> Stage<Conn> {
    pub fn new(disk: Disk) -> Self {
        let database = match disk {
            Disk::Free => Conn::database(),
            _ => Conn::synced_database(),
        };
        let url = match disk {
            Disk::Remote => delayed(database.url(), WAY),
            _ => database.url().to_owned(),
        };
        let stage: Stage<Conn> = Stage {
            database: Arc::new(database),
            url: url.into(),
            disk,
            connection: PhantomData,
        };
        let mut conn = Conn::connect(&stage.database);
        conn.wait_for(Disk::Free);
        conn.create_tables();
        stage
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn connect(&self) -> Conn {
        let mut conn = match self.disk {
            Disk::Remote => Conn::establish(&self.url).expect("a connection by the network"),
            _ => Conn::connect(&self.database),
        };
        conn.wait_for(self.disk);
        conn
    }
}

impl<Conn> Clone for Stage<Conn> {
    fn clone(&self) -> Self {
        Stage {
            database: Arc::clone(&self.database),
            url: Arc::clone(&self.url),
            ..*self
        }
    }
}

/// A connection type whose database is measured.
pub trait Arena: Measured + Run + Send + 'static {
    /// The type of a key that the database generates.
    const SERIAL: &'static str;
    /// The SQL type to which a sum is cast, so that it is read as a 64-bit integer.
    const INTEGER: &'static str;
    /// The statement that empties a table, without the table's name.
    const EMPTY: &'static str;
    /// The statements that update the planner's statistics, and PostgreSQL's visibility map.
    const ANALYZE: &'static [&'static str];

    /// The end of `CREATE TABLE` that this crate gives its shards tables. A team would find it for its slots too.
    const SHARDS_OPTIONS: &'static str;

    /// The disks that its commits can wait for.
    const DISKS: &'static [Disk];

    /// Makes this connection's commits wait for `disk`; on MariaDB, all commits of the server.
    fn wait_for(&mut self, disk: Disk);

    /// Evaluates an integer expression.
    fn integer(&mut self, expression: &str) -> i64;

    /// Creates the tables of [`schema`] and fills them.
    fn create_tables(&mut self);

    /// Creates every shard and every slot of the rows up to `last`: the measurements count on rows that are already there.
    fn create_all_shards(&mut self, last: i64) {
        for (table, shards) in SHARDED {
            self.run(&format!("DELETE FROM {table}_shards"));
            self.run(&format!(
                "INSERT INTO {table}_shards (id, shard) SELECT v.id, s.n - 1 FROM {table} AS v \
                 CROSS JOIN ({}) AS s WHERE v.id <= {last}",
                Self::numbers(*shards)
            ));
        }
        for table in SLOTTED {
            self.run(&format!("DELETE FROM {table}"));
            self.run(&format!(
                "INSERT INTO {table} SELECT v.n, s.n - 1, 0 FROM ({}) AS v CROSS JOIN ({}) AS s",
                Self::numbers(last),
                Self::numbers(SLOTS)
            ));
        }
    }

    /// Updates the planner's statistics.
    fn analyze(&mut self) {
        Self::ANALYZE
            .iter()
            .for_each(|statement| self.run(statement));
    }
}

macro_rules! arena {
    ($connection:ty { $($item:item)* }) => {
        impl Arena for $connection {
            $($item)*

            fn integer(&mut self, expression: &str) -> i64 {
                let cast = format!("CAST({expression} AS {})", Self::INTEGER);
                select(sql::<BigInt>(&cast))
                    .get_result(self)
                    .unwrap_or_else(|error| panic!("{cast}: {error}"))
            }

            fn create_tables(&mut self) {
                let serial = Self::SERIAL;
                for table in PLAIN.iter().chain(SHARDED.iter().map(|(table, _)| table)) {
                    self.run(&format!("CREATE TABLE {table} (id BIGINT PRIMARY KEY, views BIGINT NOT NULL)"));
                    self.run(&format!("INSERT INTO {table} SELECT n, 0 FROM ({}) AS numbers", Self::numbers(ROWS)));
                }
                macro_rules! create_shards {
                    ($table:ident) => {
                        ShardsTable::of(schema::$table::table).create(self).expect("a shards table");
                    };
                }
                for_each_sharded!(create_shards);
                for table in SLOTTED {
                    let options = Self::SHARDS_OPTIONS;
                    self.run(&format!(
                        "CREATE TABLE {table} (counter BIGINT NOT NULL, slot INTEGER NOT NULL, count BIGINT NOT NULL, \
                         PRIMARY KEY (counter, slot)){options}"
                    ));
                }
                self.create_all_shards(1);
                for table in EVENTS {
                    self.run(&format!("CREATE TABLE {table} (id {serial}, video_id BIGINT NOT NULL, n BIGINT NOT NULL)"));
                }
                self.run(&format!(
                    "CREATE TABLE comments (id {serial}, video_id BIGINT NOT NULL, body VARCHAR(100) NOT NULL)"
                ));
                self.run_pending_migrations(MIGRATIONS).expect("the library's own tables");
                self.analyze();
            }
        }
    };
}

arena!(PgConnection {
    const SERIAL: &'static str = "BIGSERIAL PRIMARY KEY";
    const INTEGER: &'static str = "bigint";
    const EMPTY: &'static str = "TRUNCATE TABLE";
    const ANALYZE: &'static [&'static str] = &["VACUUM ANALYZE"];

    const SHARDS_OPTIONS: &'static str = " WITH (fillfactor = 90)";
    const DISKS: &'static [Disk] = &[Disk::Local, Disk::Slow];

    fn wait_for(&mut self, disk: Disk) {
        if disk == Disk::Slow {
            self.run("SET commit_delay = 1000; SET commit_siblings = 0");
        }
    }
});

arena!(MysqlConnection {
    const SERIAL: &'static str = "BIGINT AUTO_INCREMENT PRIMARY KEY";
    const INTEGER: &'static str = "SIGNED";
    const EMPTY: &'static str = "TRUNCATE TABLE";
    const ANALYZE: &'static [&'static str] = &[];

    const SHARDS_OPTIONS: &'static str = "";
    const DISKS: &'static [Disk] = &[Disk::Local];

    fn wait_for(&mut self, disk: Disk) {
        let flush = u8::from(disk != Disk::Free);
        // The first commit of a group waits this many microseconds for this many others.
        let wait = if disk == Disk::Slow { 1_000 } else { 0 };
        self.run(&format!(
            "SET GLOBAL innodb_flush_log_at_trx_commit = {flush}, GLOBAL sync_binlog = {flush}, \
             GLOBAL binlog_commit_wait_usec = {wait}, GLOBAL binlog_commit_wait_count = {wait}"
        ));
    }
});

arena!(SqliteConnection {
    const SERIAL: &'static str = "INTEGER PRIMARY KEY";
    const INTEGER: &'static str = "INTEGER";
    const EMPTY: &'static str = "DELETE FROM";
    const ANALYZE: &'static [&'static str] = &["ANALYZE"];

    const SHARDS_OPTIONS: &'static str = " WITHOUT ROWID";
    const DISKS: &'static [Disk] = &[Disk::Local];

    fn wait_for(&mut self, disk: Disk) {
        if disk == Disk::Local {
            self.run("PRAGMA synchronous = FULL");
        }
    }
});

//! The texts of shards tables and of the library's own tables, run by the usual programs: `psql`, `mariadb`,
//! `sqlite3` and Diesel's migrations.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use bigdecimal::BigDecimal;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use diesel_sharded::backend::Dialect;
use diesel_sharded::prelude::*;
use diesel_sharded::{CounterCache, ShardsTable};
use diesel_sharded_tests::{Database, TestConnection, mysql_client};

diesel_sharded_tests::counted_table! {
    Video of videos (id) {
        id -> BigInt = i64,
        #[sharded] views -> BigInt = i64,
        #[sharded] price -> Numeric = BigDecimal,
    }
}

diesel::table! {
    watched (id) {
        id -> BigInt,
        video_id -> Nullable<BigInt>,
    }
}

/// The program that runs a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Psql,
    /// `psql -1`, in one transaction.
    PsqlOnce,
    Mariadb,
    /// `mariadb --force`, which goes on after an error.
    MariadbForce,
    Sqlite3,
    /// `sqlite3 -bail`, which stops at one.
    Sqlite3Bail,
    Diesel,
}

impl Program {
    fn all(dialect: Dialect) -> &'static [Program] {
        match dialect {
            Dialect::Postgres => &[Program::Psql, Program::PsqlOnce, Program::Diesel],
            Dialect::Mysql => &[Program::Mariadb, Program::MariadbForce, Program::Diesel],
            _ => &[Program::Sqlite3, Program::Sqlite3Bail, Program::Diesel],
        }
    }

    /// Runs `text`, or returns what went wrong.
    fn run(self, database: &Database, text: &str) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("text.sql");
        std::fs::write(&file, text).unwrap();
        let url = database.url();
        let mut command = match self {
            Program::Psql | Program::PsqlOnce => {
                let mut psql = Command::new("psql");
                psql.arg("-X").arg("-f").arg(&file).arg("-d").arg(url);
                if self == Program::PsqlOnce {
                    psql.arg("-1");
                }
                psql
            }
            Program::Mariadb | Program::MariadbForce => {
                let (settings, database) = mysql_client(url);
                let defaults = folder.path().join("my.cnf");
                std::fs::write(&defaults, settings).unwrap();
                let mut mariadb = Command::new("mariadb");
                mariadb.arg(format!("--defaults-file={}", defaults.display()));
                if self == Program::MariadbForce {
                    mariadb.arg("--force");
                }
                mariadb.arg(database).stdin(File::open(&file).unwrap());
                mariadb
            }
            Program::Sqlite3 | Program::Sqlite3Bail => {
                let mut sqlite3 = Command::new("sqlite3");
                sqlite3.arg(url).stdin(File::open(&file).unwrap());
                if self == Program::Sqlite3Bail {
                    sqlite3.arg("-bail");
                }
                sqlite3
            }
            Program::Diesel => unreachable!("it runs migrations"),
        };
        let output = command
            .stdout(Stdio::piped())
            .output()
            .unwrap_or_else(|e| panic!("{command:?}: {e} (scripts/test.sh installs it)"));
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        // `psql -f` ends with success at an error of its script.
        match output.status.success() && !says.to_lowercase().contains("error") {
            true => Ok(()),
            false => Err(says + &String::from_utf8_lossy(&output.stdout)),
        }
    }
}

/// The texts of a migration, in a folder of migrations.
struct Migration {
    up: String,
    down: String,
}

impl Migration {
    fn in_folder<T>(&self, run: impl FnOnce(FileBasedMigrations) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let migration = folder.path().join("2026-01-01-000000_shard");
        std::fs::create_dir(&migration).unwrap();
        std::fs::write(migration.join("up.sql"), &self.up).unwrap();
        std::fs::write(migration.join("down.sql"), &self.down).unwrap();
        run(FileBasedMigrations::from_path(folder.path()).unwrap())
    }
}

const COUNTED: &str = "INSERT INTO videos VALUES (1, 100, 1.50), (2, 200, 2.50), (3, 300, 3.50);
    INSERT INTO videos_shards VALUES (1, 0, 5, 0.25), (1, 7, 5, 0), (2, 0, -7, 0.50)";

fn totals() -> Vec<(i64, i64, BigDecimal)> {
    [(1, 110, "1.75"), (2, 193, "3.00"), (3, 300, "3.50")]
        .map(|(key, views, price)| (key, views, price.parse().unwrap()))
        .to_vec()
}

macro_rules! tests_on {
    ($database:ident, $conn:ty, $dialect:ident, $suppress:expr, $release:expr) => {
        mod $database {
            use super::*;

            type Conn = $conn;
            const DIALECT: Dialect = Dialect::$dialect;

            fn migration() -> Migration {
                let table = ShardsTable::of(videos::table);
                let backend = <Conn as Connection>::Backend::default();
                Migration {
                    up: table.create_sql(&backend).unwrap() + ";\n",
                    down: table.drop_sql(&backend).unwrap() + ";\n",
                }
            }

            fn up(program: Program, database: &Database, conn: &mut Conn, migration: &Migration) {
                let ran = match program {
                    Program::Diesel => migration.in_folder(|folder| {
                        let run = conn.run_pending_migrations(folder);
                        run.map(drop).map_err(|error| error.to_string())
                    }),
                    _ => program.run(database, &migration.up),
                };
                ran.unwrap_or_else(|says| panic!("{program:?}: {says}"));
            }

            fn down(
                program: Program,
                database: &Database,
                conn: &mut Conn,
                migration: &Migration,
            ) -> Result<(), String> {
                match program {
                    Program::Diesel => migration.in_folder(|folder| {
                        let reverted = conn.revert_last_migration(folder);
                        reverted.map(drop).map_err(|error| error.to_string())
                    }),
                    _ => program.run(database, &migration.down),
                }
            }

            /// A database whose table has three rows, and shards on two of them.
            fn counted(program: Program, migration: &Migration) -> (Database, Conn) {
                let database = Conn::database();
                let mut conn = Conn::connect(&database);
                conn.batch_execute(
                    "CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL, price DECIMAL(10, 2) NOT NULL)",
                )
                .unwrap();
                up(program, &database, &mut conn, migration);
                conn.batch_execute(COUNTED).unwrap();
                (database, conn)
            }

            fn read(conn: &mut Conn) -> Vec<(i64, i64, BigDecimal)> {
                videos::table
                    .select((videos::id, videos::views.total(), videos::price.total()))
                    .order(videos::id)
                    .load(conn)
                    .unwrap()
            }

            fn bases(conn: &mut Conn) -> Vec<(i64, i64, BigDecimal)> {
                videos::table.order(videos::id).load(conn).unwrap()
            }

            /// The shards table is gone, its increments are in the bases, and the text has left nothing behind.
            fn is_dropped(program: Program, conn: &mut Conn, totals: Vec<(i64, i64, BigDecimal)>) {
                assert_eq!(bases(conn), totals, "{program:?}");
                let gone = conn.batch_execute("SELECT 1 FROM videos_shards");
                assert!(gone.is_err(), "{program:?}");
                conn.batch_execute("CREATE TABLE diesel_sharded_totals (n INTEGER); INSERT INTO diesel_sharded_totals VALUES (1)")
                    .unwrap();
            }

            /// `down` fails and no base has changed; once the obstacle is removed, every total is as it was, and it succeeds.
            fn fails(obstacle: &str, repair: &str, says: impl Fn(Program) -> &'static str) {
                for &program in Program::all(DIALECT) {
                    let migration = migration();
                    let (database, mut conn) = counted(program, &migration);
                    let before = read(&mut conn);
                    conn.batch_execute(obstacle).unwrap();
                    let bases_before = bases(&mut conn);
                    let error = down(program, &database, &mut conn, &migration).unwrap_err();
                    assert!(error.contains(says(program)), "{program:?}: {error}");
                    let mut conn = Conn::connect(&database); // whatever state the other is in
                    assert_eq!(bases(&mut conn), bases_before, "{program:?}");
                    conn.batch_execute(repair).unwrap();
                    assert_eq!(read(&mut conn), before, "{program:?}");
                    down(program, &database, &mut conn, &migration)
                        .unwrap_or_else(|says| panic!("{program:?}: {says}"));
                    is_dropped(program, &mut conn, before);
                }
            }

            /// SQLite's error in a migration names neither row nor trigger.
            fn is_brief(program: Program) -> bool {
                DIALECT == Dialect::Sqlite && program != Program::Sqlite3
            }

            #[test]
            fn counts_in_shards_are_folded_and_nothing_is_left_behind() {
                for &program in Program::all(DIALECT) {
                    let session = match DIALECT {
                        Dialect::Sqlite => "PRAGMA foreign_keys = ON;\n",
                        _ => "",
                    };
                    for session in ["", session] {
                        let mut migration = migration();
                        migration.down = format!("{session}{}", migration.down);
                        let (database, mut conn) = counted(program, &migration);
                        assert_eq!(read(&mut conn), totals());
                        down(program, &database, &mut conn, &migration)
                            .unwrap_or_else(|says| panic!("{program:?}: {says}"));
                        is_dropped(program, &mut conn, totals());
                    }
                }
            }

            fn cache() -> Migration {
                let cache = CounterCache::of(videos::views).counts(watched::video_id);
                let backend = <Conn as Connection>::Backend::default();
                Migration {
                    up: cache.create_sql(&backend).unwrap() + ";\n",
                    down: cache.drop_sql(&backend).unwrap() + ";\n",
                }
            }

            /// A counter cache counts after its text has run, and no more after the other one.
            #[test]
            fn triggers_are_created_and_dropped() {
                let migration = cache();
                for program in Program::all(DIALECT) {
                    let database = Conn::database();
                    let mut conn = Conn::connect(&database);
                    conn.batch_execute(
                        "CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL, price DECIMAL(10, 2) NOT NULL);
                         CREATE TABLE watched (id BIGINT PRIMARY KEY, video_id BIGINT);
                         INSERT INTO videos VALUES (1, 100, 1.50)",
                    )
                    .unwrap();
                    ShardsTable::of(videos::table).create(&mut conn).unwrap();
                    up(*program, &database, &mut conn, &migration);
                    conn.batch_execute("INSERT INTO watched VALUES (1, 1), (2, 1), (3, NULL)")
                        .unwrap();
                    down(*program, &database, &mut conn, &migration)
                        .unwrap_or_else(|says| panic!("{program:?}: {says}"));
                    conn.batch_execute("DELETE FROM watched").unwrap();
                    let total = videos::table.find(1).select(videos::views.total());
                    assert_eq!(total.first(&mut conn), Ok(102_i64), "{program:?}");
                }
            }

            #[test]
            fn a_suppressed_update_drops_nothing() {
                for suppress in $suppress {
                    fails(suppress, $release, |program| match is_brief(program) {
                        true => "videos_shards: a row did not take what its shards hold",
                        false => "videos_shards, key 1: 100, 1.5",
                    });
                }
            }

            #[test]
            fn a_counter_cache_keeps_the_table() {
                let Migration { up, down } = cache();
                let create = format!("CREATE TABLE watched (id BIGINT PRIMARY KEY, video_id BIGINT); {up}");
                fails(&create, &down, |program| match is_brief(program) {
                    true => "a counter cache adds to it",
                    false => "a counter cache adds to videos_shards: watched_video_id",
                });
            }

            /// The library's own tables, up, down, and up again.
            #[test]
            fn the_librarys_own_tables_are_made_and_taken_back() {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("../migrations")
                    .join(stringify!($database));
                let mut migrations: Vec<_> = std::fs::read_dir(folder)
                    .unwrap()
                    .map(|entry| entry.unwrap().path())
                    .collect();
                migrations.sort();
                assert_eq!(migrations.len(), 2);
                let programs = Program::all(DIALECT).iter();
                for program in programs.filter(|program| **program != Program::Diesel) {
                    let database = Conn::database();
                    let run = |migration: &Path, file: &str| {
                        let text = std::fs::read_to_string(migration.join(file)).unwrap();
                        program.run(&database, &text)
                    };
                    for round in 0..2 {
                        for migration in &migrations {
                            run(migration, "up.sql").unwrap_or_else(|says| panic!("{round}: {says}"));
                        }
                        let mut conn = Conn::connect(&database);
                        let counter = diesel_sharded::Counter::named("a");
                        counter.add(1, &mut conn).unwrap();
                        assert_eq!(counter.get(&mut conn), Ok(1));
                        for migration in migrations.iter().rev() {
                            run(migration, "down.sql").unwrap_or_else(|says| panic!("{round}: {says}"));
                        }
                    }
                }
            }

            /// A text that is run again, or beside a table of another application, deletes nothing.
            #[test]
            fn a_second_run_of_up_changes_nothing() {
                let migration = migration();
                for program in Program::all(DIALECT) {
                    if *program == Program::Diesel {
                        continue; // knows that it has run
                    }
                    let (database, mut conn) = counted(*program, &migration);
                    assert!(program.run(&database, &migration.up).is_err());
                    assert_eq!(read(&mut conn), totals());
                    down(*program, &database, &mut conn, &migration).unwrap();
                    is_dropped(*program, &mut conn, totals());
                    // Nor does a second `down`.
                    assert!(program.run(&database, &migration.down).is_err());
                    assert_eq!(bases(&mut conn), totals());
                }
            }
        }
    };
}

tests_on! {
    postgres, PgConnection, Postgres,
    [
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER keep BEFORE UPDATE ON videos FOR EACH ROW EXECUTE FUNCTION keep()",
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.views = OLD.views; RETURN NEW; END';
         CREATE TRIGGER keep BEFORE UPDATE ON videos FOR EACH ROW EXECUTE FUNCTION keep()",
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN IF pg_trigger_depth() = 1 THEN UPDATE videos SET views = OLD.views WHERE id = OLD.id; END IF; RETURN NULL; END';
         CREATE TRIGGER keep AFTER UPDATE ON videos FOR EACH ROW EXECUTE FUNCTION keep()",
    ],
    "DROP TRIGGER keep ON videos"
}

tests_on! {
    mysql, MysqlConnection, Mysql,
    ["CREATE TRIGGER keep BEFORE UPDATE ON videos FOR EACH ROW SET NEW.views = OLD.views"],
    "DROP TRIGGER keep"
}

tests_on! {
    sqlite, SqliteConnection, Sqlite,
    [
        "CREATE TRIGGER keep BEFORE UPDATE ON videos BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TRIGGER keep AFTER UPDATE ON videos WHEN NEW.views <> OLD.views
         BEGIN UPDATE videos SET views = OLD.views WHERE id = OLD.id; END",
    ],
    "DROP TRIGGER keep"
}

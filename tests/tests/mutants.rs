//! The cases of folds, of the coalescer and of idempotency keys, and on PostgreSQL its conflicts: they test mutants, since they are built
//! and run quickly. See `.cargo/mutants.toml`.

#![expect(
    clippy::duplicate_mod,
    reason = "the same cases, once for each database"
)]

macro_rules! on {
    ($name:ident, $conn:ty) => {
        #[path = "databases"]
        mod $name {
            #[path = "blocking/coalescer.rs"]
            mod coalescer;
            #[path = "cases/fold.rs"]
            mod fold;
            #[path = "cases/idempotency.rs"]
            mod idempotency;

            use std::thread;

            use diesel_migrations::MigrationHarness;
            use diesel_sharded::MIGRATIONS;
            use diesel_sharded_tests::{Database, TestConnection, patient, schema};

            /// The crate that the cases test.
            use diesel_sharded as api;

            type Conn = $conn;

            /// A database with the tables of `schema`.
            fn database() -> (Database, Conn) {
                let database = Conn::database();
                let mut conn = Conn::connect(&database);
                schema::create(&mut conn);
                (database, conn)
            }

            /// The same with the library's own tables.
            fn database_with_counters() -> (Database, Conn) {
                let (database, mut conn) = database();
                conn.run_pending_migrations(MIGRATIONS).unwrap();
                (database, conn)
            }

            /// Runs `work` on as many threads, each with a connection of its own; a panic in one is a panic here.
            fn on_threads(threads: i64, database: &Database, work: impl Fn(i64, &mut Conn) + Sync) {
                patient().set_global();
                thread::scope(|scope| {
                    for number in 0..threads {
                        let work = &work;
                        scope.spawn(move || work(number, &mut Conn::connect(database)));
                    }
                });
            }
        }
    };
}

on!(sqlite, diesel::SqliteConnection);
on!(postgres, diesel::PgConnection);

#[path = "databases"]
mod conflicts {
    mod servers;

    use diesel_sharded as api;

    type Conn = diesel::PgConnection;

    servers::server_tests!(postgres);
}

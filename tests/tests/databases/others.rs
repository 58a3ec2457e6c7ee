//! The contract on the connections that do not run all cases: other asynchronous ones, those of a pool, an application's own enum. And
//! that enum on every database.

#[path = "."]
mod async_mysql {
    mod contract;
    mod servers;

    use diesel_sharded_tests::awaited as api;

    type Conn = api::Awaited<diesel_async::AsyncMysqlConnection>;
}

#[path = "."]
mod async_sqlite {
    mod contract;

    use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
    use diesel_sharded_tests::awaited as api;

    type Conn = api::Awaited<SyncConnectionWrapper<diesel::SqliteConnection>>;
}

#[path = "."]
mod multi {
    mod contract;

    use diesel_sharded as api;

    type Conn = super::AnyConnection;
}

#[path = "."]
mod pooled {
    mod contract;

    use diesel::r2d2::{ConnectionManager, PooledConnection};
    use diesel_sharded as api;

    type Conn = PooledConnection<ConnectionManager<diesel::PgConnection>>;
}

use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::unique::Unique;
use diesel_sharded::{ShardsTable, set_total, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, videos as table};
use diesel_sharded_tests::{Database, HUNDRED_YEARS, TestConnection, count, patient, pool};

#[derive(diesel::MultiConnection)]
pub enum AnyConnection {
    Postgres(PgConnection),
    Mysql(MysqlConnection),
    Sqlite(SqliteConnection),
}

diesel_sharded::multi_connection!(AnyConnection {
    Postgres: Postgres,
    Mysql: Mysql,
    Sqlite: Sqlite
});

impl TestConnection for AnyConnection {
    fn database() -> Database {
        SqliteConnection::database()
    }

    fn version(&mut self) -> String {
        match self {
            AnyConnection::Sqlite(conn) => conn.version(),
            AnyConnection::Postgres(conn) => conn.version(),
            AnyConnection::Mysql(conn) => conn.version(),
        }
    }

    fn connect(database: &Database) -> Self {
        AnyConnection::Sqlite(SqliteConnection::connect(database))
    }
}

/// The application's code: nothing here names a database.
fn count_and_read(conn: &mut AnyConnection) {
    schema::create(conn);
    assert_eq!(count!(videos.find(1), views.eq(views + 1), conn), 1);
    let rows = videos.filter(slug.eq("a"));
    assert_eq!(count!(rows, views.eq(views + 1), conn), 1);
    let counted = conn.transaction(|conn| {
        let count = update(videos.filter(views.total().le(102))).set(views.eq(views + 1));
        count.returning((id, views)).get_results::<(i64, i64)>(conn)
    });
    assert_eq!(counted, Ok(vec![(1, 103)]));
    let top = videos
        .select((id, views.total()))
        .order(views.total().desc());
    let best = vec![(3_i64, 300_i64), (2, 200)];
    assert_eq!(top.limit(2).load(conn), Ok(best));
    let shards_table = ShardsTable::of(table::table);
    shards_table.drop(conn).unwrap();
    for new in [1, 0] {
        let ran = conn.run_pending_migrations(shards_table.migration("1"));
        assert_eq!(ran.unwrap().len(), new);
    }
    let count = update(videos.find(1)).set(views.eq(views + 1));
    assert_eq!(count.returning(views).get_result(conn), Ok(104_i64));
    conn.revert_migration(&shards_table.migration("1")).unwrap();
    assert_eq!(videos.find(1).select(views).first(conn), Ok(104_i64));
}

/// Then a pool of each plain connection type.
#[test]
fn the_same_code_on_every_database() {
    macro_rules! on {
        ($($kind:ident: $conn:ty),+) => {$(
            let database = <$conn>::database();
            count_and_read(&mut AnyConnection::$kind(<$conn>::connect(&database)));
            let (database, _) = schema::database::<$conn>();
            let conn = &mut pool::<$conn>(database.url()).get().unwrap();
            for _ in 0..3 {
                assert_eq!(count!(videos.find(1), views.eq(views + 1), conn), 1);
            }
        )+};
    }
    on!(Postgres: PgConnection, Mysql: MysqlConnection, Sqlite: SqliteConnection);
}

/// A process that chose its database at run time, and one that knows it.
#[test]
fn connections_of_any_type_recognize_requests_and_visitors() {
    macro_rules! on {
        ($($kind:ident: $conn:ty),+) => {$(
            let (database, plain) = &mut schema::database_with_counters::<$conn>();
            let any = &mut AnyConnection::$kind(<$conn>::connect(database));
            let view = || update(videos.find(1)).set(views.eq(views + 1));
            let visit = || view().once_per("ann", HUNDRED_YEARS);
            assert_eq!(visit().count(plain), Ok(Unique::Counted));
            assert_eq!(visit().count(any), Ok(Unique::Repeat));
            let request = || view().idempotency_key("a");
            assert_eq!((request().execute(any), request().execute(plain)), (Ok(1), Ok(1)));
            assert_eq!(videos.find(1).select(views.total()).first(any), Ok(102_i64));
            let set = || set_total(videos.find(1), views, 500).idempotency_key("b");
            assert_eq!((set().execute(plain), set().execute(any)), (Ok(1), Ok(1)));
        )+};
    }
    on!(Postgres: PgConnection, Mysql: MysqlConnection, Sqlite: SqliteConnection);
}

/// One combiner for several kinds of databases: an increment on one waits for nobody who leads on another, here on the same thread.
#[test]
fn kinds_of_databases_do_not_combine() {
    const PATIENCE: Duration = Duration::from_secs(300);
    let (began, combiner) = (Instant::now(), Combiner::new());
    let (_sqlite, mut on_sqlite) = schema::database::<SqliteConnection>();
    let (postgres, mut on_postgres) = schema::database::<PgConnection>();
    let (mysql, mut on_mysql) = schema::database::<MysqlConnection>();
    let second = &mut PgConnection::connect(&postgres);
    macro_rules! counted {
        ($execute:ident($conn:expr)) => {
            let count = update(videos.find(1)).set(views.eq(views + 1));
            let count = count.retry(RetryPolicy::new().with_deadline(PATIENCE));
            assert_eq!(count.combine(&combiner).$execute($conn), Ok(1));
        };
    }
    macro_rules! any {
        ($kind:ident: $conn:expr) => {
            counted!(execute_with(|| QueryResult::Ok(Box::new(
                AnyConnection::$kind($conn)
            ))))
        };
    }
    counted!(execute_with(|| {
        any!(Postgres: PgConnection::connect(&postgres));
        // As many as may lead in a new slot.
        counted!(execute_with(|| {
            counted!(execute_with(|| {
                any!(Mysql: MysqlConnection::connect(&mysql));
                QueryResult::Ok(second)
            }));
            QueryResult::Ok(&mut on_postgres)
        }));
        QueryResult::Ok(&mut on_sqlite)
    }));
    assert!(began.elapsed() < PATIENCE);
    let total = || videos.find(1).select(views.total());
    assert_eq!(total().first(&mut on_sqlite), Ok(101_i64));
    assert_eq!(total().first(&mut on_postgres), Ok(103_i64));
    assert_eq!(total().first(&mut on_mysql), Ok(101_i64));
}

/// An application's enum beside plain connections to its database, all admitted or all named.
#[test]
fn several_types_of_connections_combine() {
    macro_rules! combined {
        ($conn:expr, $combiner:expr, $is_admitted:expr) => {{
            let mut conn = $conn;
            if $is_admitted {
                assert_eq!($combiner.admit(&mut conn), Ok(true));
            }
            for video in (1..=3).cycle().take(120) {
                let count = update(videos.find(video)).set(views.eq(views + 1));
                let count = count.retry(patient());
                let counted = match $is_admitted {
                    true => count.execute(&mut conn),
                    false => count.combine($combiner).execute(&mut conn),
                };
                assert_eq!(counted, Ok(1));
            }
        }};
    }
    macro_rules! on {
        ($kind:ident: $conn:ty) => {
            let (database, mut conn) = schema::database::<$conn>();
            for is_admitted in [true, false] {
                let combiner = &Combiner::new();
                thread::scope(|scope| {
                    for thread in 0..16 {
                        let plain = <$conn>::connect(&database);
                        scope.spawn(move || match thread % 2 {
                            0 => combined!(plain, combiner, is_admitted),
                            _ => combined!(AnyConnection::$kind(plain), combiner, is_admitted),
                        });
                    }
                });
            }
            let totals = videos.order(id).select(views.total());
            let due = [100, 200, 300].map(|before| before + 2 * 16 * 40);
            assert_eq!(totals.load::<i64>(&mut conn), Ok(due.to_vec()));
        };
    }
    on!(Postgres: PgConnection);
    on!(Mysql: MysqlConnection);
    on!(Sqlite: SqliteConnection);
}

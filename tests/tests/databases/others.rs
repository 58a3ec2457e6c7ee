//! The contract on the connections that do not run all cases: other asynchronous ones, those of a pool, an application's own enum. And
//! that enum on every database.

#[path = "."]
mod async_mysql {
    mod contract;
    mod servers;

    use diesel_sharded_tests::awaited as api;

    type Conn = api::Awaited<diesel_async::AsyncMysqlConnection>;

    servers::server_tests!(mysql);
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

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded::{ShardsTable, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, videos as table};
use diesel_sharded_tests::{Database, TestConnection};

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
    assert_eq!(
        update(videos.find(1))
            .set(views.eq(views + 1))
            .execute(conn),
        Ok(1)
    );
    assert_eq!(
        update(videos.filter(slug.eq("a")))
            .set(views.eq(views + 1))
            .execute(conn),
        Ok(1)
    );
    let counted = conn.transaction(|conn| {
        let count = update(videos.filter(views.total().le(102))).set(views.eq(views + 1));
        count.returning((id, views)).get_results::<(i64, i64)>(conn)
    });
    assert_eq!(counted, Ok(vec![(1, 103)]));
    let top = videos
        .select((id, views.total()))
        .order(views.total().desc())
        .limit(2);
    assert_eq!(top.load(conn), Ok(vec![(3_i64, 300_i64), (2, 200)]));
}

fn on_every_database() -> [(Database, AnyConnection); 3] {
    let postgres = PgConnection::database();
    let mysql = MysqlConnection::database();
    let sqlite = SqliteConnection::database();
    let conns = [
        AnyConnection::Postgres(PgConnection::connect(&postgres)),
        AnyConnection::Mysql(MysqlConnection::connect(&mysql)),
        AnyConnection::Sqlite(SqliteConnection::connect(&sqlite)),
    ];
    let [p, m, s] = conns;
    [(postgres, p), (mysql, m), (sqlite, s)]
}

#[test]
fn the_same_code_on_every_database() {
    for (_database, mut conn) in on_every_database() {
        schema::create(&mut conn);
        count_and_read(&mut conn);
    }
}

#[test]
fn migrations_and_folding_on_every_database() {
    for (_database, mut conn) in on_every_database() {
        schema::create(&mut conn);
        let shards_table = ShardsTable::of(table::table);
        update(videos.find(1))
            .set(views.eq(views + 1))
            .execute(&mut conn)
            .unwrap();
        shards_table.drop(&mut conn).unwrap();
        conn.run_pending_migrations(shards_table.migration("1"))
            .unwrap();
        count_and_read_after_one(&mut conn);
        conn.revert_migration(&shards_table.migration("1")).unwrap();
        assert_eq!(videos.find(1).select(views).first(&mut conn), Ok(102_i64));
    }
}

fn count_and_read_after_one(conn: &mut AnyConnection) {
    let total = update(videos.find(1))
        .set(views.eq(views + 1))
        .returning(views)
        .get_result(conn);
    assert_eq!(total, Ok(102_i64));
}

/// A pool of each plain connection type too.
#[test]
fn plain_connections_in_a_pool() {
    fn counted<C>(database: Database)
    where
        C: TestConnection + diesel::r2d2::R2D2Connection + 'static,
        C::Backend: Default,
        ConnectionManager<C>: diesel::r2d2::ManageConnection<Connection = C>,
        diesel_sharded::dsl::Count<
            diesel::dsl::Find<table::table, i64>,
            diesel_sharded::dsl::Plus<table::views>,
        >: diesel::query_dsl::methods::ExecuteDsl<
                diesel::r2d2::PooledConnection<ConnectionManager<C>>,
            >,
    {
        let pool = Pool::builder()
            .max_size(1)
            .build(ConnectionManager::<C>::new(database.url()))
            .unwrap();
        let conn = &mut pool.get().unwrap();
        for _ in 0..3 {
            assert_eq!(
                update(videos.find(1))
                    .set(views.eq(views + 1))
                    .execute(conn),
                Ok(1)
            );
        }
        conn.batch_execute("SELECT 1").unwrap();
    }
    let prepare = |database: Database, mut conn: AnyConnection| {
        schema::create(&mut conn);
        database
    };
    let [(p, pc), (m, mc), (s, sc)] = on_every_database();
    counted::<PgConnection>(prepare(p, pc));
    counted::<MysqlConnection>(prepare(m, mc));
    counted::<SqliteConnection>(prepare(s, sc));
}

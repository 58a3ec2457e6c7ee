//! Connections to MySQL or MariaDB whose statements do not commit by themselves.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_counts::ShardCount;
use diesel_sharded::{Counter, RowCounter, fold, reset, set_total, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection, schema};

type Operation = (&'static str, fn(&mut MysqlConnection) -> QueryResult<()>);

const OPERATIONS: [Operation; 12] = [
    ("by key", |conn| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        count.execute(conn).map(drop)
    }),
    ("by filter", |conn| {
        let count = update(videos.filter(slug.eq("b"))).set(views.eq(views + 1));
        count.execute(conn).map(drop)
    }),
    ("a row back", |conn| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        count.returning(views).get_result::<i64>(conn).map(drop)
    }),
    ("named", |conn| Counter::named("a").increment(conn)),
    ("deleted", |conn| Counter::named("a").delete(conn).map(drop)),
    ("one row", |conn| {
        RowCounter::of(views, 1).add(1, conn).map(drop)
    }),
    ("bounded", |conn| {
        let bounded = RowCounter::of(likes, 1).never_below(0);
        bounded.add(-1, conn).map(drop)
    }),
    ("fold", |conn| fold(videos).run(conn).map(drop)),
    ("set", |conn| {
        set_total(videos.find(1), views, 7).execute(conn).map(drop)
    }),
    ("reset", |conn| {
        reset(videos.find(2)).execute(conn).map(drop)
    }),
    ("a number of shards", |conn| {
        ShardCount::of(likes).resize(3, conn)
    }),
    ("retried", |conn| {
        retry::transaction(conn, RetryPolicy::new(), |conn| {
            let count = update(videos.find(1)).set(views.eq(views + 1));
            count.execute(conn).map(drop)
        })
    }),
];

fn database() -> (Database, MysqlConnection) {
    schema::database_with_counters()
}

fn autocommit(conn: &mut MysqlConnection) -> i64 {
    diesel::select(diesel::dsl::sql::<BigInt>("@@autocommit"))
        .get_result(conn)
        .unwrap()
}

#[test]
fn autocommit_stays_what_it_is() {
    let (_database, mut conn) = database();
    for autocommits in [0, 1] {
        conn.batch_execute(&format!("SET autocommit = {autocommits}"))
            .unwrap();
        for (name, operation) in OPERATIONS {
            operation(&mut conn).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(autocommit(&mut conn), autocommits, "{name}");
        }
        conn.batch_execute("COMMIT").unwrap();
    }
}

#[test]
fn pending_work_is_neither_committed_nor_rolled_back() {
    let (database, mut conn) = database();
    let mut other = MysqlConnection::connect(&database);
    let title_of = |conn: &mut MysqlConnection| {
        let read = videos.find(3).select(title);
        read.first::<String>(conn).unwrap()
    };
    conn.batch_execute("SET autocommit = 0").unwrap();
    for (name, operation) in OPERATIONS {
        for end in ["ROLLBACK", "COMMIT"] {
            let before = title_of(&mut other);
            let edited = diesel::update(videos.find(3)).set(title.eq(name));
            assert_eq!(edited.execute(&mut conn), Ok(1));
            operation(&mut conn).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(title_of(&mut other), before, "{name}");
            assert_eq!(title_of(&mut conn), name);
            conn.batch_execute(end).unwrap();
            let expected = if end == "COMMIT" { name } else { &before };
            assert_eq!(title_of(&mut other), expected, "{name}");
        }
    }
}

/// An operation that opens its own transaction where none is in progress commits it.
#[test]
fn without_pending_work_a_transaction_of_its_own_is_committed() {
    let (database, mut conn) = database();
    let mut other = MysqlConnection::connect(&database);
    conn.batch_execute("SET autocommit = 0").unwrap();
    let total = |conn: &mut MysqlConnection| {
        let read = videos.find(1).select(views.total());
        read.first::<i64>(conn).unwrap()
    };
    set_total(videos.find(1), views, 7)
        .execute(&mut conn)
        .unwrap();
    assert_eq!(total(&mut other), 7);
    let counted: QueryResult<usize> = retry::transaction(&mut conn, RetryPolicy::new(), |conn| {
        update(videos.find(1))
            .set(views.eq(views + 1))
            .execute(conn)
    });
    assert_eq!((counted, total(&mut other)), (Ok(1), 8));
}

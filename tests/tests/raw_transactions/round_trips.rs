//! The statements that a count sends, and the cost of looking for a transaction that Diesel does not know.

use std::sync::{Arc, Mutex};

use diesel::connection::{InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::update;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, schema};

/// The first words of each statement that `work` sends.
fn sent<Conn: Connection>(conn: &mut Conn, work: impl FnOnce(&mut Conn)) -> Vec<String> {
    let sent = Arc::new(Mutex::new(vec![]));
    let writes = Arc::clone(&sent);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            let text = query.to_string();
            let words: Vec<_> = text.split([' ', ';']).take(2).collect();
            writes.lock().unwrap().push(words.join(" "));
        }
    });
    work(conn);
    conn.set_instrumentation(|_: InstrumentationEvent<'_>| {});
    sent.lock().unwrap().clone()
}

macro_rules! by_key_and_by_filter {
    ($conn:ty) => {{
        let database = <$conn>::database();
        let mut conn = <$conn>::connect(&database);
        schema::create(&mut conn);
        let by_key = |conn: &mut $conn| {
            let count = update(videos.find(1)).set(views.eq(views + 1));
            let count = count.shard_choice(ShardChoice::Striped); // which never looks for a lock
            assert_eq!(count.execute(conn), Ok(1));
        };
        let by_filter = |conn: &mut $conn| {
            let count = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
            assert_eq!(count.execute(conn), Ok(1));
        };
        let missing = |conn: &mut $conn| {
            let counted = update(videos.find(99))
                .set(views.eq(views + 1))
                .execute(conn);
            assert_eq!(counted, Ok(0));
        };
        let sent = [
            sent(&mut conn, by_key),
            sent(&mut conn, by_key),
            sent(&mut conn, by_filter),
            sent(&mut conn, missing),
        ];
        (sent, conn, database)
    }};
}

#[test]
fn on_postgres() {
    let (sent, mut conn, _database) = by_key_and_by_filter!(PgConnection);
    let update = "UPDATE \"videos_shards\"";
    let create = "INSERT INTO";
    assert_eq!(sent[0], [update, create, update]);
    assert_eq!(sent[1], [update]);
    assert_eq!(sent[2], ["SELECT 1", "BEGIN", create, update, "COMMIT"]);
    assert_eq!(sent[3], [update, create, update, "SELECT 1"]);
    // Nor does the look depend on a statement that stays prepared.
    conn.set_prepared_statement_cache_size(diesel::connection::CacheSize::Disabled);
    let count = |conn: &mut PgConnection| {
        let count = diesel_sharded::update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
        assert_eq!(count.execute(conn), Ok(1));
    };
    let unprepared = self::sent(&mut conn, count);
    assert_eq!(
        unprepared[unprepared.len() - 4..],
        ["BEGIN", create, update, "COMMIT"]
    );
    conn.batch_execute("BEGIN").unwrap();
    count(&mut conn);
    conn.batch_execute("ROLLBACK").unwrap();
    let total = videos.find(1).select(views.total());
    assert_eq!(total.first::<i64>(&mut conn), Ok(104));
}

#[test]
fn on_mariadb() {
    let (sent, ..) = by_key_and_by_filter!(MysqlConnection);
    let update = "UPDATE `videos_shards`";
    let create = "INSERT INTO";
    let (set, begin, commit) = ("SET TRANSACTION", "BEGIN", "COMMIT");
    assert_eq!(sent[0], [update, set, begin, create, update, commit]);
    assert_eq!(sent[1], [update]);
    assert_eq!(sent[2], [set, begin, create, "UPDATE (SELECT", commit]);
    assert_eq!(
        sent[3],
        [update, set, begin, create, update, "UPDATE (SELECT", commit]
    );
}

#[test]
fn on_sqlite() {
    let (sent, ..) = by_key_and_by_filter!(SqliteConnection);
    let (update, create) = ("UPDATE `videos_shards`", "INSERT INTO");
    let (begin, immediate, commit) = ("BEGIN", "COMMIT ", "COMMIT");
    assert_eq!(sent[0], [update, begin, immediate, create, update, commit]);
    assert_eq!(sent[1], [update]);
    assert_eq!(sent[2], [begin, immediate, create, update, commit]);
    assert_eq!(
        sent[3],
        [update, begin, immediate, create, update, update, commit]
    );
}

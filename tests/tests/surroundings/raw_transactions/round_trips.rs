//! The statements that an increment sends, and the cost of looking for a transaction that Diesel does not know.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{Counter, RowCounter, shard_counts, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{gives, schema};

/// The first words of each statement that `work` sends.
fn sent<Conn: Connection>(conn: &mut Conn, work: impl FnOnce(&mut Conn)) -> Vec<String> {
    let ((), sent) = diesel_sharded_tests::sent(conn, work);
    let words = sent.iter().map(|text| {
        let text = text.split(" -- binds").next().unwrap_or_default();
        text.split([' ', ';']).take(2).collect::<Vec<_>>().join(" ")
    });
    words.collect()
}

/// The statements that each of these updates sends: by key, by key again, by a filter on a parent without shards, the same again, by a filter on
/// two parents, with rows wanted by that filter and by key, and by a key and a slug that are not there.
macro_rules! sent {
    ($conn:ty) => {{
        let (database, mut conn) = schema::database::<$conn>();
        // One thread keeps to one shard, and never looks for a lock.
        macro_rules! count {
            ($rows:expr) => {{
                let count = update($rows).set(views.eq(views + 1));
                count.shard_choice(ShardChoice::Striped)
            }};
        }
        macro_rules! sent_by {
            ($count:expr, $counted:expr) => {
                sent(&mut conn, |conn| {
                    assert_eq!($count.execute(conn), Ok($counted))
                })
            };
            ($count:expr, $of:expr, $row:expr) => {
                sent(&mut conn, |conn| {
                    assert_eq!($count.returning($of).get_result(conn), Ok($row));
                })
            };
        }
        let sent = [
            sent_by!(count!(videos.find(1)), 1),
            sent_by!(count!(videos.find(1)), 1),
            sent_by!(count!(videos.filter(slug.eq("b"))), 1),
            sent_by!(count!(videos.filter(slug.eq("b"))), 1),
            sent_by!(count!(videos.filter(id.le(2))), 2),
            sent_by!(count!(videos.filter(slug.eq("b"))), views, 204_i64),
            sent_by!(count!(videos.find(2)), slug, "b".to_owned()),
            sent_by!(count!(videos.find(99)), 0),
            sent_by!(count!(videos.filter(slug.eq("none"))), 0),
        ];
        (sent, conn, database)
    }};
}

/// The statements of increments with an idempotency key: where the shard is there, of a repeat, and where the shard is missing; then those
/// of counters, of one row and by name, where the shard is there.
macro_rules! sent_with_keys {
    ($conn:ty) => {{
        let (_database, mut conn) = schema::database_with_counters::<$conn>();
        ShardChoice::Striped.set_global(); // this thread's shard, however slow an increment is, and no matter who else counts
        let count = |video: i64, key: &str, conn: &mut $conn| {
            let count = update(videos.find(video)).set(views.eq(views + 1));
            assert_eq!(count.idempotency_key(key).execute(conn), Ok(1));
        };
        count(1, "before", &mut conn); // creates the shard
        let sent = [
            sent(&mut conn, |conn| count(1, "a", conn)),
            sent(&mut conn, |conn| count(1, "a", conn)),
            sent(&mut conn, |conn| count(2, "b", conn)),
        ];
        let totals = videos.order(id).select(views.total());
        assert_eq!(totals.load::<i64>(&mut conn), Ok(vec![102, 201, 300]));
        let (row, named) = (RowCounter::of(views, 3), Counter::named("page"));
        shard_counts::refresh(&mut conn).unwrap(); // so that no increment reads the numbers meanwhile
        let add_to_both = |key: &str, conn: &mut $conn| {
            gives!(row.idempotency_key(format!("row {key}")).add(1, conn), 1);
            gives!(named.idempotency_key(format!("named {key}")).add(1, conn), 1);
        };
        add_to_both("1", &mut conn); // creates the counter, and the shards
        let by_counters = self::sent(&mut conn, |conn| add_to_both("2", conn));
        assert_eq!(row.get(&mut conn), Ok(Some(302)));
        assert_eq!(named.get(&mut conn), Ok(2));
        (sent, by_counters)
    }};
}

#[test]
fn with_keys_on_postgres() {
    let ([there, repeated, missing], by_counters) = sent_with_keys!(PgConnection);
    let (at_once, look) = ("WITH \"sharded_claimed\"", "SELECT 1");
    let (begin, insert, commit) = ("BEGIN", "INSERT INTO", "COMMIT");
    let (update, select) = ("UPDATE \"videos_shards\"", "SELECT \"key\",");
    assert_eq!(there, [at_once]);
    assert_eq!(by_counters, [at_once, at_once]);
    assert_eq!(repeated, [at_once, look, begin, insert, select, commit]);
    let with_shard = [at_once, look, begin, insert, update, insert, update, commit];
    assert_eq!(missing, with_shard);
}

#[test]
fn with_keys_on_mariadb() {
    let ([there, repeated, missing], by_counters) = sent_with_keys!(MysqlConnection);
    let (at_once, set, begin, commit) = ("BEGIN NOT", "SET TRANSACTION", "BEGIN", "COMMIT");
    let (insert, select) = ("INSERT INTO", "SELECT `key`,");
    assert_eq!(there, [at_once]);
    assert_eq!(by_counters, [at_once, at_once]);
    let undo = "/*M!100000 BEGIN";
    let begun = [at_once, undo, set, begin, insert, select];
    assert_eq!(repeated, [&begun[..], &[commit]].concat());
    assert_eq!(missing[..6], begun);
    assert_eq!(missing.last().unwrap(), commit);
}

#[test]
fn on_postgres() {
    let (sent, mut conn, _database) = sent!(PgConnection);
    let (update, create) = ("UPDATE \"videos_shards\"", "INSERT INTO");
    let (with, find) = ("WITH \"sharded_picked\"", "WITH \"sharded_primary\"");
    let (look, begin, commit) = ("SELECT 1", "BEGIN", "COMMIT");
    let expected: [&[&str]; 9] = [
        &[update, create, update],
        &[update],
        &[update, with, find, look, begin, create, update, commit],
        &[update],
        &[update, with],
        &[with],
        &[with],
        &[update, create, update, find],
        &[update, with, find],
    ];
    assert_eq!(sent, expected);
    // Nor does the look for a transaction depend on a statement that stays prepared.
    conn.set_prepared_statement_cache_size(diesel::connection::CacheSize::Disabled);
    let count = |conn: &mut PgConnection| {
        let count = count_on_c(conn);
        assert_eq!(count, Ok(1));
    };
    let unprepared = self::sent(&mut conn, count);
    assert!(unprepared.ends_with(&[begin, create, update, commit].map(str::to_owned)));
    conn.batch_execute("BEGIN").unwrap();
    count(&mut conn);
    conn.batch_execute("ROLLBACK").unwrap();
    let total = videos.find(3).select(views.total());
    assert_eq!(total.first::<i64>(&mut conn), Ok(301));
}

/// Counts on a parent without shards.
fn count_on_c(conn: &mut PgConnection) -> QueryResult<usize> {
    let count = update(videos.filter(slug.eq("c"))).set(views.eq(views + 1));
    count.execute(conn)
}

#[test]
fn on_mariadb() {
    let (sent, ..) = sent!(MysqlConnection);
    let (update, picked) = ("UPDATE `videos_shards`", "UPDATE (SELECT");
    let (create, select) = ("INSERT INTO", "SELECT `videos`.`id`");
    let (set, begin, commit) = ("SET TRANSACTION", "START TRANSACTION", "COMMIT");
    let total = "SELECT (`videos`.`views`";
    let expected: [&[&str]; 9] = [
        &[update, set, begin, create, update, commit],
        &[update],
        &[update, set, begin, create, picked, commit],
        &[update],
        &[update, set, begin, create, picked, commit],
        &[set, begin, select, update, total, commit],
        &[set, begin, update, "SELECT `videos`.`slug`", commit],
        &[update, set, begin, create, update, picked, commit],
        &[update, set, begin, create, picked, commit],
    ];
    assert_eq!(sent, expected);
}

#[test]
fn on_sqlite() {
    let (sent, ..) = sent!(SqliteConnection);
    let (update, create) = ("UPDATE `videos_shards`", "INSERT INTO");
    let (begin, immediate, commit) = ("BEGIN", "COMMIT ", "COMMIT");
    let select = "SELECT `videos`.`id`";
    let total = "SELECT (SELECT";
    let expected: [&[&str]; 9] = [
        &[update, begin, immediate, create, update, commit],
        &[update],
        &[update, begin, immediate, create, update, commit],
        &[update],
        &[update, begin, immediate, create, update, commit],
        &[begin, immediate, select, update, total, commit],
        &[begin, immediate, update, "SELECT `videos`.`slug`", commit],
        &[update, begin, immediate, create, update, update, commit],
        &[update, begin, immediate, create, update, commit],
    ];
    assert_eq!(sent, expected);
}

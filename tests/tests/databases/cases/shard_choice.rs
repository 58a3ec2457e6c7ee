//! Which shards each of the choices uses. The videos are these tests' own, since a process remembers things by key.

use super::support::*;
use diesel_sharded_tests::own_key;
use diesel_sharded_tests::schema::videos::dsl::*;

/// The key of a video of the test's own.
fn inserted(conn: &mut Conn) -> i64 {
    let key = own_key();
    let row = (id.eq(key), slug.eq(key.to_string()), title.eq("Own"));
    insert!(videos, row, conn);
    key
}

fn count(conn: &mut Conn, key: i64, choice: ShardChoice) {
    let count = viewed!(videos.find(key)).shard_choice(choice);
    gives!(count.execute(conn), 1);
}

/// How many shards the video has, and its total.
fn shards_and_total(conn: &mut Conn, key: i64) -> (i64, i64) {
    let shards = videos_shards::table.filter(videos_shards::id.eq(key));
    let shards = shards.count().get_result(conn).unwrap();
    (shards, total_of(key, conn))
}

#[test]
fn one_writer_uses_one_shard() {
    let conn = &mut set_up().conn;
    for choice in [ShardChoice::Adaptive, ShardChoice::Striped] {
        let key = inserted(conn);
        for _ in 0..50 {
            count(conn, key, choice);
        }
        assert_eq!(shards_and_total(conn, key), (1, 50), "{choice:?}");
    }
}

#[test]
fn writers_at_once_use_several_and_the_total_is_exact() {
    let Connected { conn, database } = &mut set_up();
    let key = inserted(conn);
    on_threads(16, database, |_, conn| {
        for _ in 0..100 {
            count(conn, key, ShardChoice::Adaptive);
        }
    });
    let (shards, total) = shards_and_total(conn, key);
    assert_eq!(total, 1600);
    match Conn::version(conn).contains("SQLite") {
        true => assert_eq!(shards, 1), // it has one writer
        false => assert!(shards > 1, "{shards}"),
    }
}

#[test]
fn other_kinds_of_updates_choose_too() {
    let conn = &mut set_up().conn;
    let key = inserted(conn);
    for _ in 0..10 {
        let by_filter = viewed!(videos.filter(slug.eq(key.to_string())));
        let by_filter = by_filter.shard_choice(ShardChoice::Adaptive);
        gives!(by_filter.execute(conn), 1);
        let read_back = viewed!(videos.find(key)).shard_choice(ShardChoice::Adaptive);
        let read_back = read_back.returning(views).get_result::<i64>(conn).done();
        assert!(read_back.is_ok(), "{read_back:?}");
        let boxed = update(videos.find(key)).into_boxed();
        let boxed = boxed.set(views.eq(views + 1));
        let boxed = boxed.shard_choice(ShardChoice::Adaptive);
        gives!(boxed.execute(conn), 1);
    }
    assert_eq!(shards_and_total(conn, key), (1, 30));
    for _ in 0..60 {
        count(conn, key, ShardChoice::Random);
    }
    assert_eq!(shards_and_total(conn, key), (4, 90));
}

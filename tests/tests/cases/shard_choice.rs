//! Which shards each of the choices uses. The videos are these tests' own, since a process remembers things by key.

use crate::api::shard_choice::ShardChoice;
use crate::api::update;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::TestConnection;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::videos_shards;

use super::{Conn, database, on_threads};

fn insert(conn: &mut Conn, key: i64) {
    diesel::insert_into(videos)
        .values((
            id.eq(key),
            slug.eq(key.to_string()),
            title.eq("Own"),
            views.eq(0),
        ))
        .execute(conn)
        .unwrap();
}

fn count(conn: &mut Conn, key: i64, choice: ShardChoice) {
    let counted = update(videos.find(key))
        .set(views.eq(views + 1))
        .shard_choice(choice)
        .execute(conn);
    assert_eq!(counted, Ok(1));
}

/// How many shards the video has, and its total.
fn shards_and_total(conn: &mut Conn, key: i64) -> (i64, i64) {
    let shards = videos_shards::table.filter(videos_shards::id.eq(key));
    (
        shards.count().get_result(conn).unwrap(),
        videos.find(key).select(views.total()).first(conn).unwrap(),
    )
}

#[test]
fn one_writer_uses_one_shard() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    for (choice, key) in [(ShardChoice::Adaptive, 1001), (ShardChoice::Striped, 1002)] {
        insert(conn, key);
        for _ in 0..50 {
            count(conn, key, choice);
        }
        assert_eq!(shards_and_total(conn, key), (1, 50), "{choice:?}");
    }
}

#[test]
fn writers_at_once_use_several_and_the_total_is_exact() {
    let (database, mut conn) = database();
    insert(&mut conn, 1003);
    on_threads(16, &database, |_, conn| {
        for _ in 0..100 {
            count(conn, 1003, ShardChoice::Adaptive);
        }
    });
    let (shards, total) = shards_and_total(&mut conn, 1003);
    assert_eq!(total, 1600);
    match Conn::version(&mut conn).contains("SQLite") {
        true => assert_eq!(shards, 1), // it has one writer
        false => assert!(shards > 1, "{shards}"),
    }
}

#[test]
fn other_kinds_of_updates_choose_too() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    insert(conn, 1004);
    for _ in 0..10 {
        let by_filter = update(videos.filter(slug.eq("1004"))).set(views.eq(views + 1));
        let by_filter = by_filter.shard_choice(ShardChoice::Adaptive);
        assert_eq!(by_filter.execute(conn), Ok(1));
        let read_back = update(videos.find(1004)).set(views.eq(views + 1));
        let read_back = read_back
            .shard_choice(ShardChoice::Adaptive)
            .returning(views);
        assert!(read_back.get_result::<i64>(conn).is_ok());
        let boxed = update(videos.find(1004))
            .into_boxed()
            .set(views.eq(views + 1));
        assert_eq!(
            boxed.shard_choice(ShardChoice::Adaptive).execute(conn),
            Ok(1)
        );
    }
    assert_eq!(shards_and_total(conn, 1004), (1, 30));
    for _ in 0..60 {
        count(conn, 1004, ShardChoice::Random);
    }
    assert_eq!(shards_and_total(conn, 1004), (4, 90));
}

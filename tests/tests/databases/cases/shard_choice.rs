//! Which shards each of the choices uses. The videos are these tests' own, since a process remembers things by key.

use super::support::*;
use diesel_sharded_tests::own_key;
use diesel_sharded_tests::schema::videos::dsl::*;

/// The key of a video of the test's own.
fn inserted(conn: &mut Conn) -> i64 {
    let key = own_key();
    insert!(
        videos,
        (
            id.eq(key),
            slug.eq(key.to_string()),
            title.eq("Own"),
            views.eq(0),
        ),
        conn
    );
    key
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
        total_of(key, conn),
    )
}

#[test]
fn one_writer_uses_one_shard() {
    let (_database, conn) = &mut database();
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
    let (database, mut conn) = database();
    let key = inserted(&mut conn);
    on_threads(16, &database, |_, conn| {
        for _ in 0..100 {
            count(conn, key, ShardChoice::Adaptive);
        }
    });
    let (shards, total) = shards_and_total(&mut conn, key);
    assert_eq!(total, 1600);
    match Conn::version(&mut conn).contains("SQLite") {
        true => assert_eq!(shards, 1), // it has one writer
        false => assert!(shards > 1, "{shards}"),
    }
}

#[test]
fn other_kinds_of_updates_choose_too() {
    let (_database, conn) = &mut database();
    let key = inserted(conn);
    for _ in 0..10 {
        let by_filter = update(videos.filter(slug.eq(key.to_string()))).set(views.eq(views + 1));
        let by_filter = by_filter.shard_choice(ShardChoice::Adaptive);
        assert_eq!(by_filter.execute(conn), Ok(1));
        let read_back = update(videos.find(key)).set(views.eq(views + 1));
        let read_back = read_back
            .shard_choice(ShardChoice::Adaptive)
            .returning(views);
        assert!(read_back.get_result::<i64>(conn).is_ok());
        let boxed = update(videos.find(key))
            .into_boxed()
            .set(views.eq(views + 1));
        assert_eq!(
            boxed.shard_choice(ShardChoice::Adaptive).execute(conn),
            Ok(1)
        );
    }
    assert_eq!(shards_and_total(conn, key), (1, 30));
    for _ in 0..60 {
        count(conn, key, ShardChoice::Random);
    }
    assert_eq!(shards_and_total(conn, key), (4, 90));
}

//! A field has one counter cache, and its shards table stays while it has one.

use super::api::counter_cache::literal;
use super::support::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded_tests::schema::videos;

diesel::table! {
    stars (id) {
        id -> BigInt,
        video_id -> BigInt,
    }
}

diesel::table! {
    duels (id) {
        id -> BigInt,
        challenger -> BigInt,
        opponent -> BigInt,
    }
}

const COMMENTS: &str = "CREATE TABLE comments (id BIGINT PRIMARY KEY, video_id BIGINT NOT NULL)";
const STARS: &str = "CREATE TABLE stars (id BIGINT PRIMARY KEY, video_id BIGINT NOT NULL)";

macro_rules! comments {
    () => {
        CounterCache::of(videos::likes).counts(comments::video_id)
    };
}

macro_rules! stars {
    () => {
        CounterCache::of(videos::likes).counts(stars::video_id)
    };
}

fn run(sql: &str, conn: &mut Conn) {
    conn.batch_execute(sql).unwrap();
}

fn likes(conn: &mut Conn) -> Vec<i32> {
    let totals = videos::table.select(videos::likes.total());
    totals.order(videos::id).load(conn).unwrap()
}

const NAME: &str = "comments_video_id_videos_likes";

/// The error names this cache of `videos_shards`.
macro_rules! refused_by_comments {
    ($result:expr) => {
        refused!($result, Error::HasCounterCache { table, cache } if table == "videos_shards" && cache == NAME)
    };
}

#[test]
fn a_field_has_one_cache() {
    let conn = &mut set_up().conn;
    run(STARS, conn);
    comments!().create(conn).unwrap();
    comments!().verify().repair(conn).unwrap();
    let some = || comments!().filter(comments::id.gt(literal(1_i64)));
    refused_by_comments!(comments!().create(conn).done());
    refused_by_comments!(comments!().shards(1).create(conn).done());
    refused_by_comments!(some().create(conn).done());
    refused_by_comments!(stars!().create(conn).done());
    let migration = stars!().migration("20260101000000");
    let refused = conn.run_pending_migrations(migration).unwrap_err();
    assert!(refused.to_string().contains("counter cache"), "{refused}");
    // Another field is free, and what was not created takes nothing with it.
    let of_views = CounterCache::of(videos::views).counts(stars::video_id);
    of_views.create(conn).unwrap();
    some().drop(conn).unwrap();
    stars!().drop(conn).unwrap();
    run("INSERT INTO comments VALUES (10, 1), (11, 3)", conn);
    run("INSERT INTO stars VALUES (10, 1)", conn);
    assert_eq!(likes(conn), [1, 0, 3]);
    gives!(comments!().verify().drifts(conn), vec![]);
    // Where the triggers went with a table that was built anew, they are created again, and another cache may take their place.
    run("DROP TABLE comments", conn);
    run(COMMENTS, conn);
    comments!().create(conn).unwrap();
    assert_eq!(comments!().verify().repair(conn).unwrap().len(), 2);
    run("INSERT INTO comments VALUES (10, 2)", conn);
    assert_eq!(likes(conn), [0, 1, 0]);
    comments!().drop(conn).unwrap();
    some().create(conn).unwrap();
    comments!().drop(conn).unwrap();
    let created = stars!().create(conn).done();
    refused!(created, Error::HasCounterCache { cache, .. } if cache.starts_with(NAME));
    some().drop(conn).unwrap();
    stars!().create(conn).unwrap();
}

/// Of caches that are created at once, one is.
#[test]
fn of_racing_caches_one_is_created() {
    let Connected { conn, database } = &mut set_up();
    run(STARS, conn);
    let created = AtomicI64::new(0);
    on_threads(4, database, |number, conn| {
        let outcome = match number % 2 {
            0 => comments!().create(conn).done(),
            _ => stars!().create(conn).done(),
        };
        match outcome {
            Ok(()) => drop(created.fetch_add(1, Ordering::SeqCst)),
            refused => refused!(refused, Error::HasCounterCache { .. }),
        }
    });
    assert_eq!(created.into_inner(), 1);
}

#[test]
fn the_shards_table_of_a_cache_is_not_dropped() {
    let conn = &mut set_up().conn;
    comments!().create(conn).unwrap();
    comments!().verify().repair(conn).unwrap();
    let table = ShardsTable::of(videos::table);
    refused_by_comments!(table.drop(conn).done());
    let migration = table.migration("20260101000000");
    let refused = conn.revert_migration(&migration).unwrap_err();
    assert!(refused.to_string().contains("counter cache"), "{refused}");
    run("INSERT INTO comments VALUES (10, 1)", conn);
    assert_eq!(likes(conn), [1, 0, 2]);
    comments!().drop(conn).unwrap();
    table.drop(conn).unwrap();
    run("INSERT INTO comments VALUES (11, 1)", conn);
    let bases = videos::table.select(videos::likes).order(videos::id);
    assert_eq!(bases.load::<i32>(conn), Ok(vec![1, 0, 2]));
}

/// Two foreign keys of one table are two fields, whose totals are added.
#[test]
fn two_foreign_keys_count_into_two_fields() {
    let conn = &mut set_up().conn;
    run(
        "CREATE TABLE duels (id BIGINT PRIMARY KEY, challenger BIGINT NOT NULL, opponent BIGINT NOT NULL)",
        conn,
    );
    let challenged = CounterCache::of(videos::likes).counts(duels::challenger);
    challenged.create(conn).unwrap();
    let same = CounterCache::of(videos::likes).counts(duels::opponent);
    let refused = same.create(conn).unwrap_err().to_string();
    assert!(
        refused.contains("another foreign key into another field"),
        "{refused}"
    );
    let opposed = CounterCache::of(videos::views).counts(duels::opponent);
    opposed.create(conn).unwrap();
    edit!(
        videos::table,
        (videos::views.eq(0), videos::likes.eq(0)),
        conn
    );
    for (id, challenger, opponent) in [(1, 1, 2), (2, 1, 3), (3, 2, 1)] {
        let ids = (
            duels::id.eq(id),
            duels::challenger.eq(challenger),
            duels::opponent.eq(opponent),
        );
        insert!(duels::table, ids, conn);
    }
    let both = videos::table.select((videos::likes.total(), videos::views.total()));
    let both = both.order(videos::id).load::<(i32, i64)>(conn).unwrap();
    let duels: Vec<_> = both
        .iter()
        .map(|(one, other)| i64::from(*one) + other)
        .collect();
    assert_eq!(duels, [3, 2, 1]);
}

//! A field has one counter cache, and its shards table stays while it has one.

use std::sync::Mutex;

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

fn likes(conn: &mut Conn) -> Vec<i32> {
    let totals = videos::table.select(videos::likes.total());
    totals.order(videos::id).load(conn).unwrap()
}

/// Whether the error names this cache of `videos_shards`.
fn names(error: &Error, name: &str) -> bool {
    matches!(error, Error::HasCounterCache { table, cache } if table == "videos_shards" && cache == name)
}

const NAME: &str = "comments_video_id_videos_likes";

#[test]
fn a_field_has_one_cache() {
    let (_database, conn) = &mut database();
    conn.batch_execute(STARS).unwrap();
    comments!().create(conn).unwrap();
    comments!().verify().repair(conn).unwrap();
    let some = || comments!().filter(comments::id.gt(literal(1_i64)));
    let refused = [
        comments!().create(conn),
        comments!().shards(1).create(conn),
        some().create(conn),
        stars!().create(conn),
    ];
    for refused in refused {
        let error = Error::from(refused.unwrap_err());
        assert!(names(&error, NAME), "{error:?}");
    }
    let migration = stars!().migration("20260101000000");
    let refused = conn.run_pending_migrations(migration).unwrap_err();
    assert!(refused.to_string().contains("counter cache"), "{refused}");
    // Another field is free, and what was not created takes nothing with it.
    CounterCache::of(videos::views)
        .counts(stars::video_id)
        .create(conn)
        .unwrap();
    some().drop(conn).unwrap();
    stars!().drop(conn).unwrap();
    conn.batch_execute("INSERT INTO comments VALUES (10, 1), (11, 3)")
        .unwrap();
    conn.batch_execute("INSERT INTO stars VALUES (10, 1)")
        .unwrap();
    assert_eq!(likes(conn), [1, 0, 3]);
    assert_eq!(comments!().verify().drifts(conn), Ok(vec![]));
    // Where the triggers went with a table that was built anew, they are created again, and another cache may take their place.
    conn.batch_execute("DROP TABLE comments").unwrap();
    conn.batch_execute(COMMENTS).unwrap();
    comments!().create(conn).unwrap();
    assert_eq!(comments!().verify().repair(conn).unwrap().len(), 2);
    conn.batch_execute("INSERT INTO comments VALUES (10, 2)")
        .unwrap();
    assert_eq!(likes(conn), [0, 1, 0]);
    comments!().drop(conn).unwrap();
    some().create(conn).unwrap();
    comments!().drop(conn).unwrap();
    let error = Error::from(stars!().create(conn).unwrap_err());
    assert_matches!(&error, Error::HasCounterCache { cache, .. } if cache.starts_with(NAME));
    some().drop(conn).unwrap();
    stars!().create(conn).unwrap();
}

/// Of caches that are created at once, one is.
#[test]
fn of_racing_caches_one_is_created() {
    let (database, mut conn) = database();
    conn.batch_execute(STARS).unwrap();
    let outcomes = Mutex::new(vec![]);
    on_threads(4, &database, |number, conn| {
        let created = match number % 2 {
            0 => comments!().create(conn),
            _ => stars!().create(conn),
        };
        outcomes.lock().unwrap().push(created.map_err(Error::from));
    });
    let outcomes = outcomes.into_inner().unwrap();
    let created = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(created, 1, "{outcomes:?}");
    for error in outcomes.into_iter().filter_map(Result::err) {
        assert_matches!(error, Error::HasCounterCache { .. });
    }
}

#[test]
fn the_shards_table_of_a_cache_is_not_dropped() {
    let (_database, conn) = &mut database();
    comments!().create(conn).unwrap();
    comments!().verify().repair(conn).unwrap();
    let table = ShardsTable::of(videos::table);
    let error = Error::from(table.drop(conn).unwrap_err());
    assert!(names(&error, NAME), "{error:?}");
    let refused = conn
        .revert_migration(&table.migration("20260101000000"))
        .unwrap_err();
    assert!(refused.to_string().contains("counter cache"), "{refused}");
    conn.batch_execute("INSERT INTO comments VALUES (10, 1)")
        .unwrap();
    assert_eq!(likes(conn), [1, 0, 2]);
    comments!().drop(conn).unwrap();
    table.drop(conn).unwrap();
    conn.batch_execute("INSERT INTO comments VALUES (11, 1)")
        .unwrap();
    let bases = videos::table.select(videos::likes).order(videos::id);
    assert_eq!(bases.load::<i32>(conn), Ok(vec![1, 0, 2]));
}

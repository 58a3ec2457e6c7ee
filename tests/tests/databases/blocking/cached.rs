//! The crate's own counters behind a cache.

use diesel::prelude::*;
use diesel_sharded::cached::{Cached, MokaCache};
use diesel_sharded::{Counter, RowCounter};
use diesel_sharded_tests::insert;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{Day, downloads};

use super::{count, database_with_counters};

#[test]
fn fields_of_rows_and_named_counters() {
    let (_database, conn) = &mut database_with_counters();
    let cached = Cached::new(MokaCache::new(100));
    let of_video_1 = RowCounter::of(views, 1);
    let named = Counter::named("x");
    assert_eq!(cached.get(&of_video_1, conn), Ok(100));
    assert_eq!(cached.get(&named, conn), Ok(0));
    assert_eq!(cached.add(&of_video_1, 5, conn), Ok(1));
    assert_eq!(cached.add(&named, -3, conn), Ok(1));
    // Counts that bypass the cache do not show: the cache answers these reads.
    count(1, 1000, conn).unwrap();
    named.add(1000, conn).unwrap();
    assert_eq!(cached.get(&of_video_1, conn), Ok(105));
    assert_eq!(cached.get(&named, conn), Ok(-3));
    cached.forget(&of_video_1, conn);
    assert_eq!(cached.get(&of_video_1, conn), Ok(1105));
    // Another field, another row, another table.
    assert_eq!(cached.get(&RowCounter::of(likes, 1), conn), Ok(1));
    assert_eq!(cached.get(&RowCounter::of(views, 2), conn), Ok(200));
    assert_eq!(cached.get(&Counter::named("y"), conn), Ok(0));
    let absent = RowCounter::of(views, 99);
    assert_eq!(
        cached.get(&absent, conn),
        Err(diesel::result::Error::NotFound)
    );
    assert_eq!(cached.add(&absent, 1, conn), Ok(0));
    let composite = RowCounter::of(downloads::number, (1, Day(2)));
    insert!(
        downloads::table,
        (downloads::version.eq(1), downloads::day.eq(2)),
        conn
    );
    assert_eq!(cached.add(&composite, 2, conn), Ok(1));
    assert_eq!(cached.get(&composite, conn), Ok(2));
    assert_eq!(cached.failures(), 0);
}

#[test]
fn a_repeat_leaves_the_cached_total_as_it_is() {
    let (_database, conn) = &mut database_with_counters();
    let cached = Cached::new(MokaCache::new(100));
    let (of_video_1, named) = (RowCounter::of(views, 1), Counter::named("x"));
    assert_eq!(cached.get(&of_video_1, conn), Ok(100));
    assert_eq!(cached.get(&named, conn), Ok(0));
    for counted in [1, 0, 0] {
        let request = of_video_1.idempotency_key("views");
        assert_eq!(cached.add(&request, 5, conn), Ok(counted));
        let request = named.idempotency_key("named");
        assert_eq!(cached.add(&request, -3, conn), Ok(counted));
    }
    for exact in [false, true] {
        if exact {
            cached.forget(&of_video_1, conn);
            cached.forget(&named, conn);
        }
        assert_eq!(cached.get(&of_video_1, conn), Ok(105));
        assert_eq!(cached.get(&named, conn), Ok(-3));
    }
}

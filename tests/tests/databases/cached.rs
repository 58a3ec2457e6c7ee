//! The crate's own counters behind a cache in the process.

use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded::cached::{Cached, MokaCache, TotalCache};
use diesel_sharded::{Counter, RowCounter};
use diesel_sharded_tests::fixture::Fixture;
use diesel_sharded_tests::insert;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{Day, downloads};

/// The first total is kept, and only one that is there is incremented: below zero, and to the ends of the range.
#[test]
fn a_cache_keeps_the_first_total_and_increments_it() {
    let cache = MokaCache::new(1_000);
    let increment = |by| {
        cache.increment_if_present("a", by).unwrap();
        cache.get("a").unwrap()
    };
    assert_eq!(increment(5), None);
    for total in [1, 2] {
        let minute = Duration::from_secs(60);
        cache.add_if_absent("a", total, minute).unwrap();
    }
    let totals = [0, 5, -8, i64::MAX, 2 - i64::MAX, i64::MIN].map(increment);
    assert_eq!(totals, [1, 6, -2, i64::MAX - 2, 0, i64::MIN].map(Some));
    cache.remove("a").unwrap();
    cache.remove("b").unwrap();
    assert_eq!(increment(1), None);
}

#[test]
fn fields_of_rows_and_named_counters() {
    let [conn] = &mut *Fixture::<SqliteConnection, _>::with_counters();
    let cached = Cached::new(MokaCache::new(100));
    let of_video_1 = RowCounter::of(views, 1);
    let named = Counter::named("x");
    assert_eq!(cached.get(&of_video_1, conn), Ok(100));
    assert_eq!(cached.get(&named, conn), Ok(0));
    assert_eq!(cached.add(&of_video_1, 5, conn), Ok(1));
    assert_eq!(cached.add(&named, -3, conn), Ok(1));
    // Increments that bypass the cache do not show: the cache answers these reads.
    of_video_1.add(1000, conn).unwrap();
    named.add(1000, conn).unwrap();
    // Nor do repeats of one request count in the cache.
    for counted in [1, 0, 0] {
        let request = of_video_1.idempotency_key("views");
        assert_eq!(cached.add(&request, 10, conn), Ok(counted));
        let request = named.idempotency_key("named");
        assert_eq!(cached.add(&request, -10, conn), Ok(counted));
    }
    for bypassed in [0, 1000] {
        assert_eq!(cached.get(&of_video_1, conn), Ok(115 + bypassed));
        assert_eq!(cached.get(&named, conn), Ok(-13 + bypassed));
        cached.forget(&of_video_1, conn);
        cached.forget(&named, conn);
    }
    // Another field, another row, another table.
    assert_eq!(cached.get(&RowCounter::of(likes, 1), conn), Ok(1));
    assert_eq!(cached.get(&RowCounter::of(views, 2), conn), Ok(200));
    assert_eq!(cached.get(&Counter::named("y"), conn), Ok(0));
    let absent = RowCounter::of(views, 99);
    assert_eq!(cached.get(&absent, conn), Err(diesel::NotFound));
    assert_eq!(cached.add(&absent, 1, conn), Ok(0));
    let day = (downloads::version.eq(1), downloads::day.eq(2));
    insert!(downloads::table, day, conn);
    let composite = RowCounter::of(downloads::number, (1, Day(2)));
    assert_eq!(cached.add(&composite, 2, conn), Ok(1));
    assert_eq!(cached.get(&composite, conn), Ok(2));
}

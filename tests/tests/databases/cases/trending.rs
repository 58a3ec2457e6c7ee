//! Scores that fade: their order is that of exact decay, and a new landmark neither loses nor doubles an event beside writers and folds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::api::trending::Decay;
use super::support::*;
use diesel_sharded_tests::counted_table;
use proptest::prelude::*;

counted_table! {
    #[sharded(shards = 4)]
    pub Post of posts (id) {
        id -> BigInt = i64,
        #[sharded] hot -> Double = f64,
        #[sharded] hot_2 -> Double = f64,
    }
}

use self::posts::dsl::*;

const HOUR: Duration = Duration::from_secs(3_600);

const POSTS: i64 = 4;

/// Posts 1 to 4.
fn with_posts() -> Connected<Conn> {
    let mut fixture = set_up();
    let conn = &mut fixture.conn;
    let doubles =
        ["hot", "hot_2"].map(|name| format!("{name} DOUBLE PRECISION NOT NULL DEFAULT 0"));
    let table = format!(
        "CREATE TABLE posts (id BIGINT PRIMARY KEY, {})",
        doubles.join(", ")
    );
    conn.batch_execute(&table).unwrap();
    ShardsTable::of(posts).create(conn).unwrap();
    for post in 1..=POSTS {
        insert!(posts, id.eq(post), conn);
    }
    fixture
}

fn at(hours: f64) -> SystemTime {
    UNIX_EPOCH + HOUR.mul_f64(hours)
}

/// Events of 400 half-lives, each on a post, with folds in between.
fn events() -> impl Strategy<Value = Vec<(i64, f64, bool)>> {
    let event = (1..=POSTS, 0.0..400.0, any::<bool>());
    proptest::collection::vec(event, 1..24)
}

#[test]
fn the_order_is_that_of_exact_decay() {
    let database = with_posts();
    let conn = std::cell::RefCell::new(database.conn);
    for_all(60, (events(), 400.0..700.0_f64), |(events, now)| {
        let conn = &mut *conn.borrow_mut();
        set_total(posts, hot, 0.0).execute(conn).unwrap();
        let decay = Decay::half_life(HOUR, UNIX_EPOCH);
        let mut exactly = [0.0; POSTS as usize];
        for (post, hour, folds) in events {
            let weight = decay.weight(at(hour)).unwrap();
            count!(posts.find(post), hot.eq(hot + weight), conn);
            exactly[post as usize - 1] += (hour - now).exp2();
            if folds {
                fold(posts).run(conn).unwrap();
            }
        }
        fold(posts).run(conn).unwrap();
        let sorted = posts.select((id, hot.total())).order(hot.estimate().desc());
        let sorted = sorted.load::<(i64, f64)>(conn).unwrap();
        let exact = |post: i64| exactly[post as usize - 1];
        for (post, total) in &sorted {
            let (value, exact) = (decay.value(*total, at(now)), exact(*post));
            prop_assert!(
                (value - exact).abs() <= exact * 1e-9,
                "{} and {}",
                value,
                exact
            );
        }
        for pair in sorted.windows(2) {
            let [before, after] = [pair[0].0, pair[1].0].map(exact);
            prop_assert!(before >= after * (1.0 - 1e-9), "{:?}", sorted);
        }
        Ok(())
    });
}

/// Folds until no row is busy.
fn fold_all(conn: &mut Conn) {
    loop {
        let folded = fold(posts).run(conn).unwrap();
        assert!(folded.unfit.is_empty(), "{:?}", folded.unfit);
        if folded.busy.is_empty() {
            return;
        }
    }
}

#[test]
fn a_new_landmark_neither_loses_nor_doubles_an_event() {
    const WRITERS: i64 = 6;
    const EACH: i64 = 30;
    let Connected { conn, database } = &mut with_posts();
    let old = Decay::half_life(HOUR, UNIX_EPOCH);
    let new = old.later(400);
    // Sums of the same powers of two are exact.
    let [weight, new_weight] = [old, new].map(|decay| decay.weight(at(410.0)).unwrap());
    // The release that counts by the old landmark alone.
    for _ in 0..EACH {
        count!(posts, hot.eq(hot + weight), conn);
    }
    let write = |_, conn: &mut Conn| {
        for round in 0..EACH {
            let weights = (hot.eq(hot + weight), hot_2.eq(hot_2 + new_weight));
            count!(posts.find(1 + round % 2), weights, conn);
        }
    };
    on_threads_beside(WRITERS, database, write, 2, |other, rounds, conn| {
        for _ in rounds {
            fold_all(conn);
            if other == 0 {
                let factor = Decay::factor(400);
                let least = f64::MIN_POSITIVE / factor;
                let rows = posts.filter(hot.ge(least).or(hot.le(-least)));
                edit!(rows, hot_2.eq(hot * factor), conn);
            }
        }
    });
    let hot_ones = (EACH + WRITERS * EACH / 2) as f64;
    let events = [hot_ones, hot_ones, EACH as f64, EACH as f64];
    let totals = posts.select((hot.total(), hot_2.total())).order(id);
    let expected = events.map(|n| (n * 2.0_f64.powi(410), n * 1024.0));
    assert_eq!(totals.load::<(f64, f64)>(conn), Ok(expected.to_vec()));
    fold_all(conn);
    let bases = posts.select((hot, hot_2)).order(id);
    assert_eq!(bases.load::<(f64, f64)>(conn), Ok(expected.to_vec()));
}

#[test]
fn a_weight_beyond_the_range_is_not_counted() {
    let conn = &mut with_posts().conn;
    let decay = Decay::half_life(HOUR, UNIX_EPOCH);
    let view = |hours: f64, conn: &mut Conn| {
        let weight = decay.weight(at(hours))?;
        update(posts.find(1))
            .set(hot.eq(hot + weight))
            .execute(conn)
            .done()
    };
    assert_eq!(view(899.9, conn), Ok(1));
    refused!(view(900.0, conn), Error::LandmarkTooFar { half_lives: 900 });
    let total = posts.find(1).select(hot.total()).first::<f64>(conn);
    assert!(total.unwrap() < 2.0_f64.powi(900));
}

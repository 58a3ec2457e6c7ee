//! Sums of doubles round, and a fold changes no total of theirs.

use super::support::*;
use bigdecimal::{BigDecimal, FromPrimitive, ToPrimitive};
use diesel_sharded_tests::schema::measures::dsl::*;
use diesel_sharded_tests::schema::measures_shards;
use proptest::prelude::*;

fn set_base(n: f64, conn: &mut Conn) {
    edit!(measures, real.eq(n), conn);
}

fn add(n: f64, conn: &mut Conn) {
    count!(measures.find(1), real.eq(real + n), conn);
}

fn total(conn: &mut Conn) -> f64 {
    measures.select(real.total()).first(conn).unwrap()
}

fn base(conn: &mut Conn) -> f64 {
    measures.select(real).first(conn).unwrap()
}

/// What the shards hold.
fn rests(conn: &mut Conn) -> Vec<f64> {
    let rests = measures_shards::table.order(measures_shards::shard);
    rests.select(measures_shards::real).load(conn).unwrap()
}

fn fold_all(conn: &mut Conn) -> (u64, usize) {
    let folded = fold(measures).run(conn).unwrap();
    (folded.parents, folded.unfit.len())
}

/// Each amount is below half of the distance between the base and the next double.
#[test]
fn small_amounts_add_up_beside_a_large_base() {
    let conn = &mut set_up().conn;
    set_base(1e17, conn);
    for _ in 0..100 {
        add(1.0, conn);
        fold_all(conn);
    }
    let held = base(conn) as i128 + rests(conn).iter().map(|rest| *rest as i128).sum::<i128>();
    assert_eq!(held, 100_000_000_000_000_100);
    assert_eq!(total(conn), 1e17 + 100.0);
    add(-100.0, conn);
    assert_eq!((fold_all(conn), total(conn)), ((1, 0), 1e17));
}

/// A fold that finds nothing else leaves it as it is, and looks at no row twice.
#[test]
fn a_rest_is_nothing_to_fold() {
    let conn = &mut set_up().conn;
    set_base(1e17, conn);
    add(17.0, conn);
    assert_eq!(fold_all(conn), (1, 0));
    assert_eq!((base(conn), total(conn)), (1e17 + 16.0, 1e17 + 16.0));
    for _ in 0..2 {
        let folded = fold(measures).run(conn).unwrap();
        assert_eq!((folded.parents, folded.last), (0, None));
        let folded = fold(measures.find(1)).run(conn).unwrap();
        assert_eq!((folded.parents, folded.last), (0, None));
    }
    // Beside another field's increment it is looked at, and stays.
    count!(measures.find(1), large.eq(large + 1), conn);
    assert_eq!(fold_all(conn), (1, 0));
    assert!(rests(conn).contains(&1.0));
    // A base that is written by others lets it in again.
    set_base(0.0, conn);
    assert_eq!((fold_all(conn), base(conn)), ((1, 0), 1.0));
    assert!(rests(conn).iter().all(|rest| *rest == 0.0));
}

/// As before the shards table is dropped.
#[test]
fn a_fold_that_keeps_no_shards_drops_it() {
    let conn = &mut set_up().conn;
    set_base(1e17, conn);
    for n in [17.0, 1.0] {
        add(n, conn);
        fold_all(conn);
    }
    let folded = fold(measures).keep_shards(0).run(conn).unwrap();
    assert!(folded.shards_removed > 0 && folded.unfit.is_empty());
    assert_eq!((rests(conn), base(conn)), (vec![], 1e17 + 16.0));
    assert_eq!(fold(measures).keep_shards(0).run(conn).unwrap().last, None);
}

#[test]
fn a_total_out_of_range_stays_on_its_shards() {
    let conn = &mut set_up().conn;
    set_base(1e308, conn);
    for _ in 0..2 {
        add(5e307, conn);
    }
    assert_eq!(fold_all(conn), (0, 1));
    assert_eq!(base(conn), 1e308);
    add(-5e307, conn);
    assert_eq!((fold_all(conn), total(conn)), ((1, 0), 1.5e308));
}

/// Doubles of every magnitude that a sum may have.
fn amounts() -> impl Strategy<Value = Vec<(f64, bool)>> {
    let like_it = (-9.0..9.0f64, -30..30i32).prop_map(|(n, exponent)| n * 10f64.powi(exponent));
    let whole = (-9..9i64).prop_map(|n| n as f64);
    let amount = prop_oneof![4 => like_it, 3 => whole, 1 => Just(5e-324), 1 => Just(-2.5e-310), 1 => Just(1e300)];
    proptest::collection::vec((amount, any::<bool>()), 1..24)
}

/// No fold changes a total: after each it is the one before, and all amounts are there that the shards could hold.
#[test]
fn a_fold_changes_no_total() {
    let database = set_up();
    let conn = std::cell::RefCell::new(database.conn);
    for_all(60, (amounts(), -9e17..9e17f64), |(amounts, begin)| {
        let conn = &mut *conn.borrow_mut();
        delete!(measures_shards::table, conn);
        set_base(begin, conn);
        let decimal = |n: f64| BigDecimal::from_f64(n).unwrap();
        let (mut exactly, mut sizes) = (decimal(begin), 0.0);
        for (n, folds) in &amounts {
            add(*n, conn);
            exactly += decimal(*n);
            sizes += n.abs();
            if *folds {
                let before = total(conn);
                prop_assert_eq!(fold_all(conn).1, 0);
                prop_assert_eq!(total(conn), before);
                let moved = rests(conn).iter().fold(base(conn), |sum, rest| sum + rest);
                prop_assert_eq!(moved, base(conn));
            }
        }
        let held = rests(conn)
            .into_iter()
            .fold(decimal(base(conn)), |sum, rest| sum + decimal(rest));
        let lost = (held - exactly).to_f64().unwrap().abs();
        // What additions of the amounts to each other round, whatever the base is.
        let rounded = sizes * f64::EPSILON * amounts.len() as f64;
        prop_assert!(lost <= rounded, "{} of {}", lost, rounded);
        Ok(())
    });
}

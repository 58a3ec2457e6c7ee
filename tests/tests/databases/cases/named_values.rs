//! Named counters: new totals, bounds, and the greatest of them.

use super::support::*;
use diesel_sharded_tests::sent;

fn names(conn: &mut Conn) -> Vec<(String, i64)> {
    Counter::list("").load(conn).unwrap()
}

fn row(name: &str, total: i64) -> (String, i64) {
    (name.to_owned(), total)
}

#[test]
fn adding_0_sends_nothing() {
    let (_database, conn) = &mut database_with_counters();
    let counter = Counter::named("x");
    let (added, statements) = sent(conn, |conn| counter.add(0, conn));
    assert_eq!((added, statements.len()), (Ok(()), 0));
    let (added, statements) = sent(conn, |conn| Counter::named("x").never_below(0).add(0, conn));
    assert_eq!((added, statements.len()), (Ok(true), 0));
    assert_eq!(counter.add_and_get(0, conn), Ok(0));
    assert_eq!(names(conn), []);
    counter.add(5, conn).unwrap();
    assert_eq!(counter.add_and_get(0, conn), Ok(5));
    assert!(Counter::named("").add(0, conn).is_err());
    // A key is kept all the same: it stands for this request and no other.
    let keyed = Counter::named("y").idempotency_key("k");
    assert_eq!(keyed.add(0, conn), Ok(1));
    let reused = keyed.add(1, conn).map_err(Error::from);
    assert!(matches!(reused, Err(Error::IdempotencyKeyReused)));
    assert_eq!(names(conn), [row("x", 5)]);
}

#[test]
fn the_new_total_comes_back() {
    let (_database, conn) = &mut database_with_counters();
    let tickets = Counter::named("tickets");
    assert_eq!(tickets.add_and_get(1, conn), Ok(1));
    assert_eq!(tickets.add_and_get(41, conn), Ok(42));
    assert_eq!(tickets.fold(conn).unwrap().parents, 1);
    assert_eq!(tickets.add_and_get(-100, conn), Ok(-58));
    tickets.set(7, conn).unwrap();
    assert_eq!(tickets.add_and_get(1, conn), Ok(8));
    tickets.delete(conn).unwrap();
    rolled_back(conn, |conn| assert_eq!(tickets.add_and_get(3, conn), Ok(3)));
    assert_eq!(names(conn), []);
}

#[test]
fn new_totals_of_8_writers_rise() {
    let (database, mut conn) = database_with_counters();
    totals_rise(0, &database, |_, conn| {
        Counter::named("x").add_and_get(1, conn).unwrap()
    });
    assert_eq!(Counter::named("x").get(&mut conn), Ok(160));
}

#[test]
fn stays_within_bounds_from_its_first_count_on() {
    let (_database, conn) = &mut database_with_counters();
    let seats = || Counter::named("seats").never_below(0).never_above(10);
    // A count that is refused creates nothing.
    assert_eq!(seats().add(-1, conn), Ok(false));
    assert_eq!(seats().add(11, conn), Ok(false));
    assert_eq!(names(conn), []);
    assert_eq!(seats().add(10, conn), Ok(true));
    assert_eq!(seats().add(1, conn), Ok(false));
    assert_eq!(Counter::named("seats").get(conn), Ok(10));
    Counter::named("seats").fold(conn).unwrap();
    assert_eq!(seats().add(-10, conn), Ok(true));
    assert_eq!(seats().add(-1, conn), Ok(false));
    Counter::named("seats").delete(conn).unwrap();
    assert_eq!(seats().add(4, conn), Ok(true));
    assert_eq!(names(conn), [row("seats", 4)]);
    let debt = Counter::named("debt").never_above(0);
    rolled_back(conn, |conn| assert_eq!(debt.add(-3, conn), Ok(true)));
    assert_eq!(names(conn), [row("seats", 4)]);
    let unnamed = Counter::named("").never_above(1).add(1, conn);
    let unnamed = unnamed.map_err(Error::from);
    assert!(matches!(unnamed, Err(Error::InvalidCounterName { .. })));
}

#[test]
fn eight_writers_take_what_is_there_and_no_more() {
    let (database, mut conn) = database_with_counters();
    let allowed = AtomicI64::new(0);
    on_threads(8, &database, |_, conn| {
        let requests = Counter::named("requests:42").never_above(50);
        for round in 0..20 {
            if requests.add(1, conn).unwrap() {
                allowed.fetch_add(1, Ordering::Relaxed);
            }
            if round == 10 {
                Counter::named("requests:42").fold(conn).unwrap();
            }
        }
    });
    assert_eq!(allowed.into_inner(), 50);
    assert_eq!(Counter::named("requests:42").get(&mut conn), Ok(50));
}

#[test]
fn the_greatest_by_prefix() {
    let (_database, conn) = &mut database_with_counters();
    for (name, n) in [
        ("page:a", 3),
        ("page:b", 9),
        ("page:c", 5),
        ("page:d", 5),
        ("pagf", 70),
    ] {
        Counter::named(name).add(n, conn).unwrap();
    }
    Counter::named("page:c").fold(conn).unwrap();
    Counter::named("page:e").set(4, conn).unwrap();
    Counter::named("page:f").set(100, conn).unwrap();
    Counter::named("page:f").add(-100, conn).unwrap();
    let top =
        |n, offset, conn: &mut Conn| Counter::top("page:", n).offset(offset).load(conn).unwrap();
    let expected = [
        row("page:b", 9),
        row("page:d", 5),
        row("page:c", 5),
        row("page:e", 4),
        row("page:a", 3),
        row("page:f", 0),
    ];
    assert_eq!(top(10, 0, conn), expected);
    assert_eq!(top(2, 0, conn), expected[..2]);
    assert_eq!(top(2, 3, conn), expected[3..5]);
    assert_eq!(top(0, 0, conn), []);
    assert_eq!(Counter::top("", 1).load(conn), Ok(vec![row("pagf", 70)]));
    assert_eq!(Counter::top("x", 1).load(conn), Ok(vec![]));
}

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
    let conn = &mut set_up_with_counters().conn;
    let counter = Counter::named("x");
    let (added, statements) = sent(conn, |conn| counter.add(0, conn).done());
    assert_eq!((added, statements.len()), (Ok(()), 0));
    let (added, statements) = sent(conn, |conn| {
        Counter::named("x").never_below(0).add(0, conn).done()
    });
    assert_eq!((added, statements.len()), (Ok(true), 0));
    gives!(counter.add_and_get(0, conn), 0);
    assert_eq!(names(conn), []);
    counter.add(5, conn).unwrap();
    gives!(counter.add_and_get(0, conn), 5);
    assert!(Counter::named("").add(0, conn).done().is_err());
    // A key is kept all the same: it stands for this request and no other.
    let keyed = Counter::named("y").idempotency_key("k");
    gives!(keyed.add(0, conn), 1);
    assert!(is_reused(keyed.add(1, conn).done()));
    assert_eq!(names(conn), [row("x", 5)]);
}

#[test]
fn the_new_total_comes_back() {
    let conn = &mut set_up_with_counters().conn;
    let tickets = Counter::named("tickets");
    gives!(tickets.add_and_get(1, conn), 1);
    gives!(tickets.add_and_get(41, conn), 42);
    assert_eq!(tickets.fold(conn).unwrap().parents, 1);
    gives!(tickets.add_and_get(-100, conn), -58);
    tickets.set(7, conn).unwrap();
    gives!(tickets.add_and_get(1, conn), 8);
    tickets.delete(conn).unwrap();
    rolled_back(conn, |conn| gives!(tickets.add_and_get(3, conn), 3));
    assert_eq!(names(conn), []);
}

#[test]
fn stays_within_bounds_from_its_first_count_on() {
    let conn = &mut set_up_with_counters().conn;
    let seats = Counter::named("seats");
    let add = |n: i64, conn: &mut Conn| {
        let bounded = Counter::named("seats").never_below(0).never_above(10);
        bounded.add(n, conn).unwrap()
    };
    // An increment that is refused creates nothing.
    assert_eq!([-1, 11].map(|n| add(n, conn)), [false, false]);
    assert_eq!(names(conn), []);
    assert_eq!([10, 1].map(|n| add(n, conn)), [true, false]);
    gives!(seats.get(conn), 10);
    seats.fold(conn).unwrap();
    assert_eq!([-10, -1].map(|n| add(n, conn)), [true, false]);
    seats.delete(conn).unwrap();
    assert!(add(4, conn));
    let debt = Counter::named("debt").never_above(0);
    rolled_back(conn, |conn| gives!(debt.add(-3, conn), true));
    assert_eq!(names(conn), [row("seats", 4)]);
    let unnamed = Counter::named("").never_above(1).add(1, conn).done();
    refused!(unnamed, Error::InvalidCounterName { .. });
}

#[test]
fn eight_writers_take_what_is_there_and_no_more() {
    let Connected { conn, database } = &mut set_up_with_counters();
    let requests = Counter::named("requests:42");
    let allowed = AtomicI64::new(0);
    on_threads(8, database, |_, conn| {
        let bounded = Counter::named("requests:42").never_above(50);
        for round in 0..20 {
            let is_allowed = bounded.add(1, conn).unwrap();
            allowed.fetch_add(is_allowed.into(), Ordering::Relaxed);
            if round == 10 {
                requests.fold(conn).unwrap();
            }
        }
    });
    assert_eq!(allowed.into_inner(), 50);
    gives!(requests.get(conn), 50);
}

#[test]
fn the_greatest_by_prefix() {
    let conn = &mut set_up_with_counters().conn;
    let page = |letter: &str| Counter::named(format!("page:{letter}"));
    for (letter, n) in [("a", 3), ("b", 9), ("c", 5), ("d", 5)] {
        page(letter).add(n, conn).unwrap();
    }
    Counter::named("pagf").add(70, conn).unwrap();
    page("c").fold(conn).unwrap();
    page("e").set(4, conn).unwrap();
    page("f").set(100, conn).unwrap();
    page("f").add(-100, conn).unwrap();
    let top =
        |n, offset, conn: &mut Conn| Counter::top("page:", n).offset(offset).load(conn).done();
    let sorted = [("b", 9), ("d", 5), ("c", 5), ("e", 4), ("a", 3), ("f", 0)];
    let expected = sorted.map(|(letter, n)| row(page(letter).as_ref(), n));
    assert_eq!(top(10, 0, conn), Ok(expected.to_vec()));
    assert_eq!(top(2, 0, conn), Ok(expected[..2].to_vec()));
    assert_eq!(top(2, 3, conn), Ok(expected[3..5].to_vec()));
    assert_eq!(top(0, 0, conn), Ok(vec![]));
    gives!(Counter::top("", 1).load(conn), vec![row("pagf", 70)]);
    gives!(Counter::top("x", 1).load(conn), vec![]);
}

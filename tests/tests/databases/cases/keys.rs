//! Keys of every type, under every name.

use super::support::*;
use chrono::NaiveDateTime;
use diesel_sharded::backend::Dialect;
use diesel_sharded_tests::schema;

#[test]
fn a_text_key_and_names_that_need_quotes() {
    use schema::watchlists::dsl::*;
    let conn = &mut set_up().conn;
    for list in ["it's \"mine\"", "`b`; DROP TABLE videos --"] {
        insert!(watchlists, name.eq(list), conn);
        let changes = entries.eq(entries + 1);
        for _ in 0..10 {
            assert_eq!(count!(watchlists.find(list), changes, conn), 1);
        }
        let count = update(watchlists.filter(name.like(list))).set(changes);
        let counted = count.returning((name, entries)).get_result(conn).done();
        assert_eq!(counted, Ok((list.to_owned(), 11)));
        let total = |conn: &mut Conn| {
            let total = watchlists.find(list).select(entries.total());
            total.first::<i32>(conn)
        };
        assert_eq!(total(conn), Ok(11));
        let counter = RowCounter::of(entries, list);
        gives!(counter.add(2, conn), 1);
        gives!(counter.clone().never_above(13).add(1, conn), false);
        let folded = fold(watchlists).keep_shards(1).run(conn).unwrap();
        assert!(folded.unfit.is_empty(), "{folded:?}");
        let base = watchlists.find(list).select(entries);
        assert_eq!(base.first(conn), Ok(13));
        let set = set_total(watchlists.filter(name.like(list)), entries, 70);
        gives!(set.execute(conn), 1);
        let recount = watchlists.find(list).select((name, entries - entries));
        let check = verify(watchlists.find(list), entries, recount);
        assert_eq!(check.repair(conn).unwrap().len(), 1);
        assert_eq!(total(conn), Ok(0));
        assert_eq!(count!(watchlists.find(list), changes, conn), 1);
        gives!(reset(watchlists.find(list)).execute(conn), 1);
        assert_eq!(count!(watchlists.find(list), changes, conn), 1);
        let absent = format!("{list}!");
        let count = update(watchlists.find(&absent)).set(changes);
        gives!(count.or_insert(name.eq(&absent)).execute(conn), 1);
    }
    ShardsTable::of(watchlists).drop(conn).unwrap();
    let bases = watchlists.select(entries).load(conn);
    assert_eq!(bases, Ok(vec![1; 4]));
}

#[test]
fn a_composite_key_with_a_type_of_the_applications_own() {
    use schema::downloads::dsl::*;
    let conn = &mut set_up().conn;
    for key in [(1, Day(1)), (1, Day(2)), (2, Day(1))] {
        insert!(downloads, (version.eq(key.0), day.eq(key.1)), conn);
    }
    let totals = |conn: &mut Conn| {
        let totals = downloads.select(number.total()).order((version, day));
        totals.load::<i32>(conn).unwrap()
    };
    count!(downloads.find((1, Day(1))), number.eq(number + 1), conn);
    assert_eq!(totals(conn), [1, 0, 0]);
    let rows = downloads.filter(version.eq(1)).filter(day.eq(Day(2)));
    count!(rows, number.eq(number + 10), conn);
    let rows = downloads.filter(day.eq(Day(2))).filter(version.eq(1));
    count!(rows, number.eq(number + 10), conn);
    assert_eq!(totals(conn), [1, 20, 0]);
    let count = update(downloads.filter(day.eq(Day(1)))).set(number.eq(number + 100));
    let counted = count.returning((version, number)).get_results(conn).done();
    let mut counted: Vec<(i32, i32)> = counted.unwrap();
    counted.sort_unstable();
    assert_eq!(counted, [(1, 101), (2, 100)]);
    assert_eq!(totals(conn), [101, 20, 100]);
    let window = RowCounter::of(number, (1, Day(2))).never_above(22);
    let allowed = [1, 1, 1].map(|n| window.add(n, conn).unwrap());
    assert_eq!(allowed, [true, true, false]);
    let absent = RowCounter::of(number, (9, Day(2))).never_above(22);
    assert_eq!(absent.add(1, conn).done(), Err(DieselError::NotFound));
    assert_eq!(totals(conn), [101, 22, 100]);
    delete!(downloads.find((1, Day(2))), conn);
    insert!(downloads, (version.eq(1), day.eq(Day(2))), conn);
    assert_eq!(totals(conn), [101, 0, 100]);
}

diesel_sharded_tests::counted_table! {
    Slot of slots (begin, open) {
        begin -> Timestamp = NaiveDateTime,
        open -> Bool = bool,
        #[sharded] seats -> BigInt = i64,
    }
}

#[test]
fn a_key_of_a_time_and_a_flag() {
    use self::slots::dsl::*;
    let conn = &mut set_up_with_counters().conn;
    let time = match dialect(conn) {
        Dialect::Mysql => "DATETIME(6)",
        _ => "TIMESTAMP",
    };
    let sql = format!(
        "CREATE TABLE slots (begin {time} NOT NULL, open BOOLEAN NOT NULL, seats BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (begin, open))"
    );
    conn.batch_execute(&sql).unwrap();
    ShardsTable::of(slots).create(conn).unwrap();
    let day = chrono::NaiveDate::from_ymd_opt(2026, 10, 25).unwrap();
    let mut keys: Vec<(NaiveDateTime, bool)> = vec![];
    for micro in [0, 1, 500_000] {
        let at = day.and_hms_micro_opt(2, 30, 0, micro).unwrap();
        keys.extend([(at, false), (at, true)]);
    }
    for key in &keys {
        insert!(slots, (begin.eq(key.0), open.eq(key.1)), conn);
    }
    for (key, n) in keys.iter().zip(1..) {
        assert_eq!(count!(slots.find(*key), seats.eq(seats + n), conn), 1);
        assert_eq!(RowCounter::of(seats, *key).add(10, conn).done(), Ok(1));
    }
    let first = RowCounter::of(seats, keys[0]);
    let once = first.clone().idempotency_key("request 7");
    assert_eq!([(); 2].map(|()| once.add(100, conn).unwrap()), [1, 1]);
    assert_eq!(first.never_above(111).add(1, conn).done(), Ok(false));
    let counted = count_many(seats, [(keys[4], 1000), (keys[5], 1000)]);
    assert_eq!(counted.run(conn).done().unwrap().rows, 2);
    let rows = update(slots.filter(open.eq(true))).set(seats.eq(seats + 5));
    let counted = rows.returning((begin, seats)).get_results(conn).done();
    let mut counted: Vec<(NaiveDateTime, i64)> = counted.unwrap();
    counted.sort_unstable();
    let totals = counted.iter().map(|(_, total)| *total).collect::<Vec<_>>();
    assert_eq!(totals, [17, 19, 1021]);
    let folded = fold(slots).batch(1).keep_shards(0).run(conn).unwrap();
    assert_eq!((folded.parents, folded.unfit.len()), (6, 0));
    let bases = slots.select(seats).order((begin, open)).load::<i64>(conn);
    assert_eq!(bases, Ok(vec![111, 17, 13, 19, 1015, 1021]));
    let recount = slots.select(((begin, open), seats - 1));
    let repaired = verify(slots, seats, recount).repair(conn).done();
    assert_eq!(repaired.map(|drifts| drifts.len()), Ok(6));
}

//! Totals that are set.

use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;

fn totals(conn: &mut Conn) -> Vec<(i64, i32)> {
    let totals = videos.select((views.total(), likes.total()));
    totals.order(id).load(conn).unwrap()
}

fn counted(conn: &mut Conn) {
    for _ in 0..5 {
        count!(videos, (views.eq(views + 1), likes.eq(likes + 1)), conn);
    }
}

#[test]
fn by_key_by_a_filter_and_all() {
    let (_database, conn) = &mut database();
    counted(conn);
    assert_eq!(set_total(videos.find(1), views, 7).execute(conn), Ok(1));
    assert_eq!(totals(conn), [(7, 6), (205, 7), (305, 8)]);
    assert_eq!(set_total(videos.find(9), views, 7).execute(conn), Ok(0));
    let news = set_total(videos.filter(channel.eq("news")), likes, -2);
    assert_eq!(news.execute(conn), Ok(2));
    assert_eq!(totals(conn), [(7, 6), (205, -2), (305, -2)]);
    counted(conn);
    assert_eq!(totals(conn), [(12, 11), (210, 3), (310, 3)]);
    assert_eq!(reset(videos.find(3)).execute(conn), Ok(1));
    assert_eq!(totals(conn), [(12, 11), (210, 3), (0, 0)]);
    assert_eq!(reset(videos).execute(conn), Ok(3));
    assert_eq!(totals(conn), [(0, 0); 3]);
}

#[test]
fn types_other_than_bigint() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let (_database, conn) = &mut database();
    count!(measures, (small.eq(small + 1), real.eq(real + 0.5)), conn);
    set_total(measures, small, -3).execute(conn).unwrap();
    set_total(measures, real, 2.5).execute(conn).unwrap();
    let price: bigdecimal::BigDecimal = "12.5".parse().unwrap();
    set_total(measures, exact, price).execute(conn).unwrap();
    let row = measures.select((small.total(), real.total(), exact.total()));
    let (a, b, c) = row
        .first::<(i16, f64, bigdecimal::BigDecimal)>(conn)
        .unwrap();
    assert_eq!((a, b, c), (-3, 2.5, "12.5".parse().unwrap()));
}

#[test]
fn inside_a_callers_transaction() {
    let (_database, conn) = &mut database();
    counted(conn);
    rolled_back(conn, |conn| {
        assert_eq!(set_total(videos, views, 1).execute(conn), Ok(3));
        assert_eq!(totals(conn)[0], (1, 6));
    });
    assert_eq!(totals(conn)[0], (105, 6));
}

/// Counts that end before the set begins are gone, those that begin after it ended survive, and each of the others is one or
/// the other as a whole.
#[test]
fn is_linearizable_beside_counts() {
    let (database, mut conn) = database();
    let (ended_before, begun_before, begun_after) =
        (AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0));
    let (begun, ended) = (AtomicI64::new(0), AtomicI64::new(0));
    on_threads(9, &database, |number, conn| {
        if number == 8 {
            while ended.load(Ordering::SeqCst) < 100 {
                std::thread::yield_now();
            }
            ended_before.store(ended.load(Ordering::SeqCst), Ordering::SeqCst);
            set_total(videos.find(1), views, 1_000_000)
                .execute(conn)
                .unwrap();
            begun_before.store(begun.load(Ordering::SeqCst), Ordering::SeqCst);
            return;
        }
        for _ in 0..50 {
            begun.fetch_add(1, Ordering::SeqCst);
            count(1, 1, conn).unwrap();
            ended.fetch_add(1, Ordering::SeqCst);
        }
    });
    let all = begun.load(Ordering::SeqCst);
    begun_after.store(all - begun_before.load(Ordering::SeqCst), Ordering::SeqCst);
    let total = totals(&mut conn)[0].0 - 1_000_000;
    let most = all - ended_before.load(Ordering::SeqCst);
    let least = begun_after.load(Ordering::SeqCst);
    assert!((least..=most).contains(&total), "{least} {total} {most}");
}

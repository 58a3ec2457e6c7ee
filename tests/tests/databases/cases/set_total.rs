//! Totals that are set.

use super::support::*;
use bigdecimal::BigDecimal;
use diesel_sharded_tests::schema::videos::dsl::*;

pub fn totals(conn: &mut Conn) -> Vec<(i64, i32)> {
    let totals = videos.select((views.total(), likes.total()));
    totals.order(id).load(conn).unwrap()
}

fn count_all(conn: &mut Conn) {
    for _ in 0..5 {
        count!(videos, (views.eq(views + 1), likes.eq(likes + 1)), conn);
    }
}

#[test]
fn by_key_by_a_filter_and_all() {
    let conn = &mut set_up().conn;
    count_all(conn);
    gives!(set_total(videos.find(1), views, 7).execute(conn), 1);
    assert_eq!(totals(conn), [(7, 6), (205, 7), (305, 8)]);
    gives!(set_total(videos.find(9), views, 7).execute(conn), 0);
    let news = set_total(videos.filter(channel.eq("news")), likes, -2);
    gives!(news.execute(conn), 2);
    assert_eq!(totals(conn), [(7, 6), (205, -2), (305, -2)]);
    count_all(conn);
    assert_eq!(totals(conn), [(12, 11), (210, 3), (310, 3)]);
    gives!(reset(videos.find(3)).execute(conn), 1);
    assert_eq!(totals(conn), [(12, 11), (210, 3), (0, 0)]);
    gives!(reset(videos).execute(conn), 3);
    assert_eq!(totals(conn), [(0, 0); 3]);
}

#[test]
fn types_other_than_bigint() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let conn = &mut set_up().conn;
    count!(measures, (small.eq(small + 1), real.eq(real + 0.5)), conn);
    let price: BigDecimal = "12.5".parse().unwrap();
    gives!(set_total(measures, small, -3).execute(conn), 1);
    gives!(set_total(measures, real, 2.5).execute(conn), 1);
    gives!(set_total(measures, exact, price.clone()).execute(conn), 1);
    let row = measures.select((small.total(), real.total(), exact.total()));
    assert_eq!(row.first(conn), Ok((-3_i16, 2.5_f64, price)));
}

//! The first rows by total.

use super::api::top;
use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;
use proptest::prelude::*;

/// Videos 1 to 3 have 350, 200 and 290 views; video 2 has no shard.
fn counted() -> Connected<Conn> {
    let mut fixture = set_up();
    for (key, n) in [(1, 220), (1, 30), (3, -10)] {
        count(key, n, &mut fixture.conn).unwrap();
    }
    fixture
}

#[test]
fn more_rows_than_there_are() {
    let conn = &mut counted().conn;
    let beyond = top(videos, views, u32::MAX).offset(u32::MAX).select(id);
    assert_eq!(beyond.load::<i64>(conn), Ok(vec![]));
    let all = top(videos, views, u32::MAX).select(id);
    assert_eq!(all.load(conn), Ok(vec![1_i64, 3, 2]));
}

#[test]
fn whole_rows_have_the_totals_of_all_fields() {
    let conn = &mut counted().conn;
    count!(videos.find(2), likes.eq(likes + 5), conn);
    let counts = |video: &WholeVideo| (video.id, video.views, video.likes);
    let liked = top(videos, likes, 10).first(conn).unwrap();
    assert_eq!(counts(&liked), (2, 200, 7));
    let viewed = top(videos, views, 1).get_results(conn).unwrap();
    assert_eq!(counts(&viewed[0]), (1, 350, 1));
    let none = top(videos.filter(id.gt(9)), views, 1).first::<WholeVideo>(conn);
    assert_eq!(none.optional(), Ok(None));
}

#[test]
fn filters_hold_for_rows_with_and_without_shards() {
    let conn = &mut counted().conn;
    let news = top(videos.filter(channel.eq("news")), views, 10).select((id, views));
    assert_eq!(news.load(conn), Ok(vec![(3_i64, 290_i64), (2, 200)]));
    let news = top(videos, views, 10).filter(channel.eq("news"));
    let news = news.filter(views.total().lt(250)).select(id);
    assert_eq!(news.load(conn), Ok(vec![2_i64]));
    let boxed = top(videos, views, 1).select(id).into_boxed();
    assert_eq!(boxed.load(conn), Ok(vec![1_i64]));
    let boxed = top(videos.filter(id.ne(1)), views, 1).select(id);
    let boxed = boxed.into_boxed().filter(slug.ne("c"));
    assert_eq!(boxed.load(conn), Ok(vec![2_i64]));
    // A condition in SQL by hand, whose parentheses nobody adds.
    let by_hand = diesel::dsl::sql::<diesel::sql_types::Bool>("id = 2 OR id = 3");
    let by_hand = top(videos.filter(by_hand), views, 10).select(id);
    assert_eq!(by_hand.load(conn), Ok(vec![3_i64, 2]));
}

#[test]
fn composite_keys_and_names_of_any_kind() {
    use diesel_sharded_tests::schema::downloads::dsl::*;
    use diesel_sharded_tests::schema::watchlists::dsl::*;
    let conn = &mut set_up().conn;
    for (of, on, base, n) in [(1, 1, 5, 0), (1, 2, 4, 3), (2, 1, 7, -4), (2, 2, 5, 0)] {
        let row = (version.eq(of), day.eq(Day(on)), number.eq(base));
        insert!(downloads, row, conn);
        if n != 0 {
            count!(downloads.find((of, Day(on))), number.eq(number + n), conn);
        }
    }
    let best = top(downloads, number, 3).load(conn);
    let expected = vec![(1, Day(2), 7), (2, Day(2), 5), (1, Day(1), 5)];
    assert_eq!(best, Ok(expected));
    let next = top(downloads, number, 3).after((5, (2, Day(2))));
    assert_eq!(next.load(conn), Ok(vec![(1, Day(1), 5), (2, Day(1), 3)]));
    let second = top(downloads, number, 3).filter(version.eq(2));
    let second = second.select((day, number)).load(conn);
    assert_eq!(second, Ok(vec![(Day(2), 5), (Day(1), 3)]));
    for (list, base) in [("a", 3), ("b'`\"", 1)] {
        insert!(watchlists, (name.eq(list), entries.eq(base)), conn);
    }
    count!(watchlists.find("b'`\""), entries.eq(entries + 5), conn);
    let lists = top(watchlists, entries, 5);
    let both = [("b'`\"".to_owned(), 6), ("a".to_owned(), 3)];
    assert_eq!(lists.clone().load(conn), Ok(both.to_vec()));
    let few = lists.filter(name.ne("a"));
    assert_eq!(few.load(conn), Ok(both[..1].to_vec()));
}

/// A field of each type, up to the edge of its column.
#[test]
fn fields_of_every_type() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let conn = &mut set_up().conn;
    for key in [2, 3] {
        insert!(measures, id.eq(key), conn);
    }
    macro_rules! first {
        ($($field:ident: $base:expr, $add:expr, $total:expr;)+) => {$(
            edit!(measures.find(1), $field.eq($base), conn);
            count!(measures.find(2), $field.eq($field + $add), conn);
            let sorted = top(measures, $field, 3).select((id, $field));
            assert_eq!(sorted.load(conn), Ok(vec![(2_i16, $total), (1, $base), (3, Default::default())]));
            let filtered = top(measures.filter(id.ne(3)), $field, 3).select(id);
            assert_eq!(filtered.load(conn), Ok(vec![2_i16, 1]));
        )+};
    }
    let exactly = |text: &str| text.parse::<bigdecimal::BigDecimal>().unwrap();
    first! {
        small: 1_i16, i16::MAX, i16::MAX;
        medium: 1_i32, i32::MAX, i32::MAX;
        large: 1_i64, i64::MAX - 1, i64::MAX - 1;
        real: 0.5_f64, 0.75, 0.75;
        exact: exactly("0.25"), exactly("0.5"), exactly("0.5");
    }
}

#[derive(Debug, Clone)]
struct Case {
    /// Of each video, by its id from 1 on: its views and its shards.
    rows: Vec<(i64, Vec<(i64, i32)>)>,
    filter: u8,
    n: u32,
    offset: u32,
    ascending: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    // Few values, so that there are ties, and sums of 0.
    let shards = proptest::collection::vec((-4..5i64, 0..2i32), 1..4);
    let shards = prop_oneof![2 => Just(vec![]), 3 => shards];
    let rows = proptest::collection::vec((-6..7i64, shards), 0..16);
    (rows, 0..6u8, 0..8u32, 0..6u32, any::<bool>()).prop_map(
        |(rows, filter, n, offset, ascending)| Case {
            rows,
            filter,
            n,
            offset,
            ascending,
        },
    )
}

fn fill(conn: &mut Conn, case: &Case) {
    delete!(videos_shards::table, conn);
    delete!(videos, conn);
    for (key, (base, shards)) in (1_i64..).zip(&case.rows) {
        let row = (
            id.eq(key),
            slug.eq(key.to_string()),
            title.eq(["x", "y"][key as usize / 2 % 2]),
            views.eq(*base),
            channel.eq(["a", "b"][key as usize % 2]),
        );
        insert!(videos, row, conn);
        for (number, (n, likes_of_it)) in (0..).zip(shards) {
            let shard = (
                videos_shards::id.eq(key),
                videos_shards::shard.eq(number),
                videos_shards::views.eq(*n),
                videos_shards::likes.eq(*likes_of_it),
            );
            insert!(videos_shards::table, shard, conn);
        }
    }
}

#[test]
fn any_rows_come_as_by_a_sort_of_all_totals() {
    let fixture = std::cell::RefCell::new(set_up());
    for_all(150, cases(), |case| {
        let conn = &mut fixture.borrow_mut().conn;
        fill(conn, &case);
        macro_rules! both {
            ($rows:expr) => {{
                let picked = top($rows, views, case.n).offset(case.offset);
                let picked = picked.select((id, views, likes));
                let sorted = $rows.select((id, views.total(), likes.total()));
                let sorted = sorted.limit(case.n.into()).offset(case.offset.into());
                match case.ascending {
                    false => (
                        picked.load::<(i64, i64, i32)>(conn),
                        sorted.order((views.total().desc(), id.desc())).load(conn),
                    ),
                    true => (
                        picked.ascending().load(conn),
                        sorted.order((views.total(), id)).load(conn),
                    ),
                }
            }};
        }
        let (picked, sorted) = match case.filter {
            0 | 1 => both!(videos),
            2 => both!(videos.filter(channel.eq("a"))),
            3 => both!(videos.filter(views.total().ge(0))),
            4 => both!(videos.filter(views.lt(3).or(likes.total().eq(1)))),
            _ => both!(videos.filter(id.eq_any(comments::table.select(comments::video_id)))),
        };
        prop_assert!(picked.is_ok(), "{:?}", picked);
        prop_assert_eq!(picked, sorted);
        Ok(())
    });
}

/// Each page begins after the last row of the one before, and all of them are the list.
#[test]
fn pages_are_the_list() {
    let fixture = std::cell::RefCell::new(set_up());
    for_all(40, cases(), |case| {
        let conn = &mut fixture.borrow_mut().conn;
        fill(conn, &case);
        macro_rules! is_paged {
            ($list:expr, ($($by:expr),+), $place:expr) => {{
                let sorted = videos.select((title, views.total(), slug, id));
                let (list, sorted) = match case.ascending {
                    false => ($list, sorted.order(($($by.desc()),+)).load(conn)),
                    true => ($list.ascending(), sorted.order(($($by.asc()),+)).load(conn)),
                };
                let list = list.select((title, views, slug, id));
                let mut rows: Vec<(String, i64, String, i64)> = list.clone().load(conn).unwrap();
                while let Some(last) = rows.last().cloned() {
                    let page = list.clone().after($place(last)).load(conn).unwrap();
                    if page.is_empty() {
                        break;
                    }
                    rows.extend(page);
                }
                prop_assert_eq!(Ok(rows), sorted);
            }};
        }
        let list = top(videos, views, case.n.max(1));
        let total = views.total();
        is_paged!(list.clone(), (total, id), |(_, n, _, key)| (n, key));
        let tied = list.clone().then_by(title);
        is_paged!(tied, (total, title, id), |(then, n, _, key)| (n, then, key));
        let pinned = list.clone().first_by(title);
        is_paged!(pinned, (title, total, id), |(first, n, _, key)| (
            first, n, key
        ));
        let both = list.first_by(title).then_by(slug);
        is_paged!(both, (title, total, slug, id), |place| place);
        Ok(())
    });
}

/// The number of rows with a greater total, by the index on the base and corrected by the rows that have shards.
const RANK: &str = "SELECT (SELECT COUNT(*) FROM videos WHERE views > {n}) \
        + COUNT(CASE WHEN total > {n} THEN 1 END) - COUNT(CASE WHEN base > {n} THEN 1 END) \
    FROM (SELECT v.views AS base, v.views + SUM(s.views) AS total \
        FROM videos_shards s JOIN videos v ON v.id = s.id WHERE s.views <> 0 GROUP BY v.id, v.views) AS counted";

#[test]
fn a_row_has_a_rank_and_rows_around_it() {
    let fixture = std::cell::RefCell::new(set_up());
    for_all(40, cases(), |case| {
        let conn = &mut fixture.borrow_mut().conn;
        fill(conn, &case);
        let sorted = videos.select((id, views.total()));
        let sorted = sorted.order((views.total().desc(), id.desc()));
        let sorted: Vec<(i64, i64)> = sorted.load(conn).unwrap();
        for (place, (video, total)) in sorted.iter().enumerate() {
            let greater = sorted.iter().filter(|row| row.1 > *total).count() as i64;
            let by_total = videos.filter(views.total().gt(total)).count();
            prop_assert_eq!(by_total.get_result(conn), Ok(greater));
            let by_index = number!(
                &format!("({})", RANK.replace("{n}", &total.to_string())),
                conn
            );
            prop_assert_eq!(by_index, greater);
            let around = |number| top(videos, views, number).after((*total, *video));
            let above = around(2).ascending().select((id, views)).load(conn);
            let above_it = sorted[..place].iter().rev().take(2).copied();
            prop_assert_eq!(above, Ok(above_it.collect::<Vec<_>>()));
            let below = around(3).select((id, views)).load(conn);
            let below_it = sorted[place + 1..].iter().take(3).copied();
            prop_assert_eq!(below, Ok(below_it.collect::<Vec<_>>()));
        }
        Ok(())
    });
}

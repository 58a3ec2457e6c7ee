//! Every form of update that applications write has to work after a change of the import alone.

#![allow(clippy::op_ref, reason = "references are among the shapes")]

use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;

/// The bases and totals of all videos, by id.
fn counts(conn: &mut Conn) -> Vec<(i64, i64, i32)> {
    let counts = videos.select((views, views.total(), likes.total()));
    counts.order(id).load(conn).unwrap()
}

const UNCOUNTED: [(i64, i64, i32); 3] = [(100, 100, 1), (200, 200, 2), (300, 300, 3)];

const BONUS: i32 = 10;

fn video() -> Video {
    Video {
        id: 2,
        slug: "b".into(),
        views: 0,
        likes: 0,
    }
}

macro_rules! counts {
    ($($name:ident: $update:expr => [$one:expr, $two:expr, $three:expr];)+) => {$(
        #[test]
        fn $name() {
            let conn = &mut set_up().conn;
            let added: [(i64, i32); 3] = [$one, $two, $three];
            let counted = added.iter().filter(|added| **added != (0, 0)).count();
            for time in 1..=2 {
                gives!($update.execute(conn), counted, "rows counted, time {time}");
            }
            let expected = UNCOUNTED.iter().zip(added).map(|((base, v, l), (dv, dl))| (*base, v + 2 * dv, l + 2 * dl));
            assert_eq!(counts(conn), expected.collect::<Vec<_>>());
        }
    )+};
}

counts! {
    find: update(videos.find(2)).set(views.eq(views + 1)) => [(0, 0), (1, 0), (0, 0)];
    filter_by_key: update(videos.filter(id.eq(2))).set(views.eq(views + 1)) => [(0, 0), (1, 0), (0, 0)];
    filter_before_set: update(videos).filter(id.eq(2)).set(views.eq(views + 1)) => [(0, 0), (1, 0), (0, 0)];
    filter_after_set: update(videos).set(views.eq(views + 1)).filter(id.eq(2)) => [(0, 0), (1, 0), (0, 0)];
    model: update(&video()).set(views.eq(views + 1)) => [(0, 0), (1, 0), (0, 0)];
    model_and_filter: update(&video()).filter(slug.eq("b")).set(views.eq(views + 1)) => [(0, 0), (1, 0), (0, 0)];
    several_filters: update(videos.filter(id.ge(2)).filter(slug.ne("c"))).set(views.eq(views + 1)) => [(0, 0), (1, 0), (0, 0)];
    and: update(videos.filter(id.eq(2).and(slug.eq("b")))).set(views.eq(views + 1)) => [(0, 0), (1, 0), (0, 0)];
    or: update(videos.filter(id.eq(2).or(slug.eq("c")))).set(views.eq(views + 1)) => [(0, 0), (1, 0), (1, 0)];
    filter_by_another_column: update(videos.filter(slug.eq("b"))).set(views.eq(views + 1)) => [(0, 0), (1, 0), (0, 0)];
    filter_by_nullable_column: update(videos.filter(channel.eq("news"))).set(views.eq(views + 1)) => [(0, 0), (1, 0), (1, 0)];
    filter_by_null: update(videos.filter(channel.is_null())).set(views.eq(views + 1)) => [(1, 0), (0, 0), (0, 0)];
    filter_by_total: update(videos.filter(likes.total().ge(2))).set(views.eq(views + 1)) => [(0, 0), (1, 0), (1, 0)];
    eq_any: update(videos.filter(id.eq_any([1, 3]))).set(views.eq(views + 1)) => [(1, 0), (0, 0), (1, 0)];
    whole_table: update(videos).set(views.eq(views + 1)) => [(1, 0), (1, 0), (1, 0)];
    boxed: update(videos).into_boxed().filter(id.ge(2)).set(views.eq(views + 1)).filter(id.le(2)) => [(0, 0), (1, 0), (0, 0)];
    boxed_find: update(videos.find(2)).set(views.eq(views + 1)).into_boxed() => [(0, 0), (1, 0), (0, 0)];
    boxed_whole_table: update(videos).set(views.eq(views + 1)).into_boxed() => [(1, 0), (1, 0), (1, 0)];
    subquery: update(videos.filter(id.eq_any(comments::table.select(comments::video_id)))).set(views.eq(views + 1))
        => [(0, 0), (0, 0), (1, 0)];
    no_such_key: update(videos.find(4)).set(views.eq(views + 1)) => [(0, 0), (0, 0), (0, 0)];
    no_such_row: update(videos.filter(slug.eq("z"))).set(views.eq(views + 1)) => [(0, 0), (0, 0), (0, 0)];

    minus: update(videos.find(2)).set(views.eq(views - 1)) => [(0, 0), (-1, 0), (0, 0)];
    variable: update(videos.find(2)).set(likes.eq(likes + BONUS)) => [(0, 0), (0, 10), (0, 0)];
    reference: update(videos.find(2)).set(likes.eq(likes + &BONUS)) => [(0, 0), (0, 10), (0, 0)];
    minus_reference: update(videos.find(2)).set(likes.eq(likes - &BONUS)) => [(0, 0), (0, -10), (0, 0)];
    chain: update(videos.find(2)).set(likes.eq(likes + 1 + BONUS)) => [(0, 0), (0, 11), (0, 0)];
    mixed_chain: update(videos.find(2)).set(likes.eq(likes + 1 - &BONUS + 2)) => [(0, 0), (0, -7), (0, 0)];
    one_tuple: update(videos.find(2)).set((views.eq(views + 5),)) => [(0, 0), (5, 0), (0, 0)];
    tuple: update(videos.find(2)).set((views.eq(views + 5), likes.eq(likes - 1))) => [(0, 0), (5, -1), (0, 0)];
    tuple_by_filter: update(videos.filter(slug.eq("b"))).set((views.eq(views + 5), likes.eq(likes - 1)))
        => [(0, 0), (5, -1), (0, 0)];
    borrowed_key: update(videos.find(&video().id)).set(views.eq(views + 1)) => [(0, 0), (1, 0), (0, 0)];
}

counts! {
    optional: update(videos.find(2)).set(Some(views.eq(views + 1))) => [(0, 0), (1, 0), (0, 0)];
    borrowed: update(videos.find(2)).set(&(views.eq(views + 1), likes.eq(likes - 1))) => [(0, 0), (1, -1), (0, 0)];
    optional_in_tuple: update(videos.find(2)).set((views.eq(views + 1), None.or(Some(likes.eq(likes + 2)))))
        => [(0, 0), (1, 2), (0, 0)];
    none_in_tuple: update(videos.find(2)).set((Some(likes.eq(likes + 2)).filter(|_| false), views.eq(views + 1)))
        => [(0, 0), (1, 0), (0, 0)];
    none_by_filter: update(videos.filter(channel.eq("news")))
        .set(&(Some(views.eq(views + 1)).filter(|_| false), Some(likes.eq(likes + 1))))
        => [(0, 0), (0, 1), (0, 1)];
}

/// A statement whose changes come and go has one type and several texts.
#[test]
fn optional_changes_of_one_statement() {
    let conn = &mut set_up().conn;
    for n in 0..8_i64 {
        let changes = (
            (n % 2 == 0).then(|| views.eq(views + n)),
            (n > 0).then(|| likes.eq(likes + 1)),
        );
        assert_eq!(count!(videos.find(1), changes, conn), 1);
    }
    assert_eq!(counts(conn)[0], (100, 112, 8));
}

#[test]
fn nothing_but_none_is_an_error_as_diesels() {
    let conn = &mut set_up().conn;
    let mut changes = Some(views.eq(views + 1));
    assert_eq!(count!(videos.find(1), changes, conn), 1);
    changes = None;
    let diesels = diesel::update(videos.find(1)).set(changes).execute(conn);
    let error = diesels.unwrap_err().to_string();
    let by_filter = update(videos.filter(slug.eq("a"))).set((changes,));
    let no_likes = Some(likes.eq(likes + 1)).filter(|_| false);
    let none = (changes, no_likes);
    let nothing = update(videos).set(&none);
    let returning = update(videos.find(1)).set(changes).returning(views);
    for counted in [
        update(videos.find(1)).set(changes).execute(conn).done(),
        by_filter.execute(conn).done(),
        nothing.execute(conn).done(),
        returning.get_result::<i64>(conn).done().map(|_| 1),
    ] {
        assert_eq!(counted.unwrap_err().to_string(), error);
    }
    assert_eq!(counts(conn)[0], (100, 101, 1));
}

/// An increment may move a row out of its filter; one without a shard is counted all the same.
#[test]
fn a_filter_on_the_counted_total_itself() {
    let conn = &mut set_up().conn;
    for shard in 0..4 {
        let policy = RetryPolicy::new().with_random(move || shard);
        let nothing = update(videos.find(1)).set(views.eq(views + 0));
        let nothing = nothing.retry(policy).shard_choice(ShardChoice::Random);
        gives!(nothing.execute(conn), 1);
    }
    let few = videos.filter(views.total().le(200));
    assert_eq!(count!(few, views.eq(views + 100), conn), 2);
    assert_eq!(counts(conn), [(100, 200, 1), (200, 300, 2), (300, 300, 3)]);
}

//! An edit changes `updated_at`; operations that move and set counts do not.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_sharded::prelude::*;
use diesel_sharded::{RowCounter, ShardsTable, fold, set_total, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, count, schema};

use super::{AGAIN, CONDITIONS, Conn, UNCONDITIONAL};

const PAGE: &str = include_str!("../../../../src/reference/folding.md");

/// The statements that the page gives under this comment.
fn of_the_page(comment: &str) -> &'static str {
    let begin = format!("```sql\n-- {comment}\n");
    let (_, statements) = PAGE.split_once(&begin).expect(comment);
    statements.split_once("```").expect("an end").0
}

/// A database whose videos were edited in the year 2000, and have five views on a shard.
fn database(conditions: Option<&str>) -> (Database, Conn) {
    let (database, mut conn) = schema::database::<Conn>();
    conn.batch_execute(UNCONDITIONAL).unwrap();
    if let Some(conditions) = conditions {
        conn.batch_execute(AGAIN).unwrap();
        conn.batch_execute(of_the_page(conditions)).unwrap();
    }
    let edited = "UPDATE videos SET updated_at = '2000-01-01 00:00:00'";
    conn.batch_execute(edited).unwrap();
    count(&mut conn);
    assert_eq!(edited_in_2000(&mut conn), [1, 2, 3]);
    (database, conn)
}

fn count(conn: &mut Conn) {
    assert_eq!(count!(videos, views.eq(views + 5), conn), 3);
}

/// The videos that were not edited since.
fn edited_in_2000(conn: &mut Conn) -> Vec<i64> {
    let videos_of_2000 = videos.filter(sql::<Bool>("updated_at < '2001-01-01'"));
    videos_of_2000.select(id).order(id).load(conn).unwrap()
}

#[test]
fn without_a_condition_a_fold_looks_like_an_edit() {
    let (_database, mut conn) = database(None);
    let folded = fold(videos.filter(id.le(2))).run(&mut conn).unwrap();
    assert_eq!(folded.parents, 2);
    assert_eq!(edited_in_2000(&mut conn), [3]);
}

#[test]
fn with_a_condition_an_edit_alone_does() {
    for conditions in CONDITIONS {
        let (_database, conn) = &mut database(Some(conditions));
        let folded = fold(videos).keep_shards(0).run(conn).unwrap();
        assert_eq!((folded.parents, folded.unfit), (3, vec![]));
        count(conn);
        assert_eq!(set_total(videos.find(1), likes, 9).execute(conn), Ok(1));
        let bounded = RowCounter::of(views, 2).never_below(0);
        assert_eq!(bounded.add(-100, conn), Ok(true)); // more than a shard has: the base is written
        let base = diesel::update(videos.find(3)).set(views.eq(views + 1));
        assert_eq!(base.execute(conn), Ok(1));
        assert_eq!(edited_in_2000(conn), [1, 2, 3], "{conditions}");

        let edit = diesel::update(videos.find(2)).set(title.eq("edited"));
        assert_eq!(edit.execute(conn), Ok(1));
        let to_null = diesel::update(videos.find(3)).set(channel.eq(None::<String>));
        assert_eq!(to_null.execute(conn), Ok(1));
        assert_eq!(edited_in_2000(conn), [1], "{conditions}");
        let totals = videos.select(views.total()).order(id).load::<i64>(conn);
        assert_eq!(totals, Ok(vec![110, 110, 311]), "{conditions}");
        ShardsTable::of(videos).drop(conn).unwrap();
        assert_eq!(edited_in_2000(conn), [1], "{conditions}");
    }
}

//! Models that read totals, by `ShardedSelectable` and by Diesel's own attributes.

use std::borrow::Cow;

use super::api::{Total, top};
use super::support::*;
use diesel::backend::Backend;
use diesel::deserialize::{FromSql, FromSqlRow};
use diesel::sql_types::Text;
use diesel::sqlite::Sqlite;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{Download, videos as table};

/// Video 3 has 301 views and 3 likes, and two comments; the others have no shards.
fn counted() -> Connected<Conn> {
    let mut fixture = set_up();
    assert_eq!(count(3, 1, &mut fixture.conn), Ok(1));
    fixture
}

/// The same in Diesel's own attributes.
#[derive(Debug, PartialEq, Queryable, Selectable)]
#[diesel(table_name = table)]
struct Long {
    id: i64,
    #[diesel(select_expression = table::views.total(), select_expression_type = Total<table::views>)]
    views: i64,
}

#[test]
fn the_short_form_and_the_long_one() {
    let conn = &mut counted().conn;
    let short = videos.find(3).select(Video::as_select()).first(conn);
    let expected = Video {
        id: 3,
        slug: "c".into(),
        views: 301,
        likes: 3,
    };
    assert_eq!(short, Ok(expected));
    let long = videos.find(3).select(Long::as_select()).first(conn);
    assert_eq!(long, Ok(Long { id: 3, views: 301 }));
}

/// The library under another path, for `ShardedField` too: the model of clips in `recipes`.
pub mod facade {
    pub use diesel_sharded as counters;
}

/// A generic tuple struct with names that differ, a type of the application's own, and a selection by hand.
#[derive(Debug, PartialEq, ShardedSelectable)]
#[diesel(table_name = table, check_for_backend(Sqlite))]
#[sharded(crate = facade::counters)]
struct Card<'a, T>(
    #[diesel(column_name = slug)] Cow<'a, str>,
    #[sharded(sql_type = "BIGINT")]
    #[diesel(column_name = views, deserialize_as = i64)]
    Views,
    #[sharded]
    #[diesel(
        column_name = likes,
        select_expression = table::likes.total() + 1,
        select_expression_type = diesel::dsl::Add<Total<table::likes>, i32>,
    )]
    i32,
    #[diesel(column_name = title)] T,
)
where
    T: Clone;

#[derive(Debug, PartialEq)]
struct Views(i64);

impl From<i64> for Views {
    fn from(number: i64) -> Self {
        Views(number)
    }
}

#[test]
fn attributes_of_diesel() {
    let conn = &mut counted().conn;
    let card: QueryResult<Card<'_, String>> = videos.find(3).select(Card::as_select()).first(conn);
    let expected = Card("c".into(), Views(301), 4, "C".to_owned());
    assert_eq!(card, Ok(expected));
}

/// A type that nobody else knows.
#[derive(Debug, PartialEq, FromSqlRow)]
struct Title(String);

impl<DB: Backend> FromSql<Text, DB> for Title
where
    String: FromSql<Text, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> diesel::deserialize::Result<Self> {
        FromSql::from_sql(bytes).map(Title)
    }
}

#[derive(Debug, PartialEq, ShardedSelectable)]
#[diesel(table_name = table)]
struct Titled {
    title: Title,
    #[sharded]
    views: i64,
}

#[test]
fn fields_of_private_types() {
    let conn = &mut counted().conn;
    let read = videos.find(3).select(Titled::as_select()).first(conn);
    let expected = Titled {
        title: Title("C".into()),
        views: 301,
    };
    assert_eq!(read, Ok(expected));
}

#[derive(Debug, PartialEq, Queryable, Selectable)]
#[diesel(table_name = comments)]
struct Comment {
    id: i64,
    #[diesel(embed)]
    video: Option<Video>,
}

#[derive(Debug, PartialEq, ShardedSelectable)]
#[diesel(table_name = table)]
struct Nested {
    #[diesel(embed)]
    video: Video,
    #[sharded]
    likes: i32,
}

#[test]
fn embedded_and_joined() {
    let conn = &mut counted().conn;
    let joined = || comments::table.left_join(table::table).order(comments::id);
    let read = joined().select(Comment::as_select()).load(conn).unwrap();
    let views_of = |video: &Option<Video>| video.as_ref().map(|video| video.views);
    let read: Vec<_> = read.iter().map(|c| (c.id, views_of(&c.video))).collect();
    assert_eq!(read, [(1, Some(301)), (2, Some(301))]);
    let nested = videos.find(3).select(Nested::as_select()).first(conn);
    let nested = nested.unwrap();
    assert_eq!((nested.video.views, nested.likes), (301, 3));
    let tuple = comments::table.inner_join(table::table);
    let tuple = tuple.select((Video::as_select(), comments::id));
    let tuple = tuple.order(comments::id.desc());
    let (video, comment): (Video, i64) = tuple.first(conn).unwrap();
    assert_eq!((video.views, comment), (301, 2));
    delete!(videos.find(3), conn);
    let unmatched = joined().select(Option::<Video>::as_select()).load(conn);
    assert_eq!(unmatched, Ok(vec![None, None]));
}

#[derive(Debug, Identifiable, Associations, Queryable, Selectable)]
#[diesel(table_name = comments, belongs_to(Video))]
struct OfVideo {
    id: i64,
    video_id: i64,
}

/// Comments have no counter, so the video is looked for by its comments.
#[test]
fn of_associations_and_boxed_queries() {
    let conn = &mut counted().conn;
    let video = videos.find(3).select(Video::as_select()).first(conn);
    let video = video.unwrap();
    let comment = OfVideo::belonging_to(&video).inner_join(table::table);
    let comment = comment.select((OfVideo::as_select(), Video::as_select()));
    let read: Vec<(OfVideo, Video)> = comment.load(conn).unwrap();
    assert!(read.iter().all(|(c, v)| c.video_id == 3 && v.views == 301));
    assert_eq!(read.len(), 2);
    assert!(read[0].0.id() != read[1].0.id());
    let boxed = videos.select(Video::as_select()).into_boxed();
    let boxed = boxed.filter(views.total().gt(300)).order(views.total());
    assert_eq!(boxed.load(conn), Ok(vec![video]));
}

#[test]
fn returned_by_counts_and_top_lists() {
    let conn = &mut counted().conn;
    let by_key = || viewed!(videos.find(3));
    let video = by_key().returning(Video::as_returning());
    let video: Video = video.get_result(conn).unwrap();
    assert_eq!(video.views, 302);
    let nested = by_key().returning((Nested::as_returning(), slug));
    let (nested, name): (Nested, String) = nested.get_result(conn).unwrap();
    assert_eq!((nested.video.views, nested.likes, &*name), (303, 3, "c"));
    let by_filter = update(videos.filter(channel.eq("news"))).set(likes.eq(likes + 1));
    let by_filter = by_filter.returning(Video::as_returning());
    let mut read: Vec<Video> = by_filter.get_results(conn).unwrap();
    read.sort_by_key(|video| video.id);
    let read: Vec<_> = read.iter().map(|v| (v.id, v.views, v.likes)).collect();
    assert_eq!(read, [(2, 200, 3), (3, 303, 4)]);
    let best = top(videos, views, 1).select(Video::as_select()).first(conn);
    assert_eq!(best.map(|best| (best.id, best.views)), Ok((3, 303)));
    // Rows of no model are read as before.
    let whole: WholeVideo = by_key().get_result(conn).unwrap();
    assert_eq!(whole.views, 304);
}

#[test]
fn a_composite_key_and_a_sharded_type() {
    use downloads::dsl::{day, number, version};
    let conn = &mut set_up().conn;
    for _ in 0..2 {
        let count = update(downloads::table.find((1, Day(7)))).set(number.eq(number + 2));
        let count = count.or_insert((version.eq(1), day.eq(Day(7))));
        gives!(count.execute(conn), 1);
    }
    let read = downloads::table.select(Download::as_select()).first(conn);
    let expected = Download {
        version: 1,
        day: Day(7),
        number: 4,
    };
    assert_eq!(read, Ok(expected));
}

/// Models that may be saved: one whose counted fields are left out, and one that means to write them.
#[test]
fn models_that_are_saved() {
    #[derive(ShardedSelectable, Identifiable, AsChangeset)]
    #[diesel(table_name = table)]
    struct Page {
        id: i64,
        title: String,
        #[sharded]
        #[diesel(skip_update)]
        views: i64,
    }

    #[derive(ShardedSelectable, Identifiable, AsChangeset)]
    #[diesel(table_name = table)]
    #[sharded(saves_totals)]
    struct Import {
        id: i64,
        #[sharded]
        views: i64,
    }

    let conn = &mut counted().conn;
    let video = videos.find(3);
    let mut page = video.select(Page::as_select()).first(conn).unwrap();
    page.title = "new".into();
    assert_eq!(edit!(&page, &page, conn), 1);
    let stored = video.select((title, views, views.total())).first(conn);
    assert_eq!(stored, Ok(("new".to_owned(), 300_i64, page.views)));
    let import = Import { id: 3, views: 50 };
    assert_eq!(edit!(&import, &import, conn), 1);
    let stored = video.select((views, views.total())).first(conn);
    assert_eq!(stored, Ok((50_i64, 51_i64)));
}

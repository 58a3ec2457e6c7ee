//! Tables inside a schema: one of PostgreSQL's, another database on MySQL, an attached one on SQLite. Tables of the same names are
//! outside of it, and stay as they are.

use self::analytics::videos::dsl::*;
use self::analytics::{comments, reads, videos_shards};
use self::beside::videos as same_name;
use super::api::idempotency;
use super::support::*;
use diesel::dsl::{count_star, exists};
use diesel_sharded::backend::{BackendOf, Dialect};
use diesel_sharded::cached::{Cached, MokaCache};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::top;
use diesel_sharded_tests::pool;
use diesel_sharded_tests::schema::videos as outside;

mod beside {
    diesel::table! {
        videos (id) {
            id -> BigInt,
            views -> BigInt,
        }
    }
}

mod analytics {
    use super::beside::videos as same_name;
    use diesel::prelude::*;
    use diesel_sharded::prelude::*;

    diesel::table! {
        analytics.videos (id) {
            id -> BigInt,
            slug -> Text,
            views -> BigInt,
            likes -> Integer,
        }
    }

    diesel::table! {
        analytics.videos_shards (id, shard) {
            id -> BigInt,
            shard -> Integer,
            views -> BigInt,
            likes -> Integer,
        }
    }

    diesel::table! {
        analytics.comments (id) {
            id -> BigInt,
            video_id -> BigInt,
            shown -> Bool,
        }
    }

    diesel::table! {
        analytics.reads (page, day) {
            page -> Text,
            day -> Integer,
            number -> BigInt,
        }
    }

    diesel::joinable!(comments -> videos (video_id));
    diesel::allow_tables_to_appear_in_same_query!(videos, comments);
    diesel::allow_tables_to_appear_in_same_query!(videos, same_name);

    #[derive(Debug, Clone, PartialEq, ShardedSelectable, Identifiable, ShardedField)]
    #[diesel(table_name = videos)]
    #[sharded(schema = analytics, shards = 4)]
    pub struct Video {
        pub id: i64,
        pub slug: String,
        #[sharded]
        pub views: i64,
        #[sharded]
        pub likes: i32,
    }

    #[derive(Debug, ShardedField)]
    #[diesel(table_name = reads, primary_key(page, day))]
    #[sharded(schema = "analytics", table_name = "reads by \"day\"")]
    #[expect(dead_code, reason = "the derive reads the fields' types")]
    pub struct Read {
        #[sharded(sql_type = "VARCHAR(20)")]
        page: String,
        day: i32,
        #[sharded]
        number: i64,
    }
}

/// A database beside the schema. On MySQL all tests of a server have one, each in its turn.
struct Guard {
    _database: Database,
    turn: Conn,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if dialect(&self.turn) == Dialect::Mysql {
            let dropped = self.turn.batch_execute("DROP DATABASE IF EXISTS analytics");
            assert!(dropped.is_ok() || std::thread::panicking(), "{dropped:?}");
        }
    }
}

/// Videos 1 to 3 inside the schema, with 10, 20 and 30 views and no likes; outside as in the other tests, with 100, 200 and 300.
fn in_schema() -> (Guard, Conn) {
    let (database, mut conn) = database_with_counters();
    let mut turn = Conn::connect(&database);
    match dialect(&conn) {
        Dialect::Postgres => conn.batch_execute("CREATE SCHEMA analytics"),
        Dialect::Mysql => {
            turn.batch_execute("DO GET_LOCK('diesel_sharded_analytics', 300)")
                .unwrap();
            conn.batch_execute("DROP DATABASE IF EXISTS analytics; CREATE DATABASE analytics")
        }
        _ => conn.batch_execute("ATTACH ':memory:' AS analytics"),
    }
    .unwrap();
    conn.batch_execute(
        "CREATE TABLE analytics.videos (id BIGINT NOT NULL PRIMARY KEY, slug VARCHAR(20) NOT NULL, \
             views BIGINT NOT NULL, likes INTEGER NOT NULL DEFAULT 0);
         CREATE TABLE analytics.comments (id BIGINT NOT NULL PRIMARY KEY, video_id BIGINT NOT NULL, shown BOOLEAN NOT NULL);
         CREATE TABLE analytics.reads (page VARCHAR(20) NOT NULL, day INTEGER NOT NULL, number BIGINT NOT NULL DEFAULT 0, \
             PRIMARY KEY (page, day))",
    )
    .unwrap();
    ShardsTable::of(videos).create(&mut conn).unwrap();
    ShardsTable::of(reads::table).create(&mut conn).unwrap();
    for (video, name) in [(1, "a"), (2, "b"), (3, "c")] {
        insert!(
            videos,
            (id.eq(video), slug.eq(name), views.eq(video * 10)),
            &mut conn
        );
    }
    let guard = Guard {
        _database: database,
        turn,
    };
    (guard, conn)
}

fn totals(conn: &mut Conn) -> Vec<i64> {
    let all = videos.select(views.total()).order(id);
    all.load(conn).unwrap()
}

fn comment_on(video: i64, comment: i64, is_shown: bool, conn: &mut Conn) {
    let shown = comments::shown.eq(is_shown);
    let new = (
        comments::id.eq(comment),
        comments::video_id.eq(video),
        shown,
    );
    insert!(comments::table, new, conn);
}

/// Counts a page of a day, which is inserted if it is not there.
fn read_page(conn: &mut Conn) {
    let day = update(reads::table.find(("x", 1))).set(reads::number.eq(reads::number + 1));
    let day = day.or_insert((reads::page.eq("x"), reads::day.eq(1)));
    assert_eq!(day.execute(conn), Ok(1));
}

fn bases(conn: &mut Conn) -> Vec<i64> {
    videos.select(views).order(id).load(conn).unwrap()
}

/// The tables of the same names outside are as they were.
fn assert_outside(conn: &mut Conn) {
    let all = outside::table.select(outside::views.total());
    let all = all.order(outside::id).load::<i64>(conn).unwrap();
    assert_eq!(all, [100, 200, 300]);
    let shards = diesel_sharded_tests::schema::videos_shards::table.count();
    assert_eq!(shards.get_result::<i64>(conn), Ok(0));
}

#[test]
fn counts_by_key_and_by_filters() {
    let (_guard, conn) = &mut in_schema();
    for times in 1..=3 {
        let changes = (views.eq(views + 1), likes.eq(likes - 2));
        assert_eq!(count!(videos.find(1), changes, conn), 1);
        assert_eq!(totals(conn), [10 + times, 20, 30]);
    }
    assert_eq!(count!(videos.find(9), views.eq(views + 1), conn), 0);
    for _ in 0..2 {
        let rows = videos.filter(slug.eq("b"));
        assert_eq!(count!(rows, views.eq(views + 1 + 4), conn), 1);
    }
    for _ in 0..2 {
        let rows = videos.filter(id.ge(2));
        assert_eq!(count!(rows, views.eq(views - 1), conn), 2);
    }
    assert_eq!(totals(conn), [13, 28, 28]);
    let by_total = videos.filter(views.total().eq(28));
    assert_eq!(count!(by_total, views.eq(views + 2), conn), 2);
    assert_eq!(totals(conn), [13, 30, 30]);
    assert_eq!(bases(conn), [10, 20, 30]);
    rolled_back(conn, |conn| {
        assert_eq!(count!(videos, views.eq(views + 1), conn), 3);
        assert_eq!(totals(conn), [14, 31, 31]);
    });
    assert_eq!(totals(conn), [13, 30, 30]);
    let likes_of = videos.find(1).select(likes.total());
    assert_eq!(likes_of.first::<i32>(conn), Ok(-6));
    assert_outside(conn);
}

#[test]
fn rows_are_returned_inserted_and_read() {
    let (_guard, conn) = &mut in_schema();
    for n in 1..=3 {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        let counted = count.returning((id, views)).get_result::<(i64, i64)>(conn);
        assert_eq!(counted, Ok((1, 10 + n)));
    }
    for n in 1..=2 {
        let count = update(videos.filter(id.ge(2))).set(views.eq(views + 1));
        let mut counted: Vec<(i64, i64)> = count.returning((id, views)).get_results(conn).unwrap();
        counted.sort();
        assert_eq!(counted, [(2, 20 + n), (3, 30 + n)]);
    }
    for _ in 0..2 {
        let count = update(videos.find(4)).set(views.eq(views + 5));
        let counted = count.or_insert((id.eq(4), slug.eq("d"), views.eq(40)));
        assert_eq!(counted.execute(conn), Ok(1));
    }
    read_page(conn);
    let day =
        update(reads::table.filter(reads::day.eq(1))).set(reads::number.eq(reads::number + 1));
    assert_eq!(day.execute(conn), Ok(1));
    let day = reads::table.select(reads::number.total());
    assert_eq!(day.load::<i64>(conn), Ok(vec![2]));

    let best = videos
        .filter(views.total().gt(13))
        .order(views.total().desc())
        .select(analytics::Video::as_select())
        .first::<analytics::Video>(conn)
        .unwrap();
    assert_eq!((best.id, best.views, best.likes), (4, 50, 0));
    for (comment, video) in [(1, 3), (2, 3)] {
        comment_on(video, comment, true, conn);
    }
    let joined = comments::table
        .inner_join(videos)
        .select((comments::id, views.total()))
        .order(comments::id);
    assert_eq!(joined.load::<(i64, i64)>(conn), Ok(vec![(1, 32), (2, 32)]));
    let v = diesel::alias!(analytics::videos as v);
    let aliased = v.filter(v.field(id).eq(3)).select(v.field(views).total());
    assert_eq!(aliased.first::<i64>(conn), Ok(32));
    // Tables of one name in two schemas, in one statement.
    let same = same_name::table.filter(same_name::id.eq(id).and(same_name::views.gt(150)));
    for n in 1..=2 {
        let rows = videos.filter(exists(same)).filter(id.lt(3));
        assert_eq!(count!(rows, views.eq(views + 1), conn), 1);
        assert_eq!(totals(conn), [13, 22 + n, 32, 50]);
    }
    let base = same_name::table.find(2).select(same_name::views);
    let both = videos.find(2).select((views.total(), base.single_value()));
    assert_eq!(both.first(conn), Ok((24_i64, Some(200_i64))));
    assert_outside(conn);
}

#[test]
fn totals_are_folded_set_and_listed() {
    let (_guard, conn) = &mut in_schema();
    let count = |conn: &mut Conn| {
        let changes = (views.eq(views + 3), likes.eq(likes + 1));
        assert_eq!(count!(videos, changes, conn), 3);
    };
    count(conn);
    let folded = fold(videos.filter(slug.ne("b")))
        .batch(1)
        .run(conn)
        .unwrap();
    assert_eq!((folded.parents, folded.finished), (2, true));
    assert_eq!(bases(conn), [13, 20, 33]);
    count(conn);
    let folded = fold(videos).batch(1).run(conn).unwrap();
    assert_eq!((folded.parents, folded.finished), (3, true));
    assert_eq!(bases(conn), [16, 26, 36]);
    assert_eq!(totals(conn), [16, 26, 36]);
    count(conn);
    read_page(conn);
    assert_eq!(fold(reads::table).batch(1).run(conn).unwrap().parents, 1);

    let first = top(videos, views, 2).select((id, views));
    assert_eq!(first.load(conn), Ok(vec![(3_i64, 39_i64), (2, 29)]));
    let first = top(videos.filter(slug.ne("c")), views, 1).select((id, views));
    assert_eq!(first.load(conn), Ok(vec![(2_i64, 29_i64)]));

    assert_eq!(set_total(videos.find(1), views, 7).execute(conn), Ok(1));
    assert_eq!(
        set_total(videos.filter(id.gt(1)), views, 8).execute(conn),
        Ok(2)
    );
    assert_eq!(totals(conn), [7, 8, 8]);
    assert_eq!(reset(videos.find(3)).execute(conn), Ok(1));
    assert_eq!(totals(conn), [7, 8, 0]);

    comment_on(2, 1, true, conn);
    let recount = comments::table
        .group_by(comments::video_id)
        .select((comments::video_id, count_star()));
    let drifts = verify(videos, views, recount).drifts(conn).unwrap();
    assert_eq!(drifts.len(), 2);
    let drifts = verify(videos, views, recount).repair(conn).unwrap();
    assert_eq!(drifts.len(), 2);
    assert_eq!(totals(conn), [0, 1, 0]);
    assert_outside(conn);
}

#[test]
fn rows_as_values() {
    let (_guard, conn) = &mut in_schema();
    for times in 1..=2 {
        let counted = count_many(views, [(1, 5), (2, -1), (9, 1), (1, 2)])
            .run(conn)
            .unwrap();
        assert_eq!((counted.rows, counted.missing), (2, vec![9]));
        assert_eq!(totals(conn), [10 + 7 * times, 20 - times, 30]);
    }
    let keys = [(("x".to_owned(), 1), 4), (("y".to_owned(), 2), 5)];
    let counted = count_many(reads::number, keys)
        .or_insert(|key: &(String, i32)| (reads::page.eq(key.0.clone()), reads::day.eq(key.1)));
    assert_eq!(counted.run(conn).unwrap().rows, 2);

    let third = RowCounter::of(views, 3);
    assert_eq!(third.add(2, conn), Ok(1));
    assert_eq!(third.add_and_get(3, conn), Ok(Some(35)));
    assert_eq!(third.get(conn), Ok(Some(35)));
    let stock = RowCounter::of(likes, 3).never_below(0).never_above(3);
    assert_eq!(stock.add(2, conn), Ok(true));
    assert_eq!(stock.add(-1, conn), Ok(true));
    assert_eq!(stock.add(3, conn), Ok(false));
    assert_eq!(stock.add(-2, conn), Ok(false));
    assert_eq!(stock.add(-1, conn), Ok(true));

    // The same key and values name another row outside.
    let cached = Cached::new(MokaCache::new(100));
    let other = diesel_sharded::RowCounter::of(outside::views, 3);
    let third = diesel_sharded::RowCounter::of(views, 3);
    assert_eq!(cached.get(&third, conn), Ok(35));
    assert_eq!(cached.get(&other, conn), Ok(300));

    let once = |conn: &mut Conn| {
        let count = update(videos.find(3)).set(views.eq(views + 1));
        count.idempotency_key("k").execute(conn)
    };
    assert_eq!((once(conn), once(conn)), (Ok(1), Ok(1)));
    assert_eq!(totals(conn)[2], 36);
    let reused = update(outside::table.find(3)).set(outside::views.eq(outside::views + 1));
    let reused = Error::from(reused.idempotency_key("k").execute(conn).unwrap_err());
    assert_matches!(reused, Error::IdempotencyKeyReused);
    assert!(idempotency::remove_older_than(std::time::Duration::from_secs(60), conn).is_ok());
    assert_outside(conn);
}

#[test]
fn amounts_are_coalesced() {
    let (guard, mut conn) = in_schema();
    if dialect(&conn) == Dialect::Sqlite {
        return; // the pool's connections have not attached the database
    }
    let coalescer = Coalescer::new(pool::<Conn>(guard._database.url())).unwrap();
    on_threads(4, &guard._database, |_, _| {
        for video in [1, 2, 3, 1, 2, 3] {
            let counter = diesel_sharded::RowCounter::of(views, video);
            coalescer.add_later(&counter, video).unwrap();
        }
    });
    drop(coalescer);
    assert_eq!(totals(&mut conn), [18, 36, 54]);
    assert_outside(&mut conn);
}

#[test]
fn rows_are_counted_by_triggers() {
    let (_guard, conn) = &mut in_schema();
    let cache = CounterCache::of(likes)
        .counts(comments::video_id)
        .filter(comments::shown);
    cache.create(conn).unwrap();
    for (comment, video, is_shown) in [(1, 1, true), (2, 1, true), (3, 2, true), (4, 2, false)] {
        comment_on(video, comment, is_shown, conn);
    }
    let all = videos.select(likes.total()).order(id);
    assert_eq!(all.load::<i32>(conn), Ok(vec![2, 1, 0]));
    let moved = diesel::update(comments::table.find(1)).set(comments::video_id.eq(3));
    moved.execute(conn).unwrap();
    delete!(comments::table.find(3), conn);
    let all = videos.select(likes.total()).order(id);
    assert_eq!(all.load::<i32>(conn), Ok(vec![1, 0, 1]));
    assert!(cache.verify().drifts(conn).unwrap().is_empty());
    assert_eq!(set_total(videos.find(1), likes, 50).execute(conn), Ok(1));
    assert_eq!(cache.verify().repair(conn).unwrap().len(), 1);
    cache.drop(conn).unwrap();
    diesel::delete(comments::table).execute(conn).unwrap();
    assert_eq!(all.load::<i32>(conn), Ok(vec![1, 0, 1]));
    assert_outside(conn);
}

#[test]
fn views_and_the_way_back() {
    let (_guard, conn) = &mut in_schema();
    let view = ShardsTable::of(videos).view("videos_totals");
    view.create(conn).unwrap();
    assert_eq!(count!(videos, views.eq(views + 1), conn), 3);
    let sum = "(SELECT CAST(SUM(views) AS DECIMAL(10)) FROM analytics.videos_totals)";
    let sum = match dialect(conn) {
        Dialect::Postgres => sum.replace("DECIMAL(10)", "BIGINT"),
        Dialect::Mysql => sum.replace("DECIMAL(10)", "SIGNED"),
        _ => sum.replace("DECIMAL(10)", "INTEGER"),
    };
    assert_eq!(number!(&sum, conn), 63);
    view.drop(conn).unwrap();
    let backend = <Conn as Connection>::Backend::backend_of(conn);
    let mut first = 11;
    if let Ok(function) = ShardsTable::of(videos).add_function_sql(&backend) {
        conn.batch_execute(&function).unwrap();
        let call = match dialect(conn) {
            Dialect::Postgres => "SELECT",
            _ => "CALL",
        };
        conn.batch_execute(&format!(
            "{call} analytics.videos_shards_add(1, 'views', 4)"
        ))
        .unwrap();
        first += 4;
        assert_eq!(totals(conn), [first, 21, 31]);
        let drop = ShardsTable::of(videos).drop_function_sql(&backend);
        conn.batch_execute(&drop.unwrap()).unwrap();
    }
    ShardsTable::of(videos).drop(conn).unwrap();
    assert_eq!(bases(conn), [first, 21, 31]);
    let missing = update(videos.find(1))
        .set(views.eq(views + 1))
        .execute(conn);
    match Error::from(missing.unwrap_err()) {
        Error::MissingShardsTable { table, .. } => assert_eq!(table, "analytics.videos_shards"),
        error => panic!("{error}"),
    }
    // The text of the migration, up and down.
    let shards_table = ShardsTable::of(videos);
    conn.batch_execute(&shards_table.create_sql(&backend).unwrap())
        .unwrap();
    assert_eq!(count!(videos, views.eq(views + 1), conn), 3);
    assert_eq!(videos_shards::table.count().get_result::<i64>(conn), Ok(3));
    diesel::delete(videos.find(3)).execute(conn).unwrap();
    assert_eq!(videos_shards::table.count().get_result::<i64>(conn), Ok(2));
    conn.batch_execute(&shards_table.drop_sql(&backend).unwrap())
        .unwrap();
    assert_eq!(bases(conn), [first + 1, 22]);
    assert_outside(conn);
}

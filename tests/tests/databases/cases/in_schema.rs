//! Tables inside a schema: one of PostgreSQL's, another database on MySQL, an attached one on SQLite. Tables of the same names are
//! outside of it, and stay as they are.

use self::analytics::videos::dsl::*;
use self::analytics::{comments, reads, videos_shards};
use self::beside::videos as same_name;
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
    #[sharded(schema = analytics, table_name = videos_shards, shards = 4)]
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

/// A connection, the schema and the database beside it, which are dropped in this order.
struct InSchema {
    conn: Conn,
    _schema: Schema,
    database: Database,
}

/// On MySQL all tests of a server have one schema, each in its turn.
struct Schema {
    turn: Conn,
}

impl Drop for Schema {
    fn drop(&mut self) {
        if dialect(&self.turn) == Dialect::Mysql {
            let dropped = self.turn.batch_execute("DROP DATABASE IF EXISTS analytics");
            assert!(dropped.is_ok() || std::thread::panicking(), "{dropped:?}");
        }
    }
}

/// Videos 1 to 3 inside the schema, with 10, 20 and 30 views and no likes; outside as in the other tests, with 100, 200 and 300.
fn in_schema() -> InSchema {
    let Connected { mut conn, database } = set_up_with_counters();
    let mut turn = Conn::connect(&database);
    let schema = match dialect(&conn) {
        Dialect::Postgres => "CREATE SCHEMA analytics",
        Dialect::Mysql => {
            let lock = "DO GET_LOCK('diesel_sharded_analytics', 300)";
            turn.batch_execute(lock).unwrap();
            "DROP DATABASE IF EXISTS analytics; CREATE DATABASE analytics"
        }
        _ => "ATTACH ':memory:' AS analytics",
    };
    conn.batch_execute(schema).unwrap();
    conn.batch_execute(
        "CREATE TABLE analytics.videos (id BIGINT NOT NULL PRIMARY KEY, slug VARCHAR(20) NOT NULL, \
             views BIGINT NOT NULL, likes INTEGER NOT NULL DEFAULT 0);
         CREATE TABLE analytics.comments (id BIGINT NOT NULL PRIMARY KEY, video_id BIGINT NOT NULL, shown BOOLEAN NOT NULL);
         CREATE TABLE analytics.reads (page VARCHAR(20) NOT NULL, day INTEGER NOT NULL, number BIGINT NOT NULL DEFAULT 0, \
             PRIMARY KEY (page, day));
         INSERT INTO analytics.videos (id, slug, views) VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30)",
    )
    .unwrap();
    ShardsTable::of(videos).create(&mut conn).unwrap();
    ShardsTable::of(reads::table).create(&mut conn).unwrap();
    InSchema {
        conn,
        _schema: Schema { turn },
        database,
    }
}

fn bases(conn: &mut Conn) -> Vec<i64> {
    videos.select(views).order(id).load(conn).unwrap()
}

fn totals(conn: &mut Conn) -> Vec<i64> {
    let all = videos.select(views.total()).order(id);
    all.load(conn).unwrap()
}

fn likes_of_all(conn: &mut Conn) -> Vec<i32> {
    let all = videos.select(likes.total()).order(id);
    all.load(conn).unwrap()
}

/// Comments with their videos, and whether they are shown.
fn insert_comments(rows: &str, conn: &mut Conn) {
    let insert = format!("INSERT INTO analytics.comments VALUES {rows}");
    conn.batch_execute(&insert).unwrap();
}

/// Counts a page of a day, which is inserted if it is not there.
fn read_page(conn: &mut Conn) {
    let day = update(reads::table.find(("x", 1))).set(reads::number.eq(reads::number + 1));
    let day = day.or_insert((reads::page.eq("x"), reads::day.eq(1)));
    gives!(day.execute(conn), 1);
}

/// The tables of the same names outside are as they were.
fn assert_outside(conn: &mut Conn) {
    assert_eq!(super::totals(conn), [100, 200, 300]);
    let shards = diesel_sharded_tests::schema::videos_shards::table.count();
    assert_eq!(shards.get_result::<i64>(conn), Ok(0));
}

#[test]
fn counts_by_key_and_by_filters() {
    let conn = &mut in_schema().conn;
    for times in 1..=3 {
        let changes = (views.eq(views + 1), likes.eq(likes - 2));
        assert_eq!(count!(videos.find(1), changes, conn), 1);
        assert_eq!(totals(conn), [10 + times, 20, 30]);
    }
    assert_eq!(count!(videos.find(9), views.eq(views + 1), conn), 0);
    for _ in 0..2 {
        let rows = videos.filter(slug.eq("b"));
        assert_eq!(count!(rows, views.eq(views + 1 + 4), conn), 1);
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
    assert_eq!(likes_of_all(conn), [-6, 0, 0]);
    assert_outside(conn);
}

#[test]
fn rows_are_returned_inserted_and_read() {
    let conn = &mut in_schema().conn;
    for n in 1..=3 {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        let counted = count.returning((id, views)).get_result(conn).done();
        assert_eq!(counted, Ok((1_i64, 10_i64 + n)));
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
        gives!(counted.execute(conn), 1);
    }
    read_page(conn);
    let day = reads::table.filter(reads::day.eq(1));
    let changes = reads::number.eq(reads::number + 1);
    assert_eq!(count!(day, changes, conn), 1);
    let day = reads::table.select(reads::number.total());
    assert_eq!(day.load::<i64>(conn), Ok(vec![2]));

    let best = videos
        .filter(views.total().gt(13))
        .order(views.total().desc());
    let best = best.select(analytics::Video::as_select()).first(conn);
    let best = best.unwrap();
    assert_eq!((best.id, best.views, best.likes), (4, 50, 0));
    insert_comments("(1, 3, TRUE), (2, 3, TRUE)", conn);
    let joined = comments::table.inner_join(videos).order(comments::id);
    let joined = joined.select((comments::id, views.total()));
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
    let conn = &mut in_schema().conn;
    let count_all = |conn: &mut Conn| {
        let changes = (views.eq(views + 3), likes.eq(likes + 1));
        assert_eq!(count!(videos, changes, conn), 3);
    };
    count_all(conn);
    let folded = fold(videos.filter(slug.ne("b"))).batch(1).run(conn).done();
    assert_eq!(folded.unwrap().parents, 2);
    assert_eq!(bases(conn), [13, 20, 33]);
    count_all(conn);
    assert_eq!(fold(videos).batch(1).run(conn).unwrap().parents, 3);
    assert_eq!(bases(conn), [16, 26, 36]);
    assert_eq!(totals(conn), [16, 26, 36]);
    count_all(conn);
    read_page(conn);
    assert_eq!(fold(reads::table).batch(1).run(conn).unwrap().parents, 1);

    let first = top(videos, views, 2).select((id, views));
    assert_eq!(first.load(conn), Ok(vec![(3_i64, 39_i64), (2, 29)]));
    let first = top(videos.filter(slug.ne("c")), views, 1).select((id, views));
    assert_eq!(first.load(conn), Ok(vec![(2_i64, 29_i64)]));

    gives!(set_total(videos.find(1), views, 7).execute(conn), 1);
    let others = set_total(videos.filter(id.gt(1)), views, 8);
    gives!(others.execute(conn), 2);
    assert_eq!(totals(conn), [7, 8, 8]);
    gives!(reset(videos.find(3)).execute(conn), 1);
    assert_eq!(totals(conn), [7, 8, 0]);

    insert_comments("(1, 2, TRUE)", conn);
    let recount = comments::table.group_by(comments::video_id);
    let recount = recount.select((comments::video_id, count_star()));
    let drifts = verify(videos, views, recount).drifts(conn).unwrap();
    let repaired = verify(videos, views, recount).repair(conn).unwrap();
    assert_eq!((drifts.len(), repaired.len()), (2, 2));
    assert_eq!(totals(conn), [0, 1, 0]);
    assert_outside(conn);
}

#[test]
fn rows_as_values() {
    let conn = &mut in_schema().conn;
    for times in 1..=2 {
        let counted = count_many(views, [(1, 5), (2, -1), (9, 1), (1, 2)]);
        let counted = counted.run(conn).unwrap();
        assert_eq!((counted.rows, counted.missing), (2, vec![9]));
        assert_eq!(totals(conn), [10 + 7 * times, 20 - times, 30]);
    }
    let keys = [(("x".to_owned(), 1), 4), (("y".to_owned(), 2), 5)];
    let counted = count_many(reads::number, keys)
        .or_insert(|key: &(String, i32)| (reads::page.eq(key.0.clone()), reads::day.eq(key.1)));
    assert_eq!(counted.run(conn).unwrap().rows, 2);

    let third = RowCounter::of(views, 3);
    gives!(third.add(2, conn), 1);
    gives!(third.add_and_get(3, conn), Some(35));
    gives!(third.get(conn), Some(35));
    let stock = RowCounter::of(likes, 3).never_below(0).never_above(3);
    let added = [2, -1, 3, -2, -1].map(|n| stock.add(n, conn).unwrap());
    assert_eq!(added, [true, true, false, false, true]);

    // The same key and values name another row outside.
    let cached = Cached::new(MokaCache::new(100));
    let other = diesel_sharded::RowCounter::of(outside::views, 3);
    let third = diesel_sharded::RowCounter::of(views, 3);
    assert_eq!(cached.get(&third, conn), Ok(35));
    assert_eq!(cached.get(&other, conn), Ok(300));

    for _ in 0..2 {
        let count = update(videos.find(3)).set(views.eq(views + 1));
        gives!(count.idempotency_key("k").execute(conn), 1);
    }
    assert_eq!(totals(conn)[2], 36);
    let reused = viewed!(outside::table.find(3)).idempotency_key("k");
    refused!(reused.execute(conn), Error::IdempotencyKeyReused);
    assert_outside(conn);
}

#[test]
fn amounts_are_coalesced() {
    let InSchema { conn, database, .. } = &mut in_schema();
    if dialect(conn) == Dialect::Sqlite {
        return; // the pool's connections have not attached the database
    }
    let coalescer = Coalescer::new(pool::<Conn>(database.url())).unwrap();
    on_threads(4, database, |_, _| {
        for video in [1, 2, 3, 1, 2, 3] {
            let counter = diesel_sharded::RowCounter::of(views, video);
            coalescer.add_later(&counter, video).unwrap();
        }
    });
    drop(coalescer);
    assert_eq!(totals(conn), [18, 36, 54]);
    assert_outside(conn);
}

#[test]
fn rows_are_counted_by_triggers() {
    let conn = &mut in_schema().conn;
    let cache = CounterCache::of(likes).counts(comments::video_id);
    let cache = cache.filter(comments::shown);
    cache.create(conn).unwrap();
    let rows = "(1, 1, TRUE), (2, 1, TRUE), (3, 2, TRUE), (4, 2, FALSE)";
    insert_comments(rows, conn);
    assert_eq!(likes_of_all(conn), [2, 1, 0]);
    edit!(comments::table.find(1), comments::video_id.eq(3), conn);
    delete!(comments::table.find(3), conn);
    assert_eq!(likes_of_all(conn), [1, 0, 1]);
    assert!(cache.verify().drifts(conn).unwrap().is_empty());
    gives!(set_total(videos.find(1), likes, 50).execute(conn), 1);
    assert_eq!(cache.verify().repair(conn).unwrap().len(), 1);
    cache.drop(conn).unwrap();
    delete!(comments::table, conn);
    assert_eq!(likes_of_all(conn), [1, 0, 1]);
    assert_outside(conn);
}

#[test]
fn views_and_the_way_back() {
    let conn = &mut in_schema().conn;
    let shards_table = ShardsTable::of(videos);
    let (integer, call) = match dialect(conn) {
        Dialect::Postgres => ("BIGINT", "SELECT"),
        Dialect::Mysql => ("SIGNED", "CALL"),
        _ => ("INTEGER", ""),
    };
    let view = shards_table.view("videos_totals");
    view.create(conn).unwrap();
    assert_eq!(count!(videos, views.eq(views + 1), conn), 3);
    let sum = format!("(SELECT CAST(SUM(views) AS {integer}) FROM analytics.videos_totals)");
    assert_eq!(number!(&sum, conn), 63);
    view.drop(conn).unwrap();
    let backend = <Conn as Connection>::Backend::backend_of(conn);
    let mut first = 11;
    if let Ok(function) = shards_table.add_function_sql(&backend) {
        conn.batch_execute(&function).unwrap();
        let add = format!("{call} analytics.videos_shards_add(1, 4, 0)");
        conn.batch_execute(&add).unwrap();
        first += 4;
        assert_eq!(totals(conn), [first, 21, 31]);
        let drop = shards_table.drop_function_sql(&backend);
        conn.batch_execute(&drop.unwrap()).unwrap();
    }
    shards_table.drop(conn).unwrap();
    assert_eq!(bases(conn), [first, 21, 31]);
    let missing = update(videos.find(1)).set(views.eq(views + 1));
    refused!(missing.execute(conn), Error::MissingShardsTable { table, .. } if table == "analytics.videos_shards");
    // The text of the migration, up and down.
    let create = shards_table.create_sql(&backend).unwrap();
    conn.batch_execute(&create).unwrap();
    assert_eq!(count!(videos, views.eq(views + 1), conn), 3);
    assert_eq!(videos_shards::table.count().get_result::<i64>(conn), Ok(3));
    delete!(videos.find(3), conn);
    assert_eq!(videos_shards::table.count().get_result::<i64>(conn), Ok(2));
    let drop = shards_table.drop_sql(&backend).unwrap();
    conn.batch_execute(&drop).unwrap();
    assert_eq!(bases(conn), [first + 1, 22]);
    assert_outside(conn);
}

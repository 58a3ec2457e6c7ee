//! Each operation as a role that has the privileges of its section in the guide, and as one that lacks a single one of them.

use std::error::Error as StdError;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_counts::{self, ShardCount};
use diesel_sharded::unique::Unique;
use diesel_sharded::{
    Counter, CounterCache, MIGRATIONS, RowCounter, ShardsTable, count_many, fold, idempotency,
    reset, set_total, unique, update, verify,
};
use diesel_sharded_tests::fixture::Run;
use diesel_sharded_tests::role::{self, Role};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, comments, videos_shards};
use diesel_sharded_tests::{Database, TestConnection, assert_matches, pool, recording};

use super::Conn;

type Result<T = ()> = std::result::Result<T, Box<dyn StdError + Send + Sync>>;

/// A database with videos that are counted on shards, and the library's tables.
fn database() -> (Database, Conn) {
    schema::database_with_counters()
}

fn needs(
    sections: &[&str],
    prepare: fn(&mut Conn) -> Result,
    operation: fn(&mut Conn, &str) -> Result,
) {
    role::needs(sections, &["denied"], database, prepare, |url| {
        operation(&mut Conn::establish(url)?, url)
    });
}

fn nothing(_: &mut Conn) -> Result {
    Ok(())
}

/// Five more views of each video, on a shard.
fn counted(conn: &mut Conn) -> Result {
    update(videos).set(views.eq(views + 5)).execute(conn)?;
    Ok(())
}

fn total_of(video: i64, conn: &mut Conn) -> QueryResult<i64> {
    videos.find(video).select(views.total()).first(conn)
}

#[test]
fn reading_totals() {
    needs(&["Reading totals"], counted, |conn, _| {
        assert_eq!(total_of(1, conn)?, 105);
        Ok(())
    });
}

#[test]
fn writing_counted_rows() {
    let create = |conn: &mut Conn| -> Result {
        let cache = CounterCache::of(likes).counts(comments::video_id);
        Ok(cache.create(conn)?)
    };
    needs(&["Writing counted rows"], create, |conn, _| {
        let row = (comments::id.eq(10), comments::video_id.eq(1));
        let added = diesel::insert_into(comments::table).values(row);
        added.execute(conn)?;
        let row = comments::table.find(10);
        let moved = diesel::update(row).set(comments::video_id.eq(2));
        moved.execute(conn)?;
        diesel::delete(row).execute(conn)?;
        Ok(())
    });
}

#[test]
fn counting() {
    needs(&["Counting"], nothing, |conn, _| {
        let by_key = || update(videos.find(1)).set((views.eq(views + 1), likes.eq(likes + 1)));
        assert_eq!(by_key().execute(conn)?, 1);
        assert_eq!(by_key().execute(conn)?, 1);
        let by_filter = videos.filter(channel.eq("news"));
        let by_filter = update(by_filter).set(views.eq(views + 1));
        assert_eq!(by_filter.execute(conn)?, 2);
        let back = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
        assert_eq!(back.returning(views).get_result::<i64>(conn)?, 103);
        assert_eq!(RowCounter::of(views, 2).add(1, conn)?, 1);
        assert_eq!(total_of(2, conn)?, 202);
        let inside = conn.transaction(|conn| by_key().execute(conn))?;
        assert_eq!(inside, 1);
        Ok(())
    });
}

#[test]
fn counting_on_rows_that_may_be_missing() {
    let sections = ["Counting on rows that may be missing", "Counting"];
    needs(&sections, nothing, |conn, _| {
        let count = update(videos.find(9)).set(views.eq(views + 1));
        let count = count.or_insert((id.eq(9), slug.eq("i"), title.eq("I")));
        assert_eq!((count.execute(conn)?, total_of(9, conn)?), (1, 1));
        Ok(())
    });
}

#[test]
fn setting_totals() {
    needs(&["Setting totals"], counted, |conn, _| {
        assert_eq!(set_total(videos.find(1), views, 7).execute(conn)?, 1);
        assert_eq!(reset(videos.filter(slug.eq("b"))).execute(conn)?, 1);
        assert_eq!((total_of(1, conn)?, total_of(2, conn)?), (7, 0));
        Ok(())
    });
}

#[test]
fn bounded_counters() {
    needs(&["Bounded counters", "Counting"], counted, |conn, _| {
        let bounded = RowCounter::of(views, 1).never_below(0);
        assert!(bounded.add(-100, conn)?); // no shard has that much: the room is handed out
        assert!(bounded.add(-1, conn)?);
        assert!(!bounded.add(-5, conn)?);
        assert_eq!(total_of(1, conn)?, 4);
        Ok(())
    });
}

#[test]
fn folding() {
    // On MySQL only fields that have something on shards are written.
    let counted = |conn: &mut Conn| {
        update(videos).set(likes.eq(likes + 1)).execute(conn)?;
        counted(conn)
    };
    needs(&["Folding"], counted, |conn, _| {
        let folded = fold(videos).run(conn)?;
        assert_eq!(folded.parents, 3);
        fold(videos.find(1)).keep_shards(0).run(conn)?;
        assert_eq!(videos.find(1).select(views).first::<i64>(conn)?, 105);
        Ok(())
    });
}

/// If it is given a number of shards to keep, a fold does not read the library's table of numbers.
#[test]
fn folding_to_a_number_of_shards() {
    let (database, mut conn) = database();
    counted(&mut conn).unwrap();
    let of_numbers = |privilege: &str| privilege.contains("shard_numbers");
    let (_role, mut own) = Role::acting(&["Folding"], of_numbers, &database, &mut conn);
    let folded = fold(videos).keep_shards(4).run(&mut own).unwrap();
    assert_eq!(folded.parents, 3);
    // Without one it reads that table, and MySQL and MariaDB do not even tell the role whether the table exists.
    conn.revert_all_migrations(MIGRATIONS).unwrap();
    counted(&mut conn).unwrap();
    let folded = fold(videos).run(&mut own);
    match conn.version().contains("PostgreSQL") {
        true => assert_eq!(folded.unwrap().parents, 3),
        false => assert!(folded.unwrap_err().to_string().contains("denied")),
    }
}

macro_rules! recount {
    () => {
        comments::table
            .group_by(comments::video_id)
            .select((comments::video_id, count_star()))
    };
}

/// Likes are 1, 2 and 3; comments are 0, 0 and 2.
#[test]
fn verifying_and_repairing() {
    let sections = ["Verifying and repairing", "Reading totals"];
    needs(&sections, nothing, |conn, _| {
        assert_eq!(verify(videos, likes, recount!()).drifts(conn)?.len(), 3);
        assert_eq!(verify(videos, likes, recount!()).repair(conn)?.len(), 3);
        assert_eq!(verify(videos, likes, recount!()).drifts(conn)?.len(), 0);
        Ok(())
    });
}

#[test]
fn named_counters() {
    needs(&["Named counters"], nothing, |conn, _| {
        let counter = Counter::named("page:/");
        counter.increment(conn)?;
        counter.increment(conn)?;
        assert_eq!(counter.get(conn)?, 2);
        let pages = Counter::list("page:").load(conn)?;
        assert_eq!(pages, [("page:/".to_owned(), 2)]);
        Ok(())
    });
}

#[test]
fn managing_named_counters() {
    let sections = ["Managing named counters", "Named counters"];
    needs(&sections, nothing, |conn, _| {
        let counter = Counter::named("page:/");
        counter.add(5, conn)?;
        assert_eq!(counter.fold(conn)?.parents, 1);
        counter.set(7, conn)?;
        counter.resize(2, conn)?;
        assert_eq!((counter.get(conn)?, counter.shards(conn)?), (7, 2));
        assert!(counter.delete(conn)?);
        Ok(())
    });
}

#[test]
fn idempotency_keys() {
    needs(&["Idempotency keys", "Counting"], nothing, |conn, _| {
        for _ in 0..2 {
            let one = update(videos.find(1)).set(views.eq(views + 1));
            assert_eq!(one.idempotency_key("one").execute(conn)?, 1);
            let all = update(videos).set(likes.eq(likes + 1));
            assert_eq!(all.idempotency_key("all").execute(conn)?, 3);
            let none = update(videos.find(99)).set(likes.eq(likes + 1));
            assert_eq!(none.idempotency_key("none").execute(conn)?, 0);
            let visit = update(videos.find(2)).set(views.eq(views + 1));
            let visit = visit.once_per("ann", Duration::from_secs(86_400));
            assert_ne!(visit.count(conn)?, Unique::NoSuchRow);
        }
        assert_eq!(total_of(1, conn)?, 101);
        Ok(())
    });
}

#[test]
fn removing_idempotency_keys() {
    let keep_one_from_1970 = |conn: &mut Conn| {
        let counted = update(videos.find(1)).set(views.eq(views + 1));
        counted.idempotency_key("one").execute(conn)?;
        conn.batch_execute("UPDATE diesel_sharded_idempotency_keys SET created = 0")?;
        Ok(())
    };
    let sections = ["Removing idempotency keys"];
    needs(&sections, keep_one_from_1970, |conn, _| {
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(idempotency::remove_older_than(day, conn)?, 1);
        assert_eq!(unique::remove_expired(conn)?, 0);
        Ok(())
    });
}

#[test]
fn the_coalescer() {
    let sections = ["The coalescer", "Counting", "Named counters"];
    needs(&sections, nothing, |conn, url| {
        let coalescer = Coalescer::new(pool::<Conn>(url))?;
        for _ in 0..3 {
            coalescer.add_later(&RowCounter::of(views, 1), 1)?;
            coalescer.add_later(&Counter::named("page:/"), 1)?;
            coalescer.flush()?;
        }
        coalescer.close()?;
        // As a batch that is sent again, because the answer to its COMMIT was lost.
        for _ in 0..2 {
            let batch = count_many(views, [(1, 1)]).idempotency_key("batch");
            assert_eq!(batch.run(conn)?, 1);
        }
        assert_eq!(total_of(1, conn)?, 104);
        Ok(())
    });
}

#[test]
fn numbers_of_shards() {
    needs(&["Numbers of shards"], nothing, |conn, _| {
        shard_counts::refresh(conn)?;
        let number = ShardCount::of(likes);
        assert_eq!(number.increase(8, conn)?, 8);
        number.resize(4, conn)?; // as the derive says: other tests count meanwhile
        assert_eq!(number.get(conn)?, 4);
        Ok(())
    });
}

#[test]
fn creating_and_dropping_a_shards_table() {
    let drop_it = |conn: &mut Conn| Ok(ShardsTable::of(videos).drop(conn)?);
    let sections = ["Creating and dropping a shards table"];
    needs(&sections, drop_it, |conn, _| {
        ShardsTable::of(videos).create(conn)?;
        ShardsTable::of(videos).drop(conn)?;
        Ok(())
    });
}

/// A role that may delete a video and change its key needs no privilege on its shards.
#[test]
fn shards_follow_their_parent() {
    let (database, mut conn) = database();
    counted(&mut conn).unwrap();
    let of_shards = |privilege: &str| privilege.contains("shards");
    let (role, mut own) = Role::acting(&["Reading totals"], of_shards, &database, &mut conn);
    role.grant_all_on("videos");
    own.run("DELETE FROM videos WHERE id = 1; UPDATE videos SET id = 20 WHERE id = 2");
    let shards = videos_shards::table.select((videos_shards::id, videos_shards::views));
    let shards = shards.order(videos_shards::id).load(&mut conn);
    assert_eq!(shards, Ok(vec![(3, 5), (20_i64, 5_i64)]));
}

/// A view with totals gives its readers the rights of the role that created it, but not to write, or leaves them theirs.
#[test]
fn a_view_gives_away_no_right_to_write() {
    let (database, mut conn) = database();
    counted(&mut conn).unwrap();
    let view = |name: &str| ShardsTable::of(videos).view(name);
    view("totals").create(&mut conn).unwrap();
    let invoker = view("of_reader").security_invoker();
    invoker.create(&mut conn).unwrap();
    let role = Role::with(&database, &[]);
    role.grant_all_on("totals");
    role.grant_all_on("of_reader");
    let own = &mut Conn::establish(&role.url()).unwrap();
    let read = |view: &str, conn: &mut Conn| {
        let total = format!("SELECT views FROM {view} WHERE id = 1");
        diesel::dsl::sql::<diesel::sql_types::BigInt>(&total).get_result::<i64>(conn)
    };
    assert_eq!(read("totals", own), Ok(105));
    let refused = read("of_reader", own).unwrap_err().to_string();
    let is_told = refused.contains("denied") || refused.contains("lack rights");
    assert!(is_told, "{refused}");
    for name in ["totals", "of_reader"] {
        for write in [
            "UPDATE view SET title = 'x' WHERE id = 1",
            "DELETE FROM view WHERE id = 1",
            "INSERT INTO view (id, slug, title) VALUES (9, 'z', 'Z')",
        ] {
            let write = write.replace("view ", &format!("{name} "));
            assert!(own.batch_execute(&write).is_err(), "{write}");
        }
    }
    let titles = videos.select(title).order(id).load::<String>(&mut conn);
    assert_eq!(titles, Ok(vec!["A".into(), "B".into(), "C".into()]));
    role.grant_all_on("videos");
    role.grant_all_on("videos_shards");
    assert_eq!(read("of_reader", own), Ok(105));
}

/// A refused increment returns the database's own error, at once, and has changed nothing.
#[test]
fn a_refusal_is_not_tried_again() {
    let (database, mut conn) = database();
    counted(&mut conn).unwrap();
    let of_updates = |privilege: &str| privilege.starts_with("UPDATE");
    let (_role, mut own) = Role::acting(&["Counting"], of_updates, &database, &mut conn);
    let (policy, met) = recording();
    let count = update(videos.find(1)).set(views.eq(views + 1));
    let refused = count.retry(policy).execute(&mut own).unwrap_err();
    assert_matches!(&refused, DieselError::DatabaseError(_, told) if told.message().contains("videos_shards"));
    assert_eq!(met.lock().unwrap().len(), 0);
    assert_eq!(total_of(1, &mut conn), Ok(105));
}

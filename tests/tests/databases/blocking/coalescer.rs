//! The coalescer: amounts from many threads are added up in memory, and their sums committed exactly once.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_sharded::backend::Dialect;
use diesel_sharded::coalescer::{Coalescer, CoalescerBuilder, Loss};
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{Counter, Error, RowCounter, ShardsTable, fold, set_total, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{Day, downloads, measures, videos_shards};
use diesel_sharded_tests::{
    Database, TestConnection, assert_matches, conflict, edit, gives, insert, own_key, pool, until,
};

use super::{
    Conn, count, database, database_with_counters, dialect, on_threads, on_threads_beside,
    total_of, totals,
};

fn views_of(video: i64) -> RowCounter<views> {
    RowCounter::of(views, video)
}

/// Too much for its column.
const TOO_MUCH: i64 = 40_000;

fn small() -> RowCounter<measures::small> {
    RowCounter::of(measures::small, 1_i16)
}

/// On a row of the test's own, which no other test of this process has made hot.
#[test]
fn a_cold_key_has_one_shard_whoever_counts_on_it() {
    let (database, mut conn) = database_with_counters();
    let key = own_key();
    let cold = format!("INSERT INTO videos VALUES ({key}, 'cold', 'Cold', 0, 0, NULL)");
    conn.batch_execute(&cold).unwrap();
    for _ in 0..4 {
        let coalescers = [(); 2].map(|()| coalescer(&database));
        for coalescer in &coalescers {
            coalescer.add_later(&views_of(key), 1).unwrap();
            coalescer.flush().unwrap();
        }
        assert_eq!(count(key, 1, &mut conn), Ok(1));
    }
    let shards = videos_shards::table.select((videos_shards::shard, videos_shards::views));
    assert_eq!(shards.load(&mut conn), Ok(vec![(0, 12_i64)]));
}

#[test]
fn rows_under_composite_keys_are_counted_together() {
    let (database, conn) = &mut database_with_counters();
    let days = || (1..=3).flat_map(|version| (1..=5).map(move |day| (version, Day(day))));
    for (version, day) in days() {
        let row = (downloads::version.eq(version), downloads::day.eq(day));
        insert!(downloads::table, row, conn);
    }
    let coalescer = coalescer(database);
    for round in 1..=4 {
        // The rounds differ in how many rows are counted, and one row is not there.
        let counted = days().filter(|(_, day)| day.0 <= round);
        for (version, day) in counted.chain([(round, Day(9))]) {
            let counter = RowCounter::of(downloads::number, (version, day));
            let n = i64::from(100 * version + day.0);
            coalescer.add_later(&counter, n).unwrap();
        }
        coalescer.flush().unwrap();
    }
    let key = (downloads::version, downloads::day);
    let totals = downloads::table.order(key);
    let totals = totals.select((key.0, key.1, downloads::number.total()));
    let expected = days().map(|(version, day)| {
        let rounds = (5 - day.0).max(0);
        (version, day, rounds * (100 * version + day.0))
    });
    assert_eq!(totals.load(conn), Ok(expected.collect::<Vec<_>>()));
}

mod seen {
    diesel_sharded_tests::counted_table! {
        Page of pages (id) {
            id -> BigInt = i64,
            #[sharded] views -> BigInt = i64,
            #[sharded(max)] last -> Nullable<BigInt> = Option<i64>,
            #[sharded(min)] first -> Nullable<BigInt> = Option<i64>,
        }
    }
}

/// Of the values that wait, and of those that come later; a row that is not there has none.
#[test]
fn the_greatest_and_the_least_value_are_kept() {
    use self::seen::pages::dsl::*;
    let (database, conn) = &mut database_with_counters();
    let create = "CREATE TABLE pages (id BIGINT PRIMARY KEY, views BIGINT NOT NULL, last BIGINT, first BIGINT)";
    conn.batch_execute(create).unwrap();
    insert!(pages, (id.eq(7), views.eq(0)), conn);
    let seen = (last.eq(50), first.eq(50));
    insert!(pages, (id.eq(8), views.eq(0), seen), conn);
    ShardsTable::of(pages).create(conn).unwrap();
    let coalescer = coalescer(database);
    for times in [30..60_i64, 10..40] {
        thread::scope(|scope| {
            for key in [7, 8, 9] {
                let (coalescer, times) = (&coalescer, times.clone());
                scope.spawn(move || {
                    for at in times {
                        coalescer.add_later(&RowCounter::of(views, key), 1).unwrap();
                        coalescer.raise_later(last, key, at).unwrap();
                        coalescer.lower_later(first, key, at).unwrap();
                    }
                });
            }
        });
        coalescer.flush().unwrap();
    }
    let totals = pages.select((views.total(), last.total(), first.total()));
    let expected = (60_i64, Some(59_i64), Some(10_i64));
    assert_eq!(totals.load(conn), Ok(vec![expected; 2]));
    assert_eq!(coalescer.stats().losses, 0);
    let shards = sql::<BigInt>("(SELECT COUNT(*) FROM pages_shards)");
    assert_eq!(diesel::select(shards).first(conn), Ok(2_i64)); // all are of one shard of each row
}

/// Locks the shards of video 1, which are made for it, until `conn` commits; on SQLite everything.
fn lock_video_1(conn: &mut Conn) {
    for shard in 0..4 {
        let insert = format!("INSERT INTO videos_shards (id, shard) VALUES (1, {shard})");
        let _ = conn.batch_execute(&insert);
    }
    conn.batch_execute("BEGIN").unwrap();
    let shards = videos_shards::table.filter(videos_shards::id.eq(1));
    let same = videos_shards::likes.eq(videos_shards::likes + 0);
    assert_eq!(edit!(shards, same, conn), 4);
}

/// Retries for as long as a test may hold a lock.
fn patient() -> RetryPolicy {
    diesel_sharded_tests::patient().with_attempts(u32::MAX)
}

/// Waits for what is refused, and not for long.
fn hasty() -> RetryPolicy {
    RetryPolicy::new().with_deadline(Duration::from_millis(50))
}

/// A deadline that a starved machine does not reach.
const LATE: Duration = Duration::from_secs(600);

/// Of what is not counted in time; a busy machine's flush takes its time too.
const DEADLINE: Duration = Duration::from_secs(2);

fn builder(database: &Database) -> CoalescerBuilder<Conn> {
    Coalescer::builder(pool(database.url()))
}

fn coalescer(database: &Database) -> Coalescer<Conn> {
    let builder = builder(database).retry(patient());
    builder.deadline(LATE).build().unwrap()
}

/// One that does not wait before it counts, and gives up soon.
fn impatient(database: &Database) -> CoalescerBuilder<Conn> {
    let builder = builder(database).max_delay(Duration::from_millis(1));
    builder.deadline(DEADLINE).retry(patient())
}

/// One that counts when it is flushed.
fn lazy(database: &Database) -> CoalescerBuilder<Conn> {
    builder(database).max_delay(Duration::from_secs(3600))
}

/// The counter and the amount of each loss.
type Losses = Arc<Mutex<Vec<(String, i128)>>>;

fn reporting(builder: CoalescerBuilder<Conn>) -> (CoalescerBuilder<Conn>, Losses) {
    let losses = Losses::default();
    let reports = Arc::clone(&losses);
    let builder = builder.on_loss(move |loss: &Loss| {
        let mut losses = reports.lock().unwrap();
        losses.push((loss.counter.clone(), loss.amount));
    });
    (builder, losses)
}

/// Adds so much to video 1, which waits for the lock of the connection that is returned.
fn hold_up(coalescer: &Coalescer<Conn>, n: i64, database: &Database) -> Conn {
    let mut holder = Conn::connect(database);
    lock_video_1(&mut holder);
    coalescer.add_later(&views_of(1), n).unwrap();
    until("it is under way", || coalescer.stats().queued_counters == 0);
    holder
}

fn held_up(
    builder: CoalescerBuilder<Conn>,
    n: i64,
    database: &Database,
) -> (Coalescer<Conn>, Conn) {
    let coalescer = builder.build().unwrap();
    let holder = hold_up(&coalescer, n, database);
    (coalescer, holder)
}

#[test]
fn it_is_committed_by_flush_close_or_time() {
    let (database, mut conn) = database_with_counters();
    let coalescer = lazy(&database).build().unwrap();
    let page = Counter::named("page");
    coalescer.add_later(&views_of(1), 5).unwrap();
    coalescer.add_later(&views_of(1), 6).unwrap();
    coalescer.add_later(&views_of(9), 7).unwrap();
    coalescer.add_later(&page, 8).unwrap();
    assert_eq!(coalescer.stats().queued_counters, 3);
    assert_eq!(total_of(1, &mut conn), 100);
    coalescer.flush().unwrap();
    assert_eq!(total_of(1, &mut conn), 111);
    gives!(page.get(&mut conn), 8);
    assert_eq!(coalescer.stats().last_error, None);
    coalescer.add_later(&views_of(1), 1).unwrap();
    let other = coalescer.clone();
    coalescer.close().unwrap();
    assert_eq!(total_of(1, &mut conn), 112);
    let refused = other.add_later(&views_of(1), 1).unwrap_err();
    assert_matches!(refused, Error::CoalescerClosed);

    let dropped = lazy(&database).build().unwrap();
    dropped.add_later(&views_of(1), 1).unwrap();
    drop(dropped);
    assert_eq!(total_of(1, &mut conn), 113);

    let soon = builder(&database).max_delay(Duration::from_millis(20));
    let soon = soon.build().unwrap();
    soon.add_later(&views_of(1), 1).unwrap();
    until("committed in time", || total_of(1, &mut conn) == 114);
    soon.close().unwrap();
    let keys = sql::<BigInt>("COUNT(*) FROM diesel_sharded_idempotency_keys");
    assert_eq!(diesel::select(keys).first(&mut conn), Ok(0_i64));
}

#[test]
fn what_cannot_be_counted_later_is_reported() {
    let (database, mut conn) = database_with_counters();
    let (builder, losses) = reporting(lazy(&database));
    let coalescer = builder.build().unwrap();
    // All of these come in one flush, and whatever else is in it is committed.
    for video in 1..=3 {
        coalescer.add_later(&views_of(video), 1).unwrap();
    }
    coalescer.add_later(&small(), TOO_MUCH).unwrap();
    coalescer.add_later(&small(), 1).unwrap();
    let huge = Counter::named("huge");
    for n in [i64::MAX, 1] {
        coalescer.add_later(&huge, n).unwrap();
    }
    coalescer.add_later(&Counter::named("page"), 1).unwrap();
    let large = RowCounter::of(measures::large, 1_i16);
    for n in [i64::MAX, i64::MAX, -i64::MAX, 5 - i64::MAX] {
        coalescer.add_later(&large, n).unwrap();
    }
    let error = coalescer.close().unwrap_err();
    assert_matches!(error, Error::NotFlushed { lost: 2, .. });
    let measured = (measures::small.total(), measures::large.total());
    let measured = measures::table.find(1).select(measured);
    assert_eq!(measured.first::<(i16, i64)>(&mut conn), Ok((0, 5)));
    assert_eq!(totals(&mut conn), [101, 201, 301]);
    let names = Counter::get_many(&["huge", "page"], &mut conn);
    assert_eq!(names, Ok(vec![0, 1]));
    let mut losses = losses.lock().unwrap().clone();
    losses.sort();
    let lost = [
        ("measures_shards.small of 1", TOO_MUCH as i128 + 1),
        ("the named counter of \"huge\"", i64::MAX as i128 + 1),
    ];
    assert_eq!(losses, lost.map(|(of, n)| (of.to_owned(), n)));
}

/// As before a migration, or while a privilege is missing. Others do not wait for it.
#[test]
fn what_refuses_all_rows_is_waited_for() {
    let (database, mut conn) = database_with_counters();
    let soon = builder(&database).max_delay(Duration::from_millis(1));
    let (soon, losses) = reporting(soon.deadline(LATE));
    let coalescer = soon.retry(patient()).build().unwrap();
    let page = Counter::named("page");
    let rename = |from: &str, to: &str, conn: &mut Conn| {
        let rename = format!("ALTER TABLE {from} RENAME TO {to}");
        conn.batch_execute(&rename).unwrap();
    };
    rename("videos_shards", "away", &mut conn);
    for video in 1..=3 {
        coalescer.add_later(&views_of(video), video).unwrap();
    }
    coalescer.add_later(&page, 1).unwrap();
    thread::scope(|scope| {
        let flushed = scope.spawn(|| coalescer.flush());
        until("it is refused", || coalescer.stats().last_error.is_some());
        until("the other is counted", || page.get(&mut conn) == Ok(1));
        coalescer.add_later(&page, 1).unwrap();
        until("and goes on", || page.get(&mut conn) == Ok(2));
        assert!(!flushed.is_finished());
        rename("away", "videos_shards", &mut conn);
        flushed.join().unwrap().unwrap();
    });
    assert_eq!(totals(&mut conn), [101, 202, 303]);
    assert_eq!(losses.lock().unwrap().len(), 0);
    // Nobody waits forever, nor for what refuses some rows alone.
    rename("videos_shards", "away", &mut conn);
    let (builder, losses) = reporting(lazy(&database).deadline(LATE));
    let coalescer = builder.retry(hasty()).build().unwrap();
    for lost in 1..=2 {
        coalescer.add_later(&views_of(1), 1).unwrap();
        coalescer.add_later(&page, 1).unwrap();
        coalescer.flush().unwrap();
        assert_eq!(losses.lock().unwrap().len(), lost);
        assert_eq!(page.get(&mut conn), Ok(2 + lost as i64));
    }
}

/// Lets no shard of these rows change.
fn refuse(rows: &str, conn: &mut Conn) {
    let on = "TRIGGER closed BEFORE UPDATE ON videos_shards";
    let trigger = match dialect(conn) {
        Dialect::Postgres => format!(
            "CREATE OR REPLACE FUNCTION closed() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''closed''; END';
             DROP TRIGGER IF EXISTS closed ON videos_shards;
             CREATE {on} FOR EACH ROW WHEN (NEW.{rows}) EXECUTE FUNCTION closed()"
        ),
        Dialect::Mysql => format!(
            "DROP TRIGGER IF EXISTS closed;
             CREATE {on} FOR EACH ROW IF NEW.{rows} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'closed'; END IF"
        ),
        _ => format!(
            "DROP TRIGGER IF EXISTS closed; CREATE {on} WHEN NEW.{rows} BEGIN SELECT RAISE(ABORT, 'closed'); END"
        ),
    };
    conn.batch_execute(&trigger).unwrap();
}

/// Whether others of the field come before or after, and also if there is no time left.
#[test]
fn a_refused_row_takes_no_other_with_it() {
    let (database, mut conn) = database_with_counters();
    for (rows, lost, deadline, retry) in [
        ("id = 1", 1..=1, Duration::ZERO, patient()),
        ("id = 1", 1..=1, LATE, patient()),
        ("id = 3", 3..=3, LATE, patient()),
        ("id > 1", 2..=3, LATE, hasty()),
    ] {
        refuse(rows, &mut conn);
        let before = totals(&mut conn);
        let pool = pool::<Conn>(database.url());
        drop(pool.get().unwrap()); // there is one at once
        let builder = Coalescer::builder(pool).max_delay(LATE).retry(retry);
        let (builder, losses) = reporting(builder.deadline(deadline));
        let coalescer = builder.build().unwrap();
        for video in 1..=3 {
            coalescer.add_later(&views_of(video), 1).unwrap();
        }
        assert_matches!(coalescer.close(), Err(Error::NotFlushed { .. }));
        let counter = |video| (format!("videos_shards.views of {video}"), 1);
        let expected: Vec<_> = lost.clone().map(counter).collect();
        assert_eq!(*losses.lock().unwrap(), expected);
        let counted = |video| i64::from(!lost.contains(&video));
        let expected = before.iter().zip(1..=3);
        let expected = expected.map(|(total, video)| total + counted(video));
        assert_eq!(totals(&mut conn), expected.collect::<Vec<_>>(), "{rows}");
    }
}

#[test]
fn names_are_checked_before_anything_is_queued() {
    let (database, _conn) = database_with_counters();
    let coalescer = coalescer(&database);
    let nameless = coalescer.add_later(&Counter::named(""), 1).unwrap_err();
    assert_matches!(nameless, Error::InvalidCounterName { bytes: 0 });
}

#[test]
fn without_the_librarys_tables_it_says_so() {
    let (database, _conn) = database();
    let error = Coalescer::new(pool::<Conn>(database.url())).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("diesel_sharded::MIGRATIONS"), "{error}");
}

/// The first addition is under way, and the second one waits in the buffer.
#[test]
fn at_the_deadline_a_flush_says_that_it_is_pending() {
    let (database, mut conn) = database_with_counters();
    let (coalescer, mut holder) = held_up(impatient(&database), 1, &database);
    coalescer.add_later(&views_of(1), 10).unwrap();
    let flushed = coalescer.flush().unwrap_err();
    assert_matches!(flushed, Error::FlushPending { .. });
    holder.batch_execute("COMMIT").unwrap();
    until("it is counted", || coalescer.flush().is_ok());
    assert_eq!(total_of(1, &mut conn), 111);
}

#[test]
fn a_close_ends_although_the_database_does_not_answer() {
    let (database, mut conn) = database_with_counters();
    let (builder, losses) = reporting(impatient(&database));
    let (coalescer, mut holder) = held_up(builder, 5, &database);
    coalescer.add_later(&views_of(1), 7).unwrap();
    let error = coalescer.close().unwrap_err();
    let losses = || losses.lock().unwrap().clone();
    match error {
        // SQLite: between two attempts.
        Error::NotFlushed { lost, .. } => {
            let name = "videos_shards.views of 1";
            assert_eq!(losses(), [(name.to_owned(), 5), (name.to_owned(), 7)]);
            assert_eq!(lost, 2);
            holder.batch_execute("COMMIT").unwrap();
            assert_eq!(total_of(1, &mut conn), 100);
        }
        // A statement waits inside the server, which may still carry it out.
        Error::FlushPending { .. } => {
            assert_eq!(losses(), []);
            holder.batch_execute("COMMIT").unwrap();
            until("all is committed", || total_of(1, &mut conn) == 112);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_close_beside_adders_loses_nothing_that_was_taken() {
    let (database, mut conn) = database_with_counters();
    let pool = pool::<Conn>(database.url());
    let mut taken = 0;
    for _ in 0..20 {
        let soon = Coalescer::builder(pool.clone()).max_delay(Duration::from_micros(1));
        let coalescer = soon.build().unwrap();
        let adders = [(); 4].map(|()| {
            let coalescer = coalescer.clone();
            thread::spawn(move || {
                let mut taken = 0;
                loop {
                    match coalescer.add_later(&views_of(1), 1) {
                        Ok(()) => taken += 1,
                        Err(Error::CoalescerClosed) => return taken,
                        Err(other) => panic!("{other:?}"),
                    }
                }
            })
        });
        until("one is counted", || coalescer.stats().flushes > 0);
        coalescer.close().unwrap();
        for adder in adders {
            taken += adder.join().unwrap();
        }
    }
    assert_eq!(total_of(1, &mut conn), 100 + taken);
}

#[test]
fn dropped_by_its_own_worker_it_does_not_wait_for_itself() {
    let (database, mut conn) = database_with_counters();
    let last: Arc<Mutex<Option<Coalescer<Conn>>>> = Arc::default();
    let drops = Arc::clone(&last);
    let (tell, told) = std::sync::mpsc::channel();
    let coalescer = builder(&database)
        .max_delay(Duration::from_millis(1))
        .deadline(Duration::MAX)
        .on_loss(move |_| {
            drop(drops.lock().unwrap().take());
            tell.send(()).unwrap();
        })
        .build()
        .unwrap();
    let mut last = last.lock().unwrap();
    coalescer.add_later(&small(), TOO_MUCH).unwrap();
    coalescer.add_later(&views_of(1), 1).unwrap();
    *last = Some(coalescer);
    drop(last);
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(()));
    until("the rest is committed", || total_of(1, &mut conn) == 101);
}

#[test]
fn limits_may_be_as_large_as_they_can() {
    let (database, mut conn) = database_with_counters();
    let coalescer = builder(&database)
        .max_delay(Duration::MAX)
        .max_batch(usize::MAX)
        .max_queued(usize::MAX)
        .deadline(Duration::MAX)
        .build()
        .unwrap();
    coalescer.add_later(&views_of(1), 1).unwrap();
    coalescer.flush().unwrap();
    coalescer.add_later(&views_of(1), 1).unwrap();
    coalescer.close().unwrap();
    assert_eq!(total_of(1, &mut conn), 102);
}

#[test]
fn a_full_queue_waits_for_room_and_refuses_at_the_deadline() {
    let (database, mut conn) = database_with_counters();
    let builder = impatient(&database).max_queued(1);
    let (coalescer, mut holder) = held_up(builder, 1, &database);
    coalescer.add_later(&views_of(1), 1).unwrap();
    let began = Instant::now();
    let refused = coalescer.add_later(&views_of(2), 1).unwrap_err();
    assert_matches!(refused, Error::DeadlinePassed { .. });
    assert!(began.elapsed() >= DEADLINE);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            holder.batch_execute("COMMIT").unwrap();
        });
        let add = || coalescer.add_later(&views_of(3), 1);
        until("there is room", || add().is_ok());
    });
    until("they are counted", || coalescer.flush().is_ok());
    assert_eq!(totals(&mut conn), [102, 200, 301]);
}

#[test]
fn beside_everything_else_that_writes() {
    let (database, mut conn) = database_with_counters();
    let coalescers = [(); 2].map(|()| builder(&database).max_batch(2).build().unwrap());
    let combiner = Combiner::new();
    let counting = |number, conn: &mut Conn| {
        for round in 0..20_i64 {
            let video = round % 3 + 1;
            let coalescer = &coalescers[number as usize % 2];
            coalescer.add_later(&views_of(video), 2).unwrap();
            assert_eq!(count(video, 1, conn), Ok(1));
            for _ in 0..5 {
                let combined = update(videos.find(video)).set(views.eq(views + 1));
                assert_eq!(combined.combine(&combiner).execute(conn), Ok(1));
            }
        }
    };
    on_threads_beside(8, &database, counting, 1, |_, rounds, conn| {
        for _ in rounds {
            fold(videos).keep_shards(0).run(conn).unwrap();
            set_total(videos.find(3), views, 0).execute(conn).unwrap();
            set_total(videos.find(1), likes, 7).execute(conn).unwrap();
        }
    });
    for coalescer in coalescers {
        coalescer.close().unwrap();
    }
    let of_1 = videos.find(1).select((views.total(), likes.total()));
    assert_eq!(of_1.first(&mut conn), Ok((100 + 8 * 7 * 8_i64, 7)));
    assert_eq!(total_of(2, &mut conn), 200 + 8 * 7 * 8);
}

#[test]
fn a_panic_of_what_is_told_stops_nothing() {
    let (database, mut conn) = database_with_counters();
    let panics = lazy(&database).on_loss(|_| panic!("on purpose"));
    let coalescer = panics.build().unwrap();
    for losses in 1..=2 {
        coalescer.add_later(&small(), TOO_MUCH).unwrap();
        coalescer.add_later(&views_of(1), 1).unwrap();
        coalescer.flush().unwrap();
        let stats = coalescer.stats();
        assert_eq!(stats.losses, losses);
        assert!(stats.last_error.unwrap().ends_with("`on_loss` panicked"));
    }
    assert_eq!(total_of(1, &mut conn), 102);
}

fn title_of_1(conn: &mut Conn) -> String {
    videos.find(1).select(title).first(conn).unwrap()
}

#[test]
fn a_transactions_counts_are_taken_when_it_has_committed() {
    let (database, conn) = &mut database_with_counters();
    let coalescer = coalescer(database);
    let renamed = |conn: &mut Conn, name: &str| {
        let renamed = diesel::update(videos.find(1)).set(title.eq(name));
        renamed.execute(conn)
    };
    let mut runs = 0;
    let counted = coalescer.transaction(conn, |conn, counts| {
        counts.add(&views_of(1), 5)?;
        counts.add(&Counter::named("renamed"), 1)?;
        counts.add(&views_of(1), 2)?;
        renamed(conn, "new")?;
        runs += 1;
        match runs {
            1 => Err(conflict()), // the next run begins again, its increments too
            _ => Ok(runs),
        }
    });
    assert_eq!(counted, Ok(2));
    let taken_back: QueryResult<()> = coalescer.transaction(conn, |conn, counts| {
        counts.add(&views_of(2), 100)?;
        renamed(conn, "old")?;
        Err(diesel::result::Error::RollbackTransaction)
    });
    assert!(taken_back.is_err());
    let nested: QueryResult<()> = conn.transaction(|conn| {
        let inside = coalescer.transaction(conn, |_, counts| counts.add(&views_of(3), 100));
        assert_eq!(inside, Err(diesel::result::Error::AlreadyInTransaction));
        Ok(())
    });
    assert_eq!(nested, Ok(()));
    let invalid = coalescer.transaction(conn, |_, counts| counts.add(&Counter::named(""), 1));
    let invalid = invalid.map_err(Error::from);
    assert_matches!(invalid, Err(Error::InvalidCounterName { .. }));
    coalescer.flush().unwrap();
    assert_eq!(totals(conn), [107, 200, 300]);
    assert_eq!(Counter::named("renamed").get(conn), Ok(1));
    assert_eq!(title_of_1(conn), "new");
}

#[test]
fn a_coalescer_that_closes_says_that_all_is_committed() {
    let (database, mut conn) = database_with_counters();
    let coalescer = coalescer(&database);
    let counted = coalescer.transaction(&mut conn, |conn, counts| {
        counts.add(&views_of(1), 1)?;
        let closed = coalescer.clone().close();
        closed.map_err(diesel::result::Error::from)?;
        QueryResult::Ok(edit!(videos.find(1), title.eq("new"), conn))
    });
    let counted = counted.map_err(Error::from);
    assert_matches!(counted, Err(Error::CommittedNotCounted));
    assert_eq!(title_of_1(&mut conn), "new");
    assert_eq!(total_of(1, &mut conn), 100);
}

/// Each thread renames its video, and counts what it has committed.
#[test]
fn transactions_of_many_threads_count_what_they_committed() {
    const ROUNDS: i64 = 25;
    let (database, mut conn) = database_with_counters();
    let coalescer = builder(&database).max_queued(8).build().unwrap();
    on_threads(8, &database, |number, conn| {
        for round in 0..ROUNDS {
            let done: QueryResult<usize> = coalescer.transaction(conn, |conn, counts| {
                counts.add(&views_of(1 + number % 3), 1)?;
                counts.add(&Counter::named("renames"), 1)?;
                let name = format!("{number}/{round}");
                let renamed = diesel::update(videos.find(1 + number % 3)).set(title.eq(name));
                renamed.execute(conn)?;
                match round % 5 {
                    0 => Err(diesel::result::Error::RollbackTransaction),
                    _ => Ok(1),
                }
            });
            assert_eq!(done.is_ok(), round % 5 != 0, "{done:?}");
        }
    });
    coalescer.close().unwrap();
    let counted = 8 * ROUNDS * 4 / 5;
    assert_eq!(Counter::named("renames").get(&mut conn), Ok(counted));
    assert_eq!(totals(&mut conn).iter().sum::<i64>(), 600 + counted);
}

//! Background folds: at an interval, by themselves.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent, SimpleConnection};
use diesel::prelude::*;
use diesel_sharded::operation::Folder;
use diesel_sharded::unique::Unique;
use diesel_sharded::{Error, Unfit, fold, update};
use diesel_sharded_tests::fixture::Fixture;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::videos_shards;
use diesel_sharded_tests::{Database, TestConnection, edit, number, until};

use super::{Conn, count, count_on_any_shard, on_threads, totals};

const OFTEN: Duration = Duration::from_millis(20);

fn folder_of(database: &Arc<Database>, interval: Duration) -> Folder {
    let database = Arc::clone(database);
    let connect = move || Ok::<_, Error>(Conn::connect(&database));
    fold(videos).every(interval).start(connect).unwrap()
}

/// Adds to videos 1 to 3.
fn count_on_three(conn: &mut Conn) {
    let changes = (views.eq(views + 5), likes.eq(likes - 1));
    assert_eq!(count!(videos.filter(id.lt(4)), changes, conn), 3);
}

fn shards(conn: &mut Conn) -> i64 {
    videos_shards::table.count().get_result(conn).unwrap()
}

fn bases(conn: &mut Conn) -> Vec<i64> {
    videos.select(views).order(id).load(conn).unwrap()
}

#[test]
fn counts_are_folded_until_it_is_dropped() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    let folder = folder_of(database, OFTEN);
    count_on_three(conn);
    // Cold rows end without shards.
    until("the rows are folded", || shards(conn) == 0);
    assert_eq!(bases(conn), [105, 205, 305]);
    until("its numbers say so", || folder.stats().parents == 3);
    let stats = folder.stats();
    assert_eq!((stats.shards_removed, stats.failed_passes), (3, 0));
    assert_eq!((stats.last_error, stats.unfit), (None, 0));
    assert!(stats.passes > 0 && stats.longest_pass >= stats.last_pass);
    drop(folder);
    count_on_three(conn);
    thread::sleep(OFTEN * 5);
    assert_eq!(bases(conn), [105, 205, 305]);
}

/// Rows of one statement and more, and none of those that have not expired; even if no fold succeeds.
#[test]
fn it_removes_expired_rows_where_it_is_told_to() {
    let own = &mut Fixture::<Conn, 1>::with_counters();
    let (database, [conn]) = own.parts();
    let visit = |visitor: i64, conn: &mut Conn| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        let day = Duration::from_secs(86_400);
        count.once_per(visitor.to_be_bytes(), day).count(conn)
    };
    let filled: QueryResult<()> = conn.transaction(|conn| {
        (0..1_100).try_for_each(|visitor| visit(visitor, conn).map(drop))?;
        conn.batch_execute("UPDATE diesel_sharded_idempotency_keys SET expires = 1")
    });
    filled.unwrap();
    assert_eq!(visit(-1, conn), Ok(Unique::Counted));
    let rows = |conn: &mut Conn| number!("COUNT(*) FROM diesel_sharded_idempotency_keys", conn);
    let folder = folder_of(database, OFTEN);
    until("two passes are over", || folder.stats().passes > 1);
    drop(folder);
    assert_eq!(rows(conn), 1_101);
    let connects_to = Arc::clone(database);
    count_on_three(conn);
    let fails = fold(videos).on_folded(views, |_: &[(i64, i64)]| panic!("on purpose"));
    let connect = move || Ok::<_, Error>(Conn::connect(&connects_to));
    let folder = fails.every(OFTEN).remove_expired().start(connect).unwrap();
    until("the rows are gone", || rows(conn) == 1);
    until("a pass has failed", || folder.stats().failed_passes > 0);
    let last_error = folder.stats().last_error;
    assert_eq!(last_error.as_deref(), Some("the pass panicked"));
    assert_eq!(totals(conn)[0], 1_206);
}

/// A background fold that sleeps ends at once.
#[test]
fn a_drop_waits_for_no_interval() {
    let own = &mut Fixture::<Conn, 0>::with_tables();
    let folder = folder_of(own.parts().0, Duration::from_secs(3_600));
    let began = Instant::now();
    drop(folder);
    assert!(began.elapsed() < Duration::from_secs(600));
}

#[test]
fn two_folders_beside_writers_are_exact() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    let folders = [folder_of(database, OFTEN), folder_of(database, OFTEN)];
    on_threads(4, database, |_, conn| {
        for _ in 0..25 {
            count_on_three(conn);
        }
    });
    let expected = [600, 700, 800];
    assert_eq!(totals(conn), expected);
    until("all is folded", || shards(conn) == 0);
    assert_eq!(bases(conn), expected);
    for folder in folders {
        assert_eq!(folder.stats().last_error, None);
    }
}

#[test]
fn a_hot_row_keeps_its_shards_until_it_is_cold() {
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    count_on_any_shard(60, conn);
    count(2, 1, conn).unwrap();
    assert_eq!(shards(conn), 5);
    let folded = fold(videos).cold_below(2).run(conn).unwrap();
    assert_eq!((folded.parents, folded.shards_removed), (2, 1));
    assert_eq!(shards(conn), 4);
    // Not one of them was counted on since.
    let folded = fold(videos).cold_below(2).run(conn).unwrap();
    assert_eq!((folded.parents, folded.shards_removed), (0, 4));
    assert_eq!(bases(conn), [160, 201, 300]);
}

/// What was removed with the fold is not locked once more after it.
#[test]
fn cold_rows_cost_no_further_transaction() {
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    let transactions = [0, 9].map(|cold_below| {
        count_on_three(conn);
        let begun = Arc::new(AtomicUsize::new(0));
        let begins = Arc::clone(&begun);
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event {
                let is_begin = query.to_string().starts_with("BEGIN");
                begins.fetch_add(is_begin.into(), Ordering::Relaxed);
            }
        });
        let folded = fold(videos).cold_below(cold_below).run(conn).unwrap();
        assert_eq!(folded.parents, 3);
        begun.load(Ordering::Relaxed)
    });
    assert_eq!(shards(conn), 0);
    assert!(transactions[0] > 0);
    assert_eq!(transactions[0], transactions[1]);
}

#[test]
fn errors_are_reported_and_it_goes_on() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    let connects_to = Arc::clone(database);
    edit!(videos.find(2), likes.eq(i32::MIN), conn);
    count_on_three(conn);
    let connections = AtomicUsize::new(0);
    let reported = Arc::new(Mutex::new(vec![]));
    let reports = Arc::clone(&reported);
    let folder = fold(videos)
        .every(OFTEN)
        .on_error(move |error: &(dyn StdError + Send + Sync + 'static)| {
            let unfit = match error.downcast_ref() {
                Some(Error::Unfit { key, reason, .. }) => Some((key.clone(), reason.clone())),
                _ => None,
            };
            reports.lock().unwrap().push((error.to_string(), unfit));
            panic!("on purpose");
        })
        .start(move || match connections.fetch_add(1, Ordering::Relaxed) {
            0 => Err("no connection is left"),
            1 => panic!("on purpose"),
            _ => Ok(Conn::connect(&connects_to)),
        })
        .unwrap();
    until("the others are folded", || shards(conn) == 1);
    until("the row is reported", || folder.stats().unfit > 1);
    let stats = folder.stats();
    drop(folder);
    assert_eq!(stats.failed_passes, 2);
    let reported = reported.lock().unwrap();
    let texts: Vec<_> = reported.iter().map(|(text, _)| &**text).take(2).collect();
    assert_eq!(texts, ["no connection is left", "the pass panicked"]);
    let unfit = Some(("2".to_owned(), Unfit::OutOfRange));
    assert!(reported[2..].iter().all(|(_, found)| *found == unfit));
    assert_eq!(bases(conn), [105, 200, 305]);
}

/// The process that moved them ended before its report, and the first reports panic.
#[test]
fn rows_are_reported_until_a_report_has_returned() {
    const PANICS: usize = 3;
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    count_on_three(conn);
    assert_eq!(fold(videos).cold_below(1).run(conn).unwrap().parents, 3);
    edit!(videos.find(2), views.eq(0), conn); // by others
    count(3, 1, conn).unwrap();
    let reported = Arc::new(Mutex::new(vec![]));
    let reports = Arc::clone(&reported);
    let connects_to = Arc::clone(database);
    let folder = fold(videos)
        .on_folded(views, move |rows: &[(i64, i64)]| {
            let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
            reports.push(rows.to_vec());
            assert!(reports.len() > PANICS, "on purpose");
        })
        .every(OFTEN)
        .start(move || Ok::<_, Error>(Conn::connect(&connects_to)))
        .unwrap();
    until("cold rows have no shards", || shards(conn) == 0);
    until("the pass is over", || folder.stats().shards_removed >= 3);
    let stats = folder.stats();
    drop(folder);
    let last_error = stats.last_error.as_deref();
    assert_eq!(
        (stats.failed_passes, last_error),
        (PANICS as u64, Some("the pass panicked"))
    );
    let reported = reported.lock().unwrap_or_else(PoisonError::into_inner);
    // A row with two shards, if others in this process count on such a row meanwhile, is reported once more.
    assert_eq!(
        reported[..=PANICS],
        vec![vec![(1, 105), (2, 0), (3, 306)]; PANICS + 1]
    );
}

/// Another process folds a row while it is reported, and is killed before its own report.
#[test]
fn a_row_that_changes_while_it_is_reported_is_reported_again() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    count_on_three(conn);
    let (connects_to, reported) = (Arc::clone(database), AtomicUsize::new(0));
    let last = Arc::new(Mutex::new(BTreeMap::new()));
    let (reports, beside) = (Arc::clone(&last), Arc::clone(database));
    let folding =
        fold(videos)
            .keep_shards(0)
            .cold_below(9)
            .on_folded(views, move |rows: &[(i64, i64)]| {
                reports.lock().unwrap().extend(rows.iter().copied());
                if reported.fetch_add(1, Ordering::SeqCst) == 0 {
                    let other = &mut Conn::connect(&beside);
                    count(2, 1, other).unwrap();
                    assert_eq!(fold(videos).run(other).unwrap().parents, 1);
                    count(3, 1, other).unwrap();
                }
            });
    let folder = folding.every(OFTEN);
    let folder = folder.start(move || Ok::<_, Error>(Conn::connect(&connects_to)));
    let folder = folder.unwrap();
    until("cold rows have no shards", || shards(conn) == 0);
    until("the last pass is over", || {
        folder.stats().shards_removed >= 3
    });
    drop(folder);
    assert_eq!(bases(conn), [105, 206, 306]);
    let expected = BTreeMap::from([(1, 105), (2, 206), (3, 306)]);
    assert_eq!(*last.lock().unwrap(), expected);
}

#[test]
fn a_report_that_panics_ends_a_single_fold() {
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    count_on_three(conn);
    let folding = fold(videos).batch(1);
    let folding = folding.on_folded(views, |_| panic!("on purpose"));
    let panicked = panic::catch_unwind(AssertUnwindSafe(|| folding.run(conn)));
    assert!(panicked.is_err());
    assert_eq!(bases(conn), [105, 200, 300]);
    assert_eq!(fold(videos).run(conn).unwrap().parents, 2);
}

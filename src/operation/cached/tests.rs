//! Totals through a cache that can fail.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

use super::*;
use crate::error::Error;
use crate::policy::RetryPolicy;
use crate::prelude::*;
use crate::test_schema::videos::dsl::*;
use crate::{ShardsTable, update};

type Conn = SqliteConnection;

/// A cache that can fail, and records its calls.
#[derive(Debug, Default)]
struct Map {
    totals: Mutex<HashMap<String, i64>>,
    asked: Mutex<Vec<&'static str>>,
    broken: AtomicBool,
}

impl Map {
    fn change<T>(
        &self,
        operation: &'static str,
        key: &str,
        f: impl FnOnce(&mut HashMap<String, i64>) -> T,
    ) -> Result<T, CacheError> {
        self.asked.lock().unwrap().push(operation);
        match key {
            _ if self.broken.load(Ordering::Relaxed) => Err(CacheError::Unavailable {
                source: "out of order".into(),
            }),
            "diesel_sharded:video 3" => Err(CacheError::NotATotal {
                key: key.to_owned(),
                source: "somebody else's".into(),
            }),
            _ => Ok(f(&mut self.totals.lock().unwrap())),
        }
    }

    fn kept(&self, video: i64) -> Option<i64> {
        let key = format!("diesel_sharded:video {video}");
        self.totals.lock().unwrap().get(&key).copied()
    }

    fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl TotalCache for Map {
    fn get(&self, key: &str) -> Result<Option<i64>, CacheError> {
        self.change("get", key, |totals| totals.get(key).copied())
    }

    fn add_if_absent(&self, key: &str, total: i64, _: Duration) -> Result<(), CacheError> {
        self.change("add", key, |totals| {
            totals.entry(key.to_owned()).or_insert(total);
        })
    }

    fn increment_if_present(&self, key: &str, by: i64) -> Result<(), CacheError> {
        self.change("increment", key, |totals| {
            totals
                .entry(key.to_owned())
                .and_modify(|total| *total += by);
        })
    }

    fn remove(&self, key: &str) -> Result<(), CacheError> {
        self.change("remove", key, |totals| {
            totals.remove(key);
        })
    }
}

/// The views of a video, as an application would count them.
struct Video(i64);

impl CachedCounter<Conn> for Video {
    fn cache_key(&self) -> String {
        format!("video {}", self.0)
    }

    fn read(&self, conn: &mut Conn) -> QueryResult<i64> {
        videos.find(self.0).select(views.total()).first(conn)
    }

    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize> {
        update(videos.find(self.0))
            .set(views.eq(views + n))
            .execute(conn)
    }
}

/// A counter whose reads and counts are functions.
struct Made<R, A>(R, A);

impl<R: Fn() -> QueryResult<i64>, A: Fn() -> QueryResult<usize>> CachedCounter<Conn>
    for Made<R, A>
{
    fn cache_key(&self) -> String {
        "video 1".into()
    }

    fn read(&self, _: &mut Conn) -> QueryResult<i64> {
        (self.0)()
    }

    fn add(&self, _: i64, _: &mut Conn) -> QueryResult<usize> {
        (self.1)()
    }
}

fn memory() -> Conn {
    Conn::establish(":memory:").unwrap()
}

/// Videos 1 to 3 with 10, 20 and 30 views.
fn set_up() -> (Cached<Arc<Map>>, Arc<Map>, Conn) {
    let map = Arc::new(Map::default());
    let mut conn = memory();
    conn.batch_execute(
        "CREATE TABLE videos (id INTEGER PRIMARY KEY, slug TEXT NOT NULL DEFAULT '', \
            views BIGINT NOT NULL, likes INTEGER NOT NULL DEFAULT 0);
         INSERT INTO videos (id, views) VALUES (1, 10), (2, 20), (3, 30)",
    )
    .unwrap();
    ShardsTable::of(videos).create(&mut conn).unwrap();
    (Cached::new(Arc::clone(&map)), map, conn)
}

fn total(video: i64, conn: &mut Conn) -> i64 {
    Video(video).read(conn).unwrap()
}

#[test]
fn a_miss_keeps_the_total_and_a_count_adds_to_it() {
    let (cached, map, conn) = &mut set_up();
    assert_eq!(cached.add(&Video(1), 1, conn), Ok(1));
    assert_eq!(map.kept(1), None);
    assert_eq!(cached.get(&Video(1), conn), Ok(11));
    assert_eq!(map.kept(1), Some(11));
    // A count that bypasses the cache shows that the next read does not reach the database.
    Video(1).add(100, conn).unwrap();
    assert_eq!(cached.get(&Video(1), conn), Ok(11));
    assert_eq!(cached.add(&Video(1), -15, conn), Ok(1));
    assert_eq!(cached.get(&Video(1), conn), Ok(-4));
    assert_eq!(total(1, conn), 96);
}

#[test]
fn what_is_not_there_is_neither_kept_nor_counted() {
    let (cached, map, conn) = &mut set_up();
    assert_eq!(cached.get(&Video(9), conn), Err(DieselError::NotFound));
    assert_eq!(cached.add(&Video(9), 1, conn), Ok(0));
    assert_eq!(map.asked(), ["get", "get"]);
}

#[test]
fn an_open_transaction_leaves_the_cache_alone() {
    let (cached, map, conn) = &mut set_up();
    let seen = conn.transaction(|conn| {
        cached.add(&Video(1), 1, conn)?;
        let seen = cached.get(&Video(1), conn)?;
        cached.transaction(conn, RetryPolicy::never(), |conn, uncommitted| {
            uncommitted.add(&Video(1), 1, conn)
        })?;
        QueryResult::Ok(seen)
    });
    assert_eq!(seen, Ok(11));
    assert_eq!(map.asked(), [""; 0]);
    assert_eq!(total(1, conn), 12);
}

#[test]
fn a_transaction_reaches_the_cache_when_it_is_committed() {
    let (cached, map, conn) = &mut set_up();
    for video in [1, 2] {
        cached.get(&Video(video), conn).unwrap();
    }
    let counted = cached.transaction(conn, RetryPolicy::never(), |conn, uncommitted| {
        uncommitted.add(&Video(1), 1, conn)?;
        uncommitted.add(&Video(2), -25, conn)?;
        uncommitted.add(&Video(9), 1, conn)?;
        uncommitted.add(&Video(1), 1, conn)?;
        assert_eq!((map.kept(1), map.kept(2)), (Some(10), Some(20)));
        cached.get(&Video(1), conn)
    });
    assert_eq!(counted, Ok(12));
    assert_eq!((map.kept(1), map.kept(2)), (Some(12), Some(-5)));
    assert_eq!(map.asked()[6..], ["increment", "increment"]);
}

#[test]
fn a_transaction_that_fails_does_not() {
    let (cached, map, conn) = &mut set_up();
    cached.get(&Video(1), conn).unwrap();
    map.asked();
    // An unknown outcome that the closure returns belongs to another transaction.
    for error in [|| DieselError::RollbackTransaction, unknown] {
        let failed = cached.transaction(conn, RetryPolicy::never(), |conn, uncommitted| {
            uncommitted.add(&Video(1), 1, conn)?;
            Err::<(), _>(error())
        });
        assert!(failed.is_err());
    }
    assert_eq!(map.asked(), [""; 0]);
    assert_eq!(total(1, conn), 10);
}

#[test]
fn only_the_attempt_that_is_committed_reaches_the_cache() {
    let (cached, map, conn) = &mut set_up();
    cached.get(&Video(1), conn).unwrap();
    let mut attempts = 0;
    let counted = cached.transaction(conn, RetryPolicy::new(), |conn, uncommitted| {
        attempts += 1;
        uncommitted.add(&Video(1), 1, conn)?;
        match attempts {
            3 => Ok(()),
            _ => Err(locked()),
        }
    });
    assert_eq!(counted, Ok(()));
    assert_eq!((map.kept(1), total(1, conn)), (Some(11), 11));
}

fn unknown() -> DieselError {
    let source = DieselError::NotFound;
    Error::OutcomeUnknown { source }.into()
}

fn lost() -> DieselError {
    let source = DieselError::NotFound;
    Error::ConnectionLost { source }.into()
}

fn locked() -> DieselError {
    let text = Box::new("database is locked".to_owned());
    DieselError::DatabaseError(DatabaseErrorKind::Unknown, text)
}

#[test]
fn a_count_in_a_savepoint_removes_the_total() {
    let (cached, map, conn) = &mut set_up();
    for rolled_back in [true, false] {
        cached.get(&Video(1), conn).unwrap();
        let counted = cached.transaction(conn, RetryPolicy::never(), |conn, uncommitted| {
            uncommitted.add(&Video(1), 1, conn)?;
            let savepoint = conn.transaction(|conn| {
                uncommitted.add(&Video(1), 1, conn)?;
                match rolled_back {
                    true => Err(DieselError::RollbackTransaction),
                    false => Ok(()),
                }
            });
            QueryResult::Ok(savepoint.is_err())
        });
        assert_eq!(counted, Ok(rolled_back));
        assert_eq!(map.kept(1), None);
    }
    assert_eq!(cached.get(&Video(1), conn), Ok(13));
}

#[test]
fn a_count_that_may_have_been_committed_removes_the_total() {
    let (cached, map, conn) = &mut set_up();
    let cases: [(fn() -> DieselError, _); 3] =
        [(unknown, None), (lost, Some(10)), (locked, Some(10))];
    for (error, kept) in cases {
        cached.get(&Video(1), conn).unwrap();
        let counter = Made(|| Err(DieselError::NotFound), || Err(error()));
        assert!(cached.add(&counter, 1, conn).is_err());
        assert_eq!(map.kept(1), kept);
    }
}

#[test]
fn a_cache_that_fails_is_left_out_for_a_while() {
    let (cached, map, mut conn) = set_up();
    let told = Arc::new(Mutex::new(vec![]));
    let tell = Arc::clone(&told);
    let cached = cached.with_notify(move |error| tell.lock().unwrap().push(error.to_string()));
    let for_no_time = cached.clone().with_pause(Duration::ZERO);
    let for_long = cached.with_pause(Duration::from_secs(3600));
    map.broken.store(true, Ordering::Relaxed);
    assert_eq!(for_no_time.add(&Video(1), 1, &mut conn), Ok(1));
    // That pause is over at once: the next one tries, and begins one that is not.
    for n in 0..10 {
        assert_eq!(for_long.add(&Video(1), 1, &mut conn), Ok(1), "{n}");
        assert!(for_long.get(&Video(1), &mut conn).is_ok());
    }
    assert_eq!(map.asked(), ["increment", "increment"]);
    assert_eq!(for_long.clone().failures(), 2);
    let text = "the cache could not be used (out of order)";
    assert_eq!(*told.lock().unwrap(), [text; 2]);
}

#[test]
fn a_cache_that_works_again_is_used_after_its_pause() {
    let (cached, map, mut conn) = set_up();
    let cached = cached.with_pause(Duration::ZERO);
    map.broken.store(true, Ordering::Relaxed);
    assert_eq!(cached.add(&Video(1), 20, &mut conn), Ok(1));
    map.broken.store(false, Ordering::Relaxed);
    assert_eq!(cached.get(&Video(1), &mut conn), Ok(30));
    assert_eq!(map.kept(1), Some(30));
}

#[test]
fn what_is_no_total_fails_its_own_key_only() {
    let (cached, map, conn) = &mut set_up();
    assert_eq!(cached.get(&Video(3), conn), Ok(30));
    assert_eq!(cached.add(&Video(3), 1, conn), Ok(1));
    assert_eq!(cached.failures(), 3);
    assert_eq!(cached.get(&Video(1), conn), Ok(10));
    assert_eq!(map.kept(1), Some(10));
}

/// The totals of many threads that miss one total at once, when the first read ends in `outcome`, and the number of reads. It ends when all
/// others wait for it, or have waited in vain.
fn stampede(
    cached: &Cached<Arc<Map>>,
    is_awaited: bool,
    outcome: impl Fn() -> QueryResult<i64> + Sync,
) -> (Vec<Option<QueryResult<i64>>>, u64) {
    const THREADS: usize = 8;
    let wait = if is_awaited { 600_000 } else { 10 };
    let cached = &cached.clone().with_wait(Duration::from_millis(wait));
    let (barrier, reads) = (Barrier::new(THREADS), AtomicU64::new(0));
    let read = || {
        if reads.fetch_add(1, Ordering::Relaxed) > 0 {
            return Ok(7);
        }
        let others = || match is_awaited {
            true => cached.shared.flights.waiting("diesel_sharded:video 1"),
            false => reads.load(Ordering::Relaxed) as usize - 1,
        };
        while others() < THREADS - 1 {
            thread::yield_now();
        }
        outcome()
    };
    let get = || {
        let (counter, mut conn) = (Made(read, || Ok(1)), memory());
        barrier.wait();
        catch_unwind(AssertUnwindSafe(|| cached.get(&counter, &mut conn))).ok()
    };
    let totals = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(get)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    (totals, reads.into_inner())
}

/// How many threads have this total.
fn have(total: Option<QueryResult<i64>>, totals: &[Option<QueryResult<i64>>]) -> usize {
    totals.iter().filter(|other| **other == total).count()
}

#[test]
fn many_misses_make_one_read_whether_the_cache_works_or_not() {
    for broken in [false, true] {
        let (cached, map, _) = set_up();
        map.broken.store(broken, Ordering::Relaxed);
        let (totals, reads) = stampede(&cached, true, || Ok(5));
        assert_eq!((have(Some(Ok(5)), &totals), reads), (8, 1), "{totals:?}");
    }
}

#[test]
fn readers_whose_leader_fails_or_panics_read_for_themselves() {
    let panics = || std::panic::resume_unwind(Box::new("the reader's own"));
    let (totals, _) = stampede(&set_up().0, true, panics);
    assert_eq!([None, Some(Ok(7))].map(|of| have(of, &totals)), [1, 7]);
    let (totals, _) = stampede(&set_up().0, true, || Err(DieselError::NotFound));
    assert_eq!(have(Some(Ok(7)), &totals), 7);
}

#[test]
fn a_reader_that_takes_too_long_is_not_waited_for() {
    let (totals, _) = stampede(&set_up().0, false, || Ok(5));
    assert_eq!(have(Some(Ok(7)), &totals), 7);
}

#[test]
fn a_read_inside_a_read_of_the_same_total_does_not_hang() {
    let (cached, _, _) = set_up();
    let cached = cached.with_wait(Duration::from_millis(10));
    let inner = Made(|| Ok(7), || Ok(1));
    let outer = Made(|| cached.get(&inner, &mut memory()), || Ok(1));
    assert_eq!(cached.get(&outer, &mut memory()), Ok(7));
}

#[test]
fn settings_are_a_clones_own() {
    let (cached, map, mut conn) = set_up();
    let other = cached.clone().with_prefix("other:");
    other.get(&Video(1), &mut conn).unwrap();
    assert_eq!(map.kept(1), None);
    assert_eq!(map.totals.lock().unwrap().get("other:video 1"), Some(&10));
}

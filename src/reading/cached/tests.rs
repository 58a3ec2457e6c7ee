//! Totals through a cache that can fail.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

use super::*;
use crate::error::Error;
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

impl TotalCache for Arc<Map> {
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

/// A counter whose reads and increments are functions.
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
    // This increment bypasses the cache. The next read does not see it, so it does not reach the database.
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
    assert_eq!(map.asked(), ["get"]);
}

#[test]
fn an_open_transaction_leaves_the_cache_alone() {
    let (cached, map, conn) = &mut set_up();
    let seen = conn.transaction(|conn| {
        cached.add(&Video(1), 1, conn)?;
        let seen = cached.get(&Video(1), conn)?;
        QueryResult::Ok(seen)
    });
    assert_eq!(seen, Ok(11));
    assert_eq!(map.asked(), [""; 0]);
    assert_eq!(total(1, conn), 11);
}

#[test]
fn what_a_transaction_counted_is_read_once_its_total_is_forgotten() {
    let (cached, map, conn) = &mut set_up();
    cached.get(&Video(1), conn).unwrap();
    let counted = conn.transaction(|conn| Video(1).add(1, conn));
    assert_eq!(counted, Ok(1));
    assert_eq!(cached.get(&Video(1), conn), Ok(10));
    cached.forget(&Video(1), conn);
    assert_eq!(map.kept(1), None);
    assert_eq!(cached.get(&Video(1), conn), Ok(11));
}

fn unknown() -> DieselError {
    let source = DieselError::NotFound;
    Error::OutcomeUnknown { source }.into()
}

fn lost() -> DieselError {
    let source = DieselError::NotFound;
    Error::ConnectionLost { source }.into()
}

fn not_read() -> DieselError {
    let source = DieselError::NotFound;
    Error::CountedNotRead { source }.into()
}

fn locked() -> DieselError {
    let text = Box::new("database is locked".to_owned());
    DieselError::DatabaseError(DatabaseErrorKind::Unknown, text)
}

#[test]
fn a_count_that_may_have_been_committed_removes_the_total() {
    let (cached, map, conn) = &mut set_up();
    let cases: [(fn() -> DieselError, _); 4] = [
        (unknown, None),
        (not_read, None),
        (lost, Some(10)),
        (locked, Some(10)),
    ];
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
    let for_no_time = cached.clone().with_pause(Duration::ZERO);
    let for_long = cached.with_pause(Duration::from_secs(3600));
    map.broken.store(true, Ordering::Relaxed);
    assert_eq!(for_no_time.add(&Video(1), 1, &mut conn), Ok(1));
    // That pause is over at once. The next operation tries the cache and begins a long pause.
    for n in 0..10 {
        assert_eq!(for_long.add(&Video(1), 1, &mut conn), Ok(1), "{n}");
        assert!(for_long.get(&Video(1), &mut conn).is_ok());
    }
    assert_eq!(map.asked(), ["increment", "increment"]);
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
    assert_eq!(map.asked(), ["get", "add", "increment"]);
    assert_eq!(cached.get(&Video(1), conn), Ok(10));
    assert_eq!(map.kept(1), Some(10));
}

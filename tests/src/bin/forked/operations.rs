//! The operations of counting, each done by children at once.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error as PoolError, Pool};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{Counter, RowCounter, count_many, fold, reset, set_total, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{Day, downloads};

use super::{Conn, SETTINGS};
use crate::{CHILDREN, KEYS, in_children};

/// One child's connections.
pub struct Child {
    pub conn: Conn,
    url: String,
    coalescer: Option<Coalescer<Conn>>,
}

/// By how much a key raises the totals once, and each child besides.
type Raises = (i64, i64);
const ONCE: Raises = (1, 0);
const EACH: Raises = (0, 1);
/// The first sets 7, and everyone adds 1 then.
const SET: Raises = (7, 1);

type Operation = (
    &'static str,
    Raises,
    fn(&mut Child, i64, &str) -> QueryResult<usize>,
);

/// On the video, or the counter, of this number, with this key.
const OPERATIONS: &[Operation] = &[
    ("update by key", ONCE, |child, n, key| {
        let count = update(videos.find(n)).set(views.eq(views + 1));
        count.idempotency_key(key).execute(&mut child.conn)
    }),
    ("update by filter", ONCE, |child, n, key| {
        let count = update(videos.filter(id.between(n, n))).set(views.eq(views + 1));
        count.idempotency_key(key).execute(&mut child.conn)
    }),
    ("update in a transaction", ONCE, |child, n, key| {
        retry::transaction(&mut child.conn, RetryPolicy::default(), |conn| {
            let count = update(videos.find(n)).set(views.eq(views + 1));
            count.idempotency_key(key).execute(conn)
        })
    }),
    ("update with rows back", ONCE, |child, n, key| {
        let count = update(videos.find(n)).set(views.eq(views + 1));
        let count = count.returning((id, views)).idempotency_key(key);
        Ok(count.get_results::<(i64, i64)>(&mut child.conn)?.len())
    }),
    ("update or insert", ONCE, |child, n, key| {
        let (version, day) = (n as i32, Day(1));
        let count = update(downloads::table.find((version, day)))
            .set(downloads::number.eq(downloads::number + 1))
            .or_insert((downloads::version.eq(version), downloads::day.eq(day)));
        count.idempotency_key(key).execute(&mut child.conn)
    }),
    ("row counter", ONCE, |child, n, key| {
        RowCounter::of(views, n)
            .idempotency_key(key)
            .add(1, &mut child.conn)
    }),
    ("named counter", ONCE, |child, _, key| {
        Counter::named(COUNTER)
            .idempotency_key(key)
            .add(1, &mut child.conn)
    }),
    ("set_total", SET, |child, n, key| {
        set_total(videos.find(n), views, 7)
            .idempotency_key(key)
            .execute(&mut child.conn)?;
        update(videos.find(n))
            .set(views.eq(views + 1))
            .execute(&mut child.conn)
    }),
    ("reset", (0, 1), |child, n, key| {
        reset(videos.find(n))
            .idempotency_key(key)
            .execute(&mut child.conn)?;
        update(videos.find(n))
            .set(views.eq(views + 1))
            .execute(&mut child.conn)
    }),
    ("named counter, set", SET, |child, n, key| {
        let counter = Counter::named(set_counter(n));
        counter.idempotency_key(key).set(7, &mut child.conn)?;
        counter.add(1, &mut child.conn).map(|()| 1)
    }),
    ("update without a key", EACH, |child, _, _| {
        update(videos.find(1))
            .set(views.eq(views + 1))
            .execute(&mut child.conn)
    }),
    ("update without a key, then fold", EACH, |child, n, _| {
        let counted = update(videos.find(n))
            .set(views.eq(views + 1))
            .execute(&mut child.conn);
        fold(videos.find(n)).run(&mut child.conn)?;
        counted
    }),
    ("named counter without a key", EACH, |child, _, _| {
        Counter::named(COUNTER).add(1, &mut child.conn).map(|()| 1)
    }),
    ("bounded counter", EACH, |child, n, _| {
        let bounded = RowCounter::of(views, n).never_above(KEYS * CHILDREN);
        bounded.add(1, &mut child.conn).map(usize::from)
    }),
    ("count_many", EACH, |child, n, _| {
        Ok(count_many(views, [(n, 1)]).run(&mut child.conn)?.rows)
    }),
    ("coalescer", EACH, |child, n, _| {
        let coalescer = child.coalescer();
        let added = coalescer.add_later(&RowCounter::of(views, n), 1);
        added.and_then(|()| coalescer.flush())?;
        Ok(1)
    }),
];

pub const COUNTER: &str = "a";

fn set_counter(n: i64) -> String {
    format!("set {n}")
}

impl Child {
    pub fn of(url: &str) -> Self {
        let mut conn = Conn::establish(url).expect("a connection");
        conn.batch_execute(SETTINGS).expect("settings");
        Child {
            conn,
            url: url.to_owned(),
            coalescer: None,
        }
    }

    fn coalescer(&mut self) -> &Coalescer<Conn> {
        let url = &self.url;
        self.coalescer
            .get_or_insert_with(|| Coalescer::new(pool(url)).expect("a coalescer"))
    }
}

pub fn pool(url: &str) -> Pool<ConnectionManager<Conn>> {
    #[derive(Debug)]
    struct Settings;
    impl CustomizeConnection<Conn, PoolError> for Settings {
        fn on_acquire(&self, conn: &mut Conn) -> Result<(), PoolError> {
            conn.batch_execute(SETTINGS).map_err(PoolError::QueryError)
        }
    }
    let pool = Pool::builder().max_size(2).min_idle(Some(0));
    let pool = pool.connection_customizer(Box::new(Settings));
    pool.build(ConnectionManager::new(url)).expect("a pool")
}

/// The sum of all totals.
pub fn total(url: &str) -> i64 {
    let Child { conn, .. } = &mut Child::of(url);
    let mut totals: Vec<i64> = videos.select(views.total()).load(conn).expect("totals");
    let numbers = downloads::table.select(downloads::number.total());
    let numbers: Vec<i32> = numbers.load(conn).expect("totals");
    totals.extend(numbers.into_iter().map(i64::from));
    let names: Vec<_> = (0..KEYS).map(set_counter).chain([COUNTER.into()]).collect();
    totals.extend(Counter::get_many(&names, conn).expect("totals"));
    totals.iter().sum()
}

/// Each operation: once by the parent, then by children.
pub fn count(url: &str) {
    let rows: Vec<_> = (0..=KEYS)
        .map(|n| (id.eq(n), slug.eq(n.to_string()), title.eq("")))
        .collect();
    let mut parent = Child::of(url);
    let conn = &mut parent.conn;
    diesel::delete(videos).execute(conn).expect("no videos");
    diesel::insert_into(videos)
        .values(rows)
        .execute(conn)
        .expect("videos");
    drop(parent); // a connection is never open in a fork
    for (name, (once, each), operation) in OPERATIONS {
        let work = |child: &mut Child, n: i64| {
            let done = operation(child, n, &format!("{name} {n}"));
            assert_eq!(done, Ok(1), "{name}");
        };
        reset(videos)
            .execute(&mut Child::of(url).conn)
            .expect("totals of 0");
        if !name.starts_with("coalescer") {
            work(&mut Child::of(url), KEYS); // without a thread
        }
        let before = total(url);
        let well = in_children(|wait| {
            let mut child = Child::of(url);
            wait();
            (0..KEYS).for_each(|n| work(&mut child, n));
        });
        let (rose, due) = (total(url) - before, KEYS * (once + CHILDREN * each));
        println!("{name}\t{well}, {rose}\t{CHILDREN}, {due}");
    }
}

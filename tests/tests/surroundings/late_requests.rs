//! Requests that reach the server after their client has lost its connection, and has asked on another one what became of them.

use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_sharded::RowCounter;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::proxy::{Cut, Proxy};
use diesel_sharded_tests::schema;
use diesel_sharded_tests::schema::videos::dsl::*;

macro_rules! on {
    ($($name:ident: $conn:ty;)+) => {$(
        /// A late COMMIT is waited for, and a late statement counts nothing any more.
        #[test]
        fn $name() {
            let (database, conn) = &mut schema::database_with_counters::<$conn>();
            let (proxy, url) = Proxy::before(database.url());
            let pool = Pool::builder().max_size(1).min_idle(Some(0));
            let pool = pool.build(ConnectionManager::<$conn>::new(url)).unwrap();
            let coalescer = Coalescer::builder(pool).deadline(Duration::from_secs(60));
            let coalescer = coalescer.build().unwrap();
            const ROUNDS: u32 = 14;
            for round in 0..ROUNDS {
                proxy.cut_after(round % 7, Cut::BeforeTheLateRequest);
                coalescer.add_later(&RowCounter::of(views, 1), 1).unwrap();
                coalescer.add_later(&RowCounter::of(likes, 1), 1).unwrap();
                coalescer.flush().unwrap();
            }
            assert!(proxy.cuts() > 7, "{}", proxy.cuts());
            let stats = coalescer.stats();
            assert!(stats.last_error.is_some() && stats.losses == 0, "{stats:?}");
            thread::sleep(Duration::from_secs(1)); // the last late request is there by now
            let totals = videos.find(1).select((views.total(), likes.total()));
            let expected = (100 + i64::from(ROUNDS), 1 + ROUNDS as i32);
            assert_eq!(totals.first(conn), Ok(expected));
        }
    )+};
}

on! {
    postgres: PgConnection;
    mysql: MysqlConnection;
}

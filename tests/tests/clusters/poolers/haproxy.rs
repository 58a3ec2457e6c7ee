//! HAProxy in TCP mode in front of one server. It knows nothing of statements: an increment that waits for a lock looks like a connection
//! that nobody uses, and is cut.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel_sharded_tests::haproxy::Haproxy;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::until;
use diesel_sharded_tests::{assert_matches, schema};

use super::*;

/// After such a silence the proxy of the tests below cuts a connection.
const IDLE: Duration = Duration::from_secs(3);

#[test]
fn every_count_lands_where_it_belongs_behind_haproxy() {
    let (database, mut conn) = database();
    let haproxy = Haproxy::start(&database, Duration::from_secs(60));
    let tallies = exactly(&haproxy.url(&database), 70, &mut conn);
    let awaited = awaited_processes(&haproxy.url(&database));
    assert_eq!((awaited.unknown, awaited.refused), ([0; 8], 0));
    let all = [tallies, vec![awaited.acknowledged]].concat();
    assert_eq!(totals(&mut conn), added(&all));
}

/// The cases on each driver.
macro_rules! cases {
    ($($name:ident: $conn:ty;)+) => {$(
        mod $name {
            use super::*;

            type Conn = $conn;

            /// A video with all its shards and a total of 0.
            fn video() -> (Database, Conn) {
                let (database, mut conn) = schema::database_with_counters::<Conn>();
                let set = diesel::update(videos.find(1)).set(views.eq(0));
                set.execute(&mut conn).unwrap();
                conn.batch_execute(
                    "INSERT INTO videos_shards (id, shard) VALUES (1, 0), (1, 1), (1, 2), (1, 3)",
                )
                .unwrap();
                (database, conn)
            }

            fn total(conn: &mut Conn) -> i64 {
                videos.find(1).select(views.total()).first(conn).unwrap()
            }

            /// Counts through the proxy while another transaction holds all shards, until the proxy has cut the connection.
            fn cut(url: &str, request: Option<&str>, holder: &mut Conn) -> Error {
                let count = || {
                    let conn = &mut Conn::establish(url).unwrap();
                    let count = update(videos.find(1)).set(views.eq(views + 1));
                    match request {
                        Some(request) => count.idempotency_key(request).execute(conn),
                        None => count.execute(conn),
                    }
                };
                holder.batch_execute("BEGIN").unwrap();
                let lock = "SELECT shard FROM videos_shards WHERE id = 1 FOR UPDATE";
                diesel::sql_query(lock).execute(holder).unwrap();
                let counted = thread::scope(|scope| scope.spawn(count).join().unwrap());
                holder.batch_execute("COMMIT").unwrap();
                Error::from(counted.expect_err("the connection is cut"))
            }

            #[test]
            fn a_count_that_is_cut_while_it_waits_is_reported_as_unknown() {
                let (database, mut conn) = video();
                let haproxy = Haproxy::start(&database, IDLE);
                let error = cut(&haproxy.url(&database), None, &mut conn);
                assert_matches!(error, Error::OutcomeUnknown { .. });
                // The server did not notice: it counts as soon as the lock is free.
                until("the server counts", || total(&mut conn) > 0);
                assert_eq!(total(&mut conn), 1);
            }

            #[test]
            fn a_cut_count_is_repeated_by_its_key() {
                let (database, mut conn) = video();
                let haproxy = Haproxy::start(&database, IDLE);
                let error = cut(&haproxy.url(&database), Some("request 7"), &mut conn);
                assert_matches!(error, Error::OutcomeUnknown { .. });
                for _ in 0..3 {
                    // On a starved machine the proxy cuts this one too.
                    until("it is repeated", || {
                        let again = &mut Conn::establish(&haproxy.url(&database)).unwrap();
                        let count = update(videos.find(1)).set(views.eq(views + 1));
                        count.idempotency_key("request 7").execute(again).is_ok()
                    });
                    assert_eq!(total(&mut conn), 1);
                }
            }

            #[test]
            fn a_pool_replaces_a_connection_cut_while_idle() {
                let (database, mut conn) = video();
                let haproxy = Haproxy::start(&database, IDLE);
                let mut idle = Conn::establish(&haproxy.url(&database)).unwrap();
                let count = |conn: &mut Conn| {
                    update(videos.find(1)).set(views.eq(views + 1)).execute(conn)
                };
                assert_eq!(count(&mut idle), Ok(1));
                let manager = ConnectionManager::<Conn>::new(&haproxy.url(&database));
                let pool = Pool::builder().max_size(1).build(manager).unwrap();
                assert_eq!(count(&mut pool.get().unwrap()), Ok(1));
                thread::sleep(IDLE + Duration::from_millis(500));
                let error = Error::from(count(&mut idle).expect_err("the connection is cut"));
                // The second, if the increment looked first whether its shard is locked.
                let is_told = matches!(
                    error,
                    Error::OutcomeUnknown { .. } | Error::ConnectionLost { .. }
                );
                assert!(is_told, "{error:?}");
                assert_eq!(count(&mut pool.get().unwrap()), Ok(1));
                assert_eq!(total(&mut conn), 3);
            }
        }
    )+};
}

cases! {
    postgresql: PgConnection;
    mariadb: MysqlConnection;
}

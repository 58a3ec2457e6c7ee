//! Counting on a MariaDB Galera cluster: three nodes that all take writes, and detect conflicts at COMMIT.
//!
//! The test of a partition needs root, for network namespaces, and fails without; the others do not need it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::BigInt;
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::{ShardChoice, Stripe};
use diesel_sharded::{Counter, Error, MIGRATIONS, RowCounter, fold, set_total, update};
use diesel_sharded_tests::galera::{Galera, NODES};
use diesel_sharded_tests::schema::{self, Day, comments, downloads, videos::dsl::*};

diesel::table! {
    tokens (id) {
        id -> BigInt,
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

fn prepare(galera: &Galera) -> MysqlConnection {
    let mut conn = galera.connect(0);
    schema::create(&mut conn);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    conn.batch_execute("CREATE TABLE tokens (id BIGINT PRIMARY KEY)")
        .unwrap();
    conn
}

/// A connection whose reads wait until the node has applied what others had committed before.
fn up_to_date(galera: &Galera, node: usize) -> MysqlConnection {
    let mut conn = galera.connect(node);
    conn.batch_execute("SET SESSION wsrep_sync_wait = 1")
        .unwrap();
    conn
}

/// The result of `read`, which has to be the same on each node.
fn on_all_nodes<T: PartialEq + std::fmt::Debug>(
    galera: &Galera,
    read: impl Fn(&mut MysqlConnection) -> QueryResult<T>,
) -> T {
    let mut all = (0..NODES).map(|node| read(&mut up_to_date(galera, node)).unwrap());
    let first = all.next().unwrap();
    for other in all {
        assert_eq!(first, other);
    }
    first
}

fn conflicts(galera: &Galera) -> u64 {
    let on = |node| {
        galera.number(node, "wsrep_local_cert_failures")
            + galera.number(node, "wsrep_local_bf_aborts")
    };
    (0..NODES).map(on).sum()
}

/// Few shards, chosen at random: every writer meets every other, and none notices.
#[test]
fn writers_on_all_nodes() {
    const ROUNDS: i64 = 25;
    let galera = Galera::start();
    prepare(&galera);
    thread::scope(|scope| {
        for node in 0..NODES {
            for kind in 0..3 {
                let galera = &galera;
                scope.spawn(move || {
                    let conn = &mut galera.connect(node);
                    for round in 0..ROUNDS {
                        match kind {
                            0 => by_key(conn),
                            1 => by_other_ways(conn, round),
                            _ => in_a_transaction(conn, node as i64 * ROUNDS + round),
                        }
                    }
                });
            }
        }
    });
    let each = ROUNDS * NODES as i64;
    let (totals, pages, numbers, posts) = on_all_nodes(&galera, |conn| {
        let totals: Vec<(i64, i32)> = videos
            .select((views.total(), likes.total()))
            .order(id)
            .load(conn)?;
        let pages = Counter::named("page").get(conn)?;
        let numbers: Vec<i32> = downloads::table
            .select(downloads::number.total())
            .load(conn)?;
        let posts: i64 = comments::table.count().get_result(conn)?;
        Ok((totals, pages, numbers, posts))
    });
    let each_like = each as i32;
    assert_eq!(
        totals,
        [
            (100 + 2 * each, 1 - each_like),
            (200 + 2 * each, 2 + each_like),
            (300, 3)
        ]
    );
    assert_eq!((pages, posts), (each, 2 + each));
    assert_eq!(numbers, [NODES as i32; ROUNDS as usize]);
    assert!(conflicts(&galera) > 0);
    // If nobody else writes, a fold changes no total, and moves all of it.
    let folded = fold(videos).run(&mut up_to_date(&galera, 1)).unwrap();
    assert!(folded.finished && folded.busy.is_empty());
    let bases: Vec<i64> = on_all_nodes(&galera, |conn| videos.select(views).order(id).load(conn));
    assert_eq!(bases, [100 + 2 * each, 200 + 2 * each, 300]);
}

fn by_key(conn: &mut MysqlConnection) {
    let counted = update(videos.find(1))
        .set(views.eq(views + 1))
        .shard_choice(ShardChoice::Random)
        .execute(conn);
    assert_eq!(counted, Ok(1));
    let counted = update(videos.find(1))
        .set(likes.eq(likes - 1))
        .shard_choice(ShardChoice::Random)
        .execute(conn);
    assert_eq!(counted, Ok(1));
}

fn by_other_ways(conn: &mut MysqlConnection, round: i64) {
    let counted = update(videos.filter(slug.eq_any(["a", "b"])))
        .set(views.eq(views + 1))
        .shard_choice(ShardChoice::Random)
        .execute(conn);
    assert_eq!(counted, Ok(2));
    Counter::named("page").increment(conn).unwrap();
    // The first ones insert the row, on all nodes at once.
    let counted = update(downloads::table.find((round as i32, Day(1))))
        .set(downloads::number.eq(downloads::number + 1))
        .or_insert((
            downloads::version.eq(round as i32),
            downloads::day.eq(Day(1)),
        ))
        .execute(conn);
    assert_eq!(counted, Ok(1));
    let _ = update(videos.find(2))
        .set(views.eq(views + 1))
        .execute(conn)
        .unwrap();
}

fn in_a_transaction(conn: &mut MysqlConnection, comment: i64) {
    let counted: QueryResult<usize> = retry::transaction(conn, RetryPolicy::new(), |conn| {
        let row = (comments::id.eq(100 + comment), comments::video_id.eq(1));
        diesel::insert_into(comments::table)
            .values(row)
            .execute(conn)?;
        videos.find(1).select(views.total()).first::<i64>(conn)?;
        update(videos.find(2))
            .set(likes.eq(likes + 1))
            .shard_choice(ShardChoice::Random)
            .execute(conn)
    });
    assert_eq!(counted, Ok(1));
}

/// Operations of several statements, beside writers on all nodes: a transaction that another node ends between two statements
/// is retried as a whole, also where the server does not report that.
#[test]
fn transactions_of_several_statements_beside_writers_on_all_nodes() {
    const ROUNDS: i64 = 40;
    const NEW: i64 = ROUNDS * NODES as i64;
    let galera = Galera::start();
    prepare(&galera);
    let stocked = AtomicI64::new(0);
    let folds = AtomicI64::new(0);
    let stop = AtomicBool::new(false);
    let beside_writers = |on_node: &(dyn Fn(usize) + Sync)| {
        stop.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                let conn = &mut galera.connect(1);
                while !stop.load(Ordering::Relaxed) {
                    let _ = fold(videos).retry(patient()).run(conn).unwrap();
                    folds.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _stop = Stop(&stop); // also when a writer panics
            thread::scope(|scope| {
                for node in 0..NODES {
                    scope.spawn(move || on_node(node));
                    let galera = &galera;
                    scope.spawn(move || {
                        let conn = &mut galera.connect(node);
                        for _ in 0..ROUNDS {
                            for video in 1..=3 {
                                one_view(video, conn);
                            }
                        }
                    });
                }
            });
        });
    };
    // Transactions that hold rows are guarded in every process.
    beside_writers(&|node| {
        let conn = &mut galera.connect(node);
        let stock = RowCounter::of(likes, 2)
            .never_below(0)
            .never_above(20)
            .retry(patient());
        for round in 0..ROUNDS {
            if node == 0 {
                let set = set_total(videos.find(3), likes, round as i32);
                assert_eq!(set.retry(patient()).execute(conn), Ok(1));
            }
            let restock = stock.add(3, conn).unwrap();
            let sale = (0..3).filter(|_| stock.add(-2, conn).unwrap()).count();
            let change = 3 * i64::from(restock) - 2 * sale as i64;
            stocked.fetch_add(change, Ordering::Relaxed);
        }
    });
    let stocked = stocked.into_inner();
    let stripe = Stripe::global();
    Stripe::new(1, NODES as u16).unwrap().set_global();
    // All others are guarded in the processes that have a stripe.
    beside_writers(&|node| {
        let pool = Pool::builder()
            .max_size(2)
            .build(ConnectionManager::new(galera.url(node)))
            .unwrap();
        let coalescer: Coalescer<MysqlConnection> =
            Coalescer::builder(pool).retry(patient()).build().unwrap();
        let conn = &mut galera.connect(node);
        for round in 0..ROUNDS {
            for video in 1..=3 {
                coalescer
                    .add_later(&RowCounter::of(views, video), 1)
                    .unwrap();
            }
            if round % 4 == 0 {
                coalescer.flush().unwrap();
            }
            let counted = update(videos.filter(slug.eq_any(["a", "b", "c"])))
                .set(views.eq(views + 1))
                .retry(patient())
                .execute(conn);
            assert_eq!(counted, Ok(3));
            let now: Vec<i64> = update(videos.filter(slug.eq_any(["b", "c"])))
                .set(views.eq(views + 1))
                .retry(patient())
                .returning(views)
                .get_results(conn)
                .unwrap();
            assert_eq!(now.len(), 2);
        }
        coalescer.close().unwrap();
    });
    what_follows_a_lost_transaction_is_not_committed(&mut galera.connect(2));
    stripe.set_global();
    assert!(folds.into_inner() > 0 && conflicts(&galera) > 0);
    let totals: Vec<(i64, i32)> = on_all_nodes(&galera, |conn| {
        let totals = videos.select((views.total(), likes.total()));
        totals.order(id).load(conn)
    });
    assert_eq!(
        totals,
        [
            (100 + 4 * NEW, 1),
            (200 + 5 * NEW, 2 + stocked as i32),
            (300 + 5 * NEW, ROUNDS as i32 - 1)
        ]
    );
}

/// In a process that has a stripe.
fn what_follows_a_lost_transaction_is_not_committed(conn: &mut MysqlConnection) {
    let lost: QueryResult<()> = retry::transaction(conn, patient(), |conn| {
        conn.batch_execute("ROLLBACK")?; // as the server does, and the driver would not notice
        diesel::insert_into(tokens::table)
            .values(tokens::id.eq(1))
            .execute(conn)
            .map(drop)
    });
    let error = Error::from(lost.unwrap_err());
    assert!(matches!(error, Error::TransactionAborted), "{error:?}");
    assert_eq!(tokens::table.count().get_result(conn), Ok(0_i64));
    assert_eq!(autocommit(conn), 1);
}

fn autocommit(conn: &mut MysqlConnection) -> i64 {
    let autocommit = diesel::dsl::sql::<BigInt>("@@autocommit");
    diesel::select(autocommit).get_result(conn).unwrap()
}

/// As often as it takes.
fn patient() -> RetryPolicy {
    RetryPolicy::new()
        .with_attempts(1000)
        .with_deadline(PATIENCE)
}

fn one_view(video: i64, conn: &mut MysqlConnection) {
    let counted = update(videos.find(video))
        .set(views.eq(views + 1))
        .shard_choice(ShardChoice::Random)
        .retry(patient())
        .execute(conn);
    assert_eq!(counted, Ok(1));
}

/// The answer that a writer got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Counted,
    Refused,
    Unknown,
}

impl Told {
    fn of(result: Result<(), Error>) -> Self {
        match result {
            Ok(()) => Told::Counted,
            Err(Error::OutcomeUnknown { .. }) => Told::Unknown,
            Err(_) => Told::Refused,
        }
    }
}

/// The answers that the writer on one node got.
#[derive(Debug, Default)]
struct Ledger {
    counts: Mutex<Vec<Told>>,
    tokens: Mutex<Vec<(i64, Told)>>,
    errors: Mutex<Vec<String>>,
}

impl Ledger {
    fn counted(&self) -> usize {
        let counts = self.counts.lock().unwrap();
        counts.iter().filter(|told| **told == Told::Counted).count()
    }

    fn wait_for_more(&self, more: usize) {
        let (before, begun) = (self.counted(), Instant::now());
        while self.counted() < before + more {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.errors);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Counts on the node's own row by itself, and on the first one in transactions with a token, until it is time to stop.
    fn write(&self, galera: &Galera, node: usize, stop: &AtomicBool) {
        static TOKEN: AtomicI64 = AtomicI64::new(1);
        let connect = || MysqlConnection::establish(&galera.url(node));
        let mut conn = None;
        while !stop.load(Ordering::Relaxed) {
            let Some(connected) = &mut conn else {
                conn = connect().ok(); // the node may be gone
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let counted = update(videos.find(node as i64 + 1))
                .set(views.eq(views + 1))
                .execute(connected);
            let ok = self.note(counted, |told| self.counts.lock().unwrap().push(told));
            let token = TOKEN.fetch_add(1, Ordering::Relaxed);
            let counted: QueryResult<usize> =
                retry::transaction(connected, RetryPolicy::new(), |conn| {
                    diesel::insert_into(tokens::table)
                        .values(tokens::id.eq(token))
                        .execute(conn)?;
                    update(videos.find(1))
                        .set(likes.eq(likes + 1))
                        .execute(conn)
                });
            let tokens = |told| self.tokens.lock().unwrap().push((token, told));
            if !(self.note(counted, tokens) && ok) {
                conn = None;
            }
        }
    }

    fn note(&self, counted: QueryResult<usize>, told: impl FnOnce(Told)) -> bool {
        let result = counted.map_err(Error::from);
        if let Err(error) = &result {
            self.errors.lock().unwrap().push(format!("{error:?}"));
        }
        let ok = result.is_ok();
        told(Told::of(result.map(|rows| assert_eq!(rows, 1))));
        ok
    }
}

/// Every acknowledged count is there, no refused one is, each once, and the same on all nodes.
fn check(galera: &Galera, ledgers: &[Ledger]) {
    let (totals, first_likes, there) = on_all_nodes(galera, |conn| {
        let totals: Vec<i64> = videos.select(views.total()).order(id).load(conn)?;
        let first_likes: i32 = videos.find(1).select(likes.total()).first(conn)?;
        let there: Vec<i64> = tokens::table
            .select(tokens::id)
            .order(tokens::id)
            .load(conn)?;
        Ok((totals, first_likes, there))
    });
    assert_eq!(first_likes as usize, 1 + there.len());
    for (node, ledger) in ledgers.iter().enumerate() {
        let counts = ledger.counts.lock().unwrap();
        let number = |told| counts.iter().filter(|other| **other == told).count() as i64;
        let counted = totals[node] - 100 * (node as i64 + 1);
        let errors = ledger.errors.lock().unwrap();
        assert!(
            (number(Told::Counted)..=number(Told::Counted) + number(Told::Unknown))
                .contains(&counted),
            "{node}: {counted}, {} and {} unknown: {errors:?}",
            number(Told::Counted),
            number(Told::Unknown)
        );
        for (token, told) in ledger.tokens.lock().unwrap().iter() {
            match (told, there.binary_search(token).is_ok()) {
                (Told::Counted, false) => panic!("{node}: token {token} is lost: {errors:?}"),
                (Told::Refused, true) => {
                    panic!("{node}: token {token} was refused: {errors:?}")
                }
                _ => {}
            }
        }
    }
}

/// Lets a writer count on each node while `fault` happens, and checks the answers that they got.
fn while_counting(galera: &Galera, fault: impl FnOnce(&[Ledger; NODES])) -> [Ledger; NODES] {
    prepare(galera);
    let ledgers: [Ledger; NODES] = Default::default();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        for (node, ledger) in ledgers.iter().enumerate() {
            scope.spawn(move || ledger.write(galera, node, stop));
        }
        let _stop = Stop(stop); // also when the fault panics
        wait_for_all(&ledgers);
        fault(&ledgers);
        wait_for_all(&ledgers);
    });
    check(galera, &ledgers);
    ledgers
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn wait_for_all(ledgers: &[Ledger]) {
    for ledger in ledgers {
        ledger.wait_for_more(20);
    }
}

#[test]
fn a_node_is_killed_and_rejoins() {
    let galera = Galera::start();
    let ledgers = while_counting(&galera, |ledgers| {
        galera.kill(2);
        galera.wait_until(0, "wsrep_cluster_size", "2");
        wait_for_all(&ledgers[..2]);
        galera.rejoin(2);
    });
    let told = ledgers[2].errors.lock().unwrap();
    assert!(!told.is_empty(), "nobody was at the node that was killed");
    for ledger in &ledgers[..2] {
        assert_eq!(*ledger.errors.lock().unwrap(), [""; 0]);
    }
}

/// Needs root.
#[test]
fn a_minority_refuses_and_has_changed_nothing() {
    let galera = Galera::start_behind_a_switch();
    let ledgers = while_counting(&galera, |ledgers| {
        galera.cut_off(2);
        galera.wait_until(2, "wsrep_cluster_status", "non-Primary");
        galera.wait_until(0, "wsrep_cluster_size", "2");
        let conn = &mut galera.connect(2);
        let refused = |result: QueryResult<()>| {
            let error = Error::from(result.unwrap_err());
            assert!(matches!(error, Error::NodeNotReady { .. }), "{error:?}");
        };
        let one = || update(videos.find(1)).set(views.eq(views + 1));
        refused(one().execute(conn).map(drop));
        refused(one().returning(views).get_result::<i64>(conn).map(drop));
        refused(
            update(videos)
                .set(views.eq(views + 1))
                .execute(conn)
                .map(drop),
        );
        refused(Counter::named("page").increment(conn));
        refused(fold(videos).run(conn).map(drop));
        refused(retry::transaction(conn, RetryPolicy::new(), |conn| {
            one().execute(conn).map(drop)
        }));
        wait_for_all(&ledgers[..2]);
        galera.plug_in(2);
        galera.wait_until(0, "wsrep_cluster_size", "3");
        galera.wait_until_synced(2);
    });
    let told = ledgers[2].errors.lock().unwrap();
    assert!(told.iter().any(|error| error.starts_with("NodeNotReady")));
    for ledger in &ledgers[..2] {
        assert_eq!(*ledger.errors.lock().unwrap(), [""; 0]);
    }
}

/// A process for each node, each with a stripe of its own: they hardly ever conflict, not even on the first counts.
#[test]
fn stripes_keep_processes_apart() {
    const THREADS: usize = 4;
    const COUNTS: usize = 100;
    let galera = Galera::start();
    let mut conn = prepare(&galera);
    let row = (downloads::version.eq(1), downloads::day.eq(Day(1)));
    diesel::insert_into(downloads::table)
        .values(row)
        .execute(&mut conn)
        .unwrap();
    up_to_date_everywhere(&galera);
    let mut processes: Vec<_> = (0..NODES)
        .map(|node| {
            Command::new(env!("CARGO_BIN_EXE_galera_writer"))
                .arg(galera.url(node))
                .args([node, NODES, THREADS, COUNTS].map(|number| number.to_string()))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut outputs: Vec<_> = processes
        .iter_mut()
        .map(|process| BufReader::new(process.stdout.take().unwrap()).lines())
        .collect();
    for output in &mut outputs {
        assert_eq!(output.next().unwrap().unwrap(), "ready");
    }
    for process in &mut processes {
        writeln!(process.stdin.take().unwrap()).unwrap();
    }
    let mut met = 0;
    for (output, process) in outputs.iter_mut().zip(&mut processes) {
        met += output.next().unwrap().unwrap().parse::<usize>().unwrap();
        assert!(process.wait().unwrap().success());
    }
    assert!(met * 20 < NODES * THREADS * COUNTS, "{met} conflicts");
    // Each has counted on its own shards and on no others, and has no more of them than writers.
    let stripes = on_all_nodes(&galera, |conn| {
        diesel::sql_query(format!(
            "SELECT CAST(SUM(number) AS SIGNED) AS counted, COUNT(*) AS shards FROM downloads_shards \
             GROUP BY shard % {NODES} ORDER BY shard % {NODES}"
        ))
        .load::<StripeOf>(conn)
    });
    assert_eq!(stripes.len(), NODES);
    for stripe in stripes {
        assert_eq!(stripe.counted, (THREADS * COUNTS) as i64);
        assert!(stripe.shards <= 2 * THREADS as i64, "{stripe:?}");
    }
}

fn up_to_date_everywhere(galera: &Galera) {
    on_all_nodes(galera, |conn| {
        downloads::table.count().get_result::<i64>(conn)
    });
}

#[derive(Debug, PartialEq, QueryableByName)]
struct StripeOf {
    #[diesel(sql_type = BigInt)]
    counted: i64,
    #[diesel(sql_type = BigInt)]
    shards: i64,
}

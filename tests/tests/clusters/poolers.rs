//! Poolers and proxies between the application and its database. With PgBouncer's transaction pooling each transaction may reach
//! another server connection, on which the name of a prepared statement may stand for another text: two tables of one shape show
//! where an increment lands then.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{
    Conflict, Counter, Error, MIGRATIONS, RowCounter, ShardsTable, asynchronous, update,
};
use diesel_sharded_tests::pgbouncer::{PgBouncer, PoolMode};
use diesel_sharded_tests::{Database, TestConnection, number};

mod haproxy;
mod pgpool;

diesel_sharded_tests::counted_table! {
    #[sharded(shards = 4)]
    Left of lefts (id) {
        id -> BigInt = i64,
        #[sharded] n -> BigInt = i64,
    }
}

diesel_sharded_tests::counted_table! {
    #[sharded(shards = 4)]
    Right of rights (id) {
        id -> BigInt = i64,
        #[sharded] n -> BigInt = i64,
    }
}

/// The acknowledged increments: lefts 1 to 3, rights 1 to 3, and the named counters "left" and "right".
type Tally = [i64; 8];

const NAMES: [&str; 2] = ["left", "right"];

fn database() -> (Database, PgConnection) {
    let database = PgConnection::database();
    let mut conn = PgConnection::connect(&database);
    for table in ["lefts", "rights"] {
        conn.batch_execute(&format!(
            "CREATE TABLE {table} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0);
             INSERT INTO {table} VALUES (1), (2), (3)"
        ))
        .unwrap();
    }
    ShardsTable::of(lefts::table).create(&mut conn).unwrap();
    ShardsTable::of(rights::table).create(&mut conn).unwrap();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    (database, conn)
}

fn totals(conn: &mut PgConnection) -> Tally {
    let lefts = lefts::table.order(lefts::id).select(lefts::n.total());
    let rights = rights::table.order(rights::id).select(rights::n.total());
    let rows = [lefts.load(conn).unwrap(), rights.load(conn).unwrap()];
    let named = Counter::get_many(&NAMES, conn).unwrap();
    let all: Vec<i64> = [rows.concat(), named].concat();
    all.try_into().unwrap()
}

fn added(tallies: &[Tally]) -> Tally {
    std::array::from_fn(|i| tallies.iter().map(|tally| tally[i]).sum())
}

/// Counts in every way on the table in turn. Which statement gets which name differs from thread to thread.
macro_rules! count_in_some_way {
    ($table:ident, $way:expr, $request:expr, $tally:expr, $conn:expr) => {{
        use $table::dsl::{id, n, $table as all};
        let conn = $conn;
        let one = |met: usize| i64::from(met == 1);
        match $way {
            0 => {
                let counted = update(all.find(1)).set(n.eq(n + 1)).execute(conn)?;
                $tally[0] += one(counted);
            }
            1 => {
                let count = update(all.filter(id.ge(2))).set(n.eq(n + 1));
                assert_eq!(count.execute(conn)?, 2);
                $tally[1] += 1;
                $tally[2] += 1;
            }
            2 => {
                let count = update(all.filter(id.le(2))).set(n.eq(n + 1));
                let rows: Vec<(i64, i64)> = count.returning((id, n)).get_results(conn)?;
                assert_eq!(rows.len(), 2);
                $tally[0] += 1;
                $tally[1] += 1;
            }
            3 => {
                retry::transaction(conn, RetryPolicy::new(), |conn| {
                    update(all.find(2)).set(n.eq(n + 1)).execute(conn)?;
                    update(all.find(3)).set(n.eq(n + 1)).execute(conn)
                })?;
                $tally[1] += 1;
                $tally[2] += 1;
            }
            4 => {
                let stock = RowCounter::of(n, 3).never_below(0);
                $tally[2] += i64::from(stock.add(1, conn)?);
            }
            _ => {
                let count = update(all.find(2)).set(n.eq(n + 1));
                let counted = count.idempotency_key($request).execute(conn)?;
                $tally[1] += one(counted);
            }
        }
    }};
}

/// Six clients that count on both tables. Returns the acknowledged increments, and the failures.
fn count_on_both(url: &str, rounds: usize) -> (Vec<Tally>, Vec<Error>) {
    let failed = Mutex::new(vec![]);
    let tallies = on_threads(6, |client, tally| {
        let mut conn = PgConnection::establish(url).unwrap();
        for round in 0..rounds {
            if let Err(error) = count_once(client, round, tally, &mut conn) {
                failed.lock().unwrap().push(Error::from(error));
            }
        }
    });
    (tallies, failed.into_inner().unwrap())
}

/// What this many threads count.
fn on_threads(threads: usize, count: impl Fn(usize, &mut Tally) + Sync) -> Vec<Tally> {
    let count = |thread| {
        let mut tally = [0; 8];
        count(thread, &mut tally);
        tally
    };
    thread::scope(|scope| {
        let threads = (0..threads).map(|thread| scope.spawn(move || count(thread)));
        let threads: Vec<_> = threads.collect();
        let tallies = threads.into_iter().map(|thread| thread.join().unwrap());
        tallies.collect()
    })
}

fn count_once(
    client: usize,
    round: usize,
    tally: &mut Tally,
    conn: &mut PgConnection,
) -> QueryResult<()> {
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let request = format!("request {}", REQUESTS.fetch_add(1, Ordering::Relaxed));
    let way = (client + round / 2) % 7;
    let is_left = (client + round).is_multiple_of(2);
    if way == 6 {
        let side = usize::from(!is_left);
        Counter::named(NAMES[side]).increment(conn)?;
        tally[6 + side] += 1;
    } else if is_left {
        count_in_some_way!(lefts, way, request, tally[..3], conn);
    } else {
        count_in_some_way!(rights, way, request, tally[3..6], conn);
    }
    Ok(())
}

fn every_count_lands_where_it_belongs(mode: PoolMode, connections: usize, rounds: usize) {
    let (database, mut conn) = database();
    let bouncer = PgBouncer::start(mode, connections);
    exactly(&bouncer.url(&database), rounds, &mut conn);
}

/// Counts on both tables, and returns the increments: all are acknowledged, and all are in the totals.
fn exactly(url: &str, rounds: usize, conn: &mut PgConnection) -> Vec<Tally> {
    let (tallies, failed) = count_on_both(url, rounds);
    assert_eq!(totals(conn), added(&tallies), "{failed:?}");
    assert!(failed.is_empty(), "{failed:?}");
    tallies
}

#[test]
fn counts_behind_transaction_pooling() {
    every_count_lands_where_it_belongs(PoolMode::Transaction, 3, 350);
}

#[test]
fn counts_behind_session_pooling() {
    every_count_lands_where_it_belongs(PoolMode::Session, 8, 140);
}

#[test]
fn a_coalescer_counts_exactly_behind_transaction_pooling() {
    let (database, mut conn) = database();
    let bouncer = PgBouncer::start(PoolMode::Transaction, 3);
    let coalescers: Vec<Coalescer<PgConnection>> = (0..3)
        .map(|_| {
            let manager = ConnectionManager::new(bouncer.url(&database));
            // The pool's own test of a connection is a statement that Diesel caches.
            let pool = Pool::builder().max_size(2).test_on_check_out(false);
            Coalescer::new(pool.build(manager).unwrap()).unwrap()
        })
        .collect();
    let tallies = on_threads(12, |thread, tally| {
        let coalescer = &coalescers[thread % 3];
        for round in 0..100 {
            let row = (thread + round) % 3;
            let key = row as i64 + 1;
            let (table, added) = if (thread + round / 3).is_multiple_of(2) {
                (0, coalescer.add_later(&RowCounter::of(lefts::n, key), 1))
            } else {
                (3, coalescer.add_later(&RowCounter::of(rights::n, key), 1))
            };
            added.unwrap();
            if round % 10 == 0 {
                coalescer.flush().unwrap();
            }
            tally[table + row] += 1;
        }
    });
    drop(coalescers);
    assert_eq!(totals(&mut conn), added(&tallies));
}

const CLIENT_URL: &str = "POOLED_CLIENT_URL";
const COUNTED: &str = "counted: ";

/// Diesel's own set-up of a connection is a prepared statement too, which fails now and then.
async fn establish(url: &str) -> AsyncPgConnection {
    for _ in 0..100 {
        if let Ok(conn) = AsyncPgConnection::establish(url).await {
            return conn;
        }
    }
    panic!("no connection to {url}");
}

/// The increments of an awaited client.
#[derive(Default)]
struct Awaited {
    acknowledged: Tally,
    /// The connection broke before the answer came.
    unknown: Tally,
    /// Nothing was counted.
    refused: usize,
}

/// Counts on the first row of the table by its key, or on the second by a filter.
macro_rules! count_awaited {
    ($table:ident, $row:expr, $conn:expr) => {{
        use $table::dsl::{id, n, $table as all};
        match $row {
            0 => {
                let count = asynchronous::update(all.find(1)).set(n.eq(n + 1));
                count.execute($conn).await
            }
            _ => {
                let second = all.filter(id.eq(2).and(n.ge(0)));
                let count = asynchronous::update(second).set(n.eq(n + 1));
                count.execute($conn).await
            }
        }
    }};
}

/// tokio-postgres gives statements the same names in each process, so that two of them are needed.
async fn awaited_counts(url: &str, client: usize) -> Awaited {
    let mut awaited = Awaited::default();
    let mut conn = establish(url).await;
    for round in 0..300 {
        if round % 50 == 49 {
            conn = establish(url).await;
        }
        let is_left = (client + round).is_multiple_of(2);
        let (place, counted) = match (is_left, round % 3) {
            (true, row @ 0..2) => (row, count_awaited!(lefts, row, &mut conn)),
            (false, row @ 0..2) => (3 + row, count_awaited!(rights, row, &mut conn)),
            (_, _) => {
                let side = usize::from(!is_left);
                let name = asynchronous::Counter::named(NAMES[side]);
                (6 + side, name.increment(&mut conn).await.map(|()| 1))
            }
        };
        match counted.map_err(Error::from) {
            Ok(1) => awaited.acknowledged[place] += 1,
            Ok(other) => panic!("{other} rows are counted where there is one"),
            Err(Error::StatementLost { .. }) => awaited.refused += 1,
            Err(Error::ConflictPersisted {
                conflict: Conflict::StatementLost,
                ..
            }) => awaited.refused += 1,
            Err(Error::ConnectionLost { .. }) => {
                awaited.refused += 1;
                conn = establish(url).await;
            }
            // The driver's own errors: a reply came that was another statement's.
            Err(Error::OutcomeUnknown { .. } | Error::Diesel(_)) => {
                awaited.unknown[place] += 1;
                conn = establish(url).await;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    awaited
}

/// A process of its own for the tests below, which start it.
#[test]
#[ignore = "runs as a process of the tests of awaited clients"]
fn awaited_client() {
    let url = std::env::var(CLIENT_URL).expect("an address");
    let (url, client) = url.rsplit_once(' ').expect("an address and a number");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client: usize = client.parse().unwrap();
    let awaited = runtime.block_on(awaited_counts(url, client));
    let numbers = [awaited.acknowledged, awaited.unknown].concat();
    let numbers = numbers.iter().map(|number| format!("{number} "));
    println!(
        "{COUNTED}{}{}",
        numbers.collect::<String>(),
        awaited.refused
    );
}

/// A process of its own for the test below, since the first loss changes whether a process keeps statements prepared.
#[test]
#[ignore = "runs as a process of the test of lost statements"]
fn loser() {
    let url = std::env::var(CLIENT_URL).expect("an address");
    let conn = &mut PgConnection::establish(&url).unwrap();
    let count = |conn: &mut PgConnection| {
        let count = update(lefts::table.find(1)).set(lefts::n.eq(lefts::n + 1));
        count.execute(conn)
    };
    for _ in 0..8 {
        assert_eq!(count(conn), Ok(1));
    }
    let kept = "count(*) FROM pg_prepared_statements WHERE statement LIKE 'UPDATE \"lefts%'";
    let number = number!(kept, conn);
    assert!((1..=4).contains(&number), "{number} texts are kept"); // one, which fits each shard
    let forget = |conn: &mut PgConnection| diesel::sql_query("DEALLOCATE ALL").execute(conn);
    forget(conn).unwrap();
    let inside = conn.transaction(|conn| count(conn)).map_err(Error::from);
    let told = inside.expect_err("the server has forgotten it").to_string();
    assert!(told.contains("CacheSize::Disabled"), "{told}");
    assert!(told.contains("nothing was changed"), "{told}");
    // From then on no statement is kept.
    assert_eq!(conn.transaction(|conn| count(conn)), Ok(1));
    forget(conn).unwrap();
    assert_eq!(count(conn), Ok(1));
    println!("{COUNTED}10");
}

/// A process of one of the ignored tests, which is told this.
fn process(test: &str, told: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(CLIENT_URL, told)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a process has counted.
fn counted_by(process: Child) -> String {
    let output = process.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let counted = text
        .lines()
        .find_map(|line| Some(line.split_once(COUNTED)?.1));
    let counted = counted.unwrap_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        panic!("{text}\n{errors}")
    });
    counted.to_owned()
}

#[test]
fn a_lost_statement_in_a_callers_transaction_is_told() {
    let (database, mut conn) = database();
    assert_eq!(counted_by(process("poolers::loser", database.url())), "10");
    assert_eq!(totals(&mut conn)[0], 10);
}

/// The increments of four processes' awaited clients.
fn awaited_processes(url: &str) -> Awaited {
    let client = |client| process("poolers::awaited_client", &format!("{url} {client}"));
    let clients: Vec<_> = (0..4).map(client).collect();
    let mut all = Awaited::default();
    for client in clients {
        let counted = counted_by(client);
        let numbers = counted
            .split(' ')
            .map(|number| number.parse::<i64>().unwrap());
        let numbers: Vec<_> = numbers.collect();
        let (acknowledged, unknown) = numbers[..16].split_at(8);
        all.acknowledged = added(&[all.acknowledged, acknowledged.try_into().unwrap()]);
        all.unknown = added(&[all.unknown, unknown.try_into().unwrap()]);
        all.refused += numbers[16] as usize;
    }
    all
}

/// PgBouncer 1.18 breaks some of the connections: an increment that was under way on one is reported as unknown.
#[test]
fn awaited_counts_behind_transaction_pooling() {
    let (database, mut conn) = database();
    let bouncer = PgBouncer::start(PoolMode::Transaction, 2);
    let awaited = awaited_processes(&bouncer.url(&database));
    let (acknowledged, unknown) = (awaited.acknowledged, awaited.unknown);
    for (place, total) in totals(&mut conn).into_iter().enumerate() {
        let least = acknowledged[place];
        let most = least + unknown[place];
        assert!(
            (least..=most).contains(&total),
            "counter {place} is {total}: {acknowledged:?} acknowledged, {unknown:?} unknown"
        );
    }
    assert!(acknowledged.iter().sum::<i64>() >= 600, "{acknowledged:?}"); // of 1,200
    println!("{unknown:?} unknown, {} refused", awaited.refused);
}

#[test]
fn awaited_counts_land_where_they_belong_behind_session_pooling() {
    let (database, mut conn) = database();
    let bouncer = PgBouncer::start(PoolMode::Session, 8);
    let awaited = awaited_processes(&bouncer.url(&database));
    assert_eq!(totals(&mut conn), awaited.acknowledged);
    assert_eq!((awaited.unknown, awaited.refused), ([0; 8], 0));
}

/// Nothing is lost there, so the statements stay prepared.
#[test]
#[ignore = "needs the image of a newer PgBouncer: scripts/test-containers.sh"]
fn behind_a_newer_pooler_no_statement_is_lost() {
    let (database, mut conn) = database();
    let bouncer = PgBouncer::start_newer(PoolMode::Transaction, 3);
    let url = bouncer.url(&database);
    let tallies = exactly(&url, 350, &mut conn);
    let awaited = awaited_processes(&url);
    let all = [tallies, vec![awaited.acknowledged]].concat();
    assert_eq!(totals(&mut conn), added(&all));
    assert_eq!((awaited.unknown, awaited.refused), ([0; 8], 0));
    let kept =
        "count(*) FROM pg_prepared_statements WHERE statement LIKE 'UPDATE \"lefts_shards\"%'";
    let number = number!(kept, &mut PgConnection::establish(&url).unwrap());
    assert!(number > 0, "the server's connection keeps no count");
}

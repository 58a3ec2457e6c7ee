//! Connections that are admitted to one combiner: those that are the same meet, and all others count apart.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::result::Error as DieselError;
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{self as api, update};
use diesel_sharded_tests::awaited::{Awaited, Done};
use diesel_sharded_tests::fixture::Run;
use diesel_sharded_tests::role::Role;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, patient, schema};

use super::others::AnyConnection;
use super::postgres::POLICIES_OF_COUNTS;

thread_local! {
    /// What happens when the next statement begins.
    static BESIDE: RefCell<Option<Box<dyn FnOnce()>>> = RefCell::default();
}

fn instrumentation() -> Option<Box<dyn Instrumentation>> {
    Some(Box::new(|event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { .. } = event {
            let beside = BESIDE.with_borrow_mut(Option::take);
            beside.into_iter().for_each(|beside| beside());
        }
    }))
}

/// A combiner, whose admitted connections do what is to happen beside them.
fn combiner() -> Combiner {
    Combiner::new().instrumented_by(instrumentation)
}

/// How long the other increment waits for a leader.
const LONG: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(50);

/// Whether another increment waits for the one that leads at the moment: it begins when the leader sends its first statement.
fn waits(lead: impl FnOnce(), patience: Duration, other: impl FnOnce() + 'static) -> bool {
    let waited = Rc::new(Cell::new(None));
    let took = Rc::clone(&waited);
    BESIDE.set(Some(Box::new(move || {
        let began = Instant::now();
        other();
        took.set(Some(began.elapsed()));
    })));
    lead();
    waited.get().expect("the other count") >= patience
}

/// Counts once, and waits for others no longer than this; through the combiner that admits the connection, or through one that is named.
macro_rules! count {
    ($conn:expr, $patience:expr $(, through $combiner:expr)?) => {{
        let policy = patient().with_deadline($patience);
        let count = api::update(videos.find(1)).set(views.eq(views + 1));
        $(let count = count.combine($combiner);)?
        assert_eq!(count.retry(policy).execute($conn).done(), Ok(1));
    }};
}

/// Whether the connections' increments meet; `other` is shared, since it counts while the leader does. The combiner, theirs or a new one, has
/// measured nothing: then one caller leads at a time.
macro_rules! meet {
    ($leader:expr, $other:expr, $patience:expr) => {{
        let (combiner, other) = (Combiner::new(), Rc::clone($other));
        let same = combiner.clone();
        let counts = move || count!(&mut *other.borrow_mut(), $patience, through & same);
        waits(
            || count!($leader, HOUR, through & combiner),
            $patience,
            counts,
        )
    }};
    ($leader:expr, $other:expr, $patience:expr, through theirs) => {{
        let other = Rc::clone($other);
        let counts = move || count!(&mut *other.borrow_mut(), $patience);
        waits(|| count!($leader, HOUR), $patience, counts)
    }};
}

const HOUR: Duration = Duration::from_secs(3600);

type Error = Box<dyn std::error::Error>;

fn shared<Conn>(conn: Conn) -> Rc<RefCell<Conn>> {
    Rc::new(RefCell::new(conn))
}

macro_rules! admit {
    ($combiner:ident, $($conn:expr),+) => {
        $(assert_eq!($combiner.admit($conn), Ok(true));)+
    };
}

macro_rules! on {
    ($($module:ident: $conn:ty, $api:path;)+) => {$(
        #[path = "."]
        mod $module {
            use super::*;
            use $api as api;

            type Conn = $conn;

            #[path = "../operations/mod.rs"]
            #[expect(dead_code, reason = "what other programs use")]
            mod operations;

            fn total(conn: &mut Conn) -> i64 {
                videos.find(1).select(views.total()).first(conn).unwrap()
            }

            #[test]
            fn meet_where_they_are_the_same() {
                let (database, mut leader) = schema::database::<Conn>();
                let (_elsewhere, elsewhere) = schema::database::<Conn>();
                let (other, elsewhere) = (shared(Conn::connect(&database)), shared(elsewhere));
                let combiner = combiner();
                admit!(combiner, &mut leader);
                assert!(!meet!(&mut leader, &other, LONG));
                admit!(combiner, &mut *other.borrow_mut(), &mut *elsewhere.borrow_mut());
                assert!(!meet!(&mut leader, &elsewhere, LONG));
                assert!(meet!(&mut leader, &other, SHORT));
                assert!(meet!(&mut leader, &other, SHORT, through theirs));
                let [one, another] = [(); 2].map(|()| super::combiner());
                admit!(one, &mut leader);
                admit!(another, &mut *other.borrow_mut());
                assert!(!meet!(&mut leader, &other, LONG, through theirs));
                assert_eq!(total(&mut leader), 100 + 9);
                assert_eq!(total(&mut elsewhere.borrow_mut()), 100 + 1);
            }

            /// Nor does an increment that names the combiner itself meet others.
            #[test]
            fn count_alone_in_a_transaction_begun_by_text() {
                let (database, mut leader) = schema::database::<Conn>();
                let other = shared(Conn::connect(&database));
                for (begin, names) in [("BEGIN", false), ("begin;", true)] {
                    let (combiner, other) = (combiner(), Rc::clone(&other));
                    admit!(combiner, &mut leader, &mut *other.borrow_mut());
                    let rolls_back = move || {
                        let conn = &mut *other.borrow_mut();
                        conn.run(begin);
                        match names {
                            false => count!(conn, LONG),
                            true => count!(conn, LONG, through &combiner),
                        }
                        conn.run("ROLLBACK");
                    };
                    assert!(!waits(|| count!(&mut leader, HOUR), LONG, rolls_back));
                }
                assert_eq!(total(&mut leader), 100 + 2);
                other.borrow_mut().run("BEGIN");
                let inside = combiner().admit(&mut *other.borrow_mut());
                assert_eq!(inside, Err(DieselError::AlreadyInTransaction));
                other.borrow_mut().run("COMMIT");
                let in_diesels = other.borrow_mut().transaction(|conn| {
                    count!(conn, LONG);
                    QueryResult::Ok(())
                });
                assert_eq!(in_diesels, Ok(()));
                assert!(meet!(&mut leader, &other, SHORT));
            }

            #[test]
            fn count_alone_after_a_text_that_may_change_anything() {
                let (database, mut leader) = schema::database::<Conn>();
                let other = shared(Conn::connect(&database));
                let combiner = combiner();
                admit!(combiner, &mut leader);
                for text in [
                    "CREATE TABLE notes (id INTEGER)",
                    "SELECT 1; DROP TABLE notes",
                    "CREATE TEMPORARY TABLE notes (id INTEGER)",
                ] {
                    admit!(combiner, &mut *other.borrow_mut());
                    other.borrow_mut().run(text);
                    assert!(!meet!(&mut leader, &other, LONG), "{text}");
                }
                let other = shared(Conn::connect(&database));
                admit!(combiner, &mut *other.borrow_mut());
                let ignores = |_: InstrumentationEvent<'_>| ();
                other.borrow_mut().set_instrumentation(ignores);
                assert!(!meet!(&mut leader, &other, LONG));
            }

            /// Neither this crate's own statements nor ordinary ones end an admission.
            #[test]
            fn meet_after_every_operation() {
                const DEFINE: [&str; 4] = ["table", "cache", "view", "migrat"];
                let (database, mut leader) = schema::database_with_counters::<Conn>();
                let other = shared(Conn::connect(&database));
                let combiner = combiner();
                admit!(combiner, &mut leader);
                for (video, &(name, before, work)) in (1000..).zip(operations::ALL) {
                    if DEFINE.iter().any(|part| name.contains(part)) {
                        continue;
                    }
                    let mut conn = other.borrow_mut();
                    operations::arrange(name, before, video, &mut conn);
                    admit!(combiner, &mut *conn);
                    work(&mut conn, video).unwrap_or_else(|e| panic!("{name}: {e}"));
                    drop(conn);
                    assert!(meet!(&mut leader, &other, SHORT), "{name}");
                }
                let named = diesel::update(videos.find(2)).set(title.eq("a; 'b' -- @"));
                assert_eq!(named.execute(&mut *other.borrow_mut()), Ok(1));
                let commented = diesel::sql_query("SELECT 1 -- a comment");
                assert!(commented.execute(&mut *other.borrow_mut()).is_ok());
                assert!(meet!(&mut leader, &other, SHORT));
            }
        }
    )+};
}

on! {
    postgres: PgConnection, diesel_sharded;
    mysql: MysqlConnection, diesel_sharded;
    sqlite: SqliteConnection, diesel_sharded;
    multi: AnyConnection, diesel_sharded;
    async_postgres: Awaited<diesel_async::AsyncPgConnection>, diesel_sharded_tests::awaited;
    async_mysql: Awaited<diesel_async::AsyncMysqlConnection>, diesel_sharded_tests::awaited;
}

#[test]
fn connections_of_a_pool_combine() {
    let (database, mut conn) = schema::database::<PgConnection>();
    let pool = Pool::builder()
        .max_size(3)
        .connection_customizer(Box::new(combiner()));
    let manager = ConnectionManager::<PgConnection>::new(database.url());
    let pool = pool.build(manager).unwrap();
    let [mut leader, other] = [(); 2].map(|()| pool.get().unwrap());
    assert!(meet!(&mut leader, &shared(other), SHORT, through theirs));
    let count = update(videos.find(1)).set(views.eq(views + 1));
    let counted = count.execute_with(|| Ok::<_, Error>(pool.get()?));
    assert_eq!(counted.unwrap(), 1);
    let total = videos.find(1).select(views.total());
    assert_eq!(total.first(&mut conn), Ok(103_i64));
}

/// A setting that was made before, or after: it also ends the admission.
#[test]
fn connections_with_other_settings_count_apart() {
    macro_rules! count_apart {
        ($conn:ty: $($setting:literal),+) => {
            let (database, mut leader) = schema::database::<$conn>();
            let combiner = combiner();
            admit!(combiner, &mut leader);
            for setting in [$($setting),+] {
                let other = shared(<$conn>::connect(&database));
                admit!(combiner, &mut *other.borrow_mut());
                other.borrow_mut().run(setting);
                assert!(!meet!(&mut leader, &other, LONG), "{setting}");
                admit!(combiner, &mut *other.borrow_mut());
                assert!(!meet!(&mut leader, &other, LONG), "{setting}");
            }
        };
    }
    count_apart!(PgConnection: "SET synchronous_commit = off", "SELECT set_config('lock_timeout', '9s', false)",
        "UPDATE pg_settings SET setting = '9s' WHERE name = 'lock_timeout'", "SET search_path = public",
        "SELECT 1 INTO TEMPORARY notes", "SET LOCAL lock_timeout = '9s'; SET search_path = public");
    count_apart!(MysqlConnection: "SET sql_mode = ''", "SET innodb_lock_wait_timeout = 9");
    count_apart!(SqliteConnection: "PRAGMA synchronous = FULL", "ATTACH '/dev/null' AS other");
}

/// Of this crate's transactions and of Diesel's, while another connection writes.
#[test]
fn a_transaction_that_could_not_begin_suspends_nothing() {
    let (database, mut leader) = schema::database::<SqliteConnection>();
    let other = shared(SqliteConnection::connect(&database));
    let combiner = combiner();
    other.borrow_mut().run("PRAGMA busy_timeout = 0");
    admit!(combiner, &mut leader, &mut *other.borrow_mut());
    leader.run("BEGIN IMMEDIATE");
    let busy = other
        .borrow_mut()
        .immediate_transaction(|_| QueryResult::Ok(()));
    assert!(busy.is_err());
    let policy = RetryPolicy::never();
    let busy = retry::transaction(&mut *other.borrow_mut(), policy, |_| QueryResult::Ok(()));
    assert!(busy.is_err());
    leader.run("ROLLBACK");
    assert!(meet!(&mut leader, &other, SHORT, through theirs));
}

#[test]
fn tenants_in_schemas_count_apart() {
    let (database, mut leader) = schema::database::<PgConnection>();
    let mut conn = PgConnection::connect(&database);
    let combiner = combiner();
    conn.run("CREATE SCHEMA tenant; SET search_path = tenant");
    schema::create(&mut conn);
    admit!(combiner, &mut leader, &mut conn);
    let other = shared(conn);
    assert!(!meet!(&mut leader, &other, LONG));
    let total = || videos.find(1).select(views.total());
    assert_eq!(total().first(&mut leader), Ok(101_i64));
    assert_eq!(total().first(&mut *other.borrow_mut()), Ok(101_i64));
    other.borrow_mut().run("SET search_path = public");
    assert!(!meet!(&mut leader, &other, LONG));
    assert_eq!(total().first(&mut leader), Ok(103_i64));
}

/// One that may not count is refused, and nobody counts for it.
#[test]
fn roles_count_apart() {
    macro_rules! on {
        ($conn:ty) => {
            let (database, mut leader) = schema::database::<$conn>();
            let combiner = combiner();
            admit!(combiner, &mut leader);
            let role = Role::with(&database, &[]);
            role.grant_all_on("videos");
            let mut conn = <$conn>::establish(&role.url()).unwrap();
            admit!(combiner, &mut conn);
            let refused = move || {
                let count = update(videos.find(1)).set(views.eq(views + 1));
                assert!(count.execute(&mut conn).is_err());
            };
            assert!(!waits(|| count!(&mut leader, HOUR), LONG, refused));
            let total = videos.find(1).select(views.total());
            assert_eq!(total.first(&mut leader), Ok(101_i64));
        };
    }
    on!(PgConnection);
    on!(MysqlConnection);
}

/// Row security hides a row from all of them: nobody's batch counts on it.
#[test]
fn connections_of_one_role_combine_on_what_it_sees() {
    fn counts(video: i64, patience: Duration, conn: &mut PgConnection) {
        let count = update(videos.find(video)).set(views.eq(views + 1));
        let rows = count.retry(patient().with_deadline(patience)).execute(conn);
        assert_eq!(rows, Ok(video as usize - 1));
    }
    let (database, mut owner) = schema::database::<PgConnection>();
    owner.run(POLICIES_OF_COUNTS);
    count!(&mut owner, HOUR); // the hidden row has a shard
    let (role, mut leader) = Role::acting(&["Counting"], |_| false, &database, &mut owner);
    let combiner = combiner();
    let connect = || {
        let mut conn = PgConnection::establish(&role.url()).unwrap();
        admit!(combiner, &mut conn);
        conn
    };
    admit!(combiner, &mut leader);
    let other = shared(connect());
    for video in [1, 2] {
        let other = Rc::clone(&other);
        let beside = move || counts(video, SHORT, &mut other.borrow_mut());
        assert!(waits(|| counts(video, HOUR, &mut leader), SHORT, beside));
    }
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let conn = &mut connect();
                (0..80).for_each(|round| counts(1 + round % 2, HOUR, conn));
            });
        }
    });
    let totals = videos.order(id).select(views.total());
    assert_eq!(
        totals.load(&mut owner),
        Ok(vec![101_i64, 202 + 16 * 40, 300])
    );
}

/// Row security hides the row from one of them, whichever of the two leads.
#[test]
fn roles_that_see_other_rows_count_apart() {
    let (database, mut owner) = schema::database::<PgConnection>();
    owner.run(POLICIES_OF_COUNTS);
    let (_role, mut acting) = Role::acting(&["Counting"], |_| false, &database, &mut owner);
    let combiner = combiner();
    admit!(combiner, &mut owner, &mut acting);
    let [owner, acting] = [owner, acting].map(shared);
    let counts = |conn: &RefCell<PgConnection>, rows| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        assert_eq!(count.execute(&mut *conn.borrow_mut()), Ok(rows));
    };
    for (leader, other, rows) in [(&owner, &acting, 1), (&acting, &owner, 0)] {
        let other = Rc::clone(other);
        let beside = move || counts(&other, 1 - rows);
        assert!(!waits(|| counts(leader, rows), LONG, beside));
    }
    let total = videos.find(1).select(views.total());
    assert_eq!(total.first(&mut *owner.borrow_mut()), Ok(102_i64));
}

#[test]
fn a_database_without_a_file_is_not_admitted() {
    let combiner = combiner();
    for url in [":memory:", "", "file:named?mode=memory&cache=shared"] {
        let conn = &mut SqliteConnection::establish(url).unwrap();
        assert_eq!(combiner.admit(conn), Ok(false), "{url}");
    }
}

//! Every operation under every setting of a session that an application may have. Each is either done, exactly, or refused by
//! an error that gives the reason, and then nothing is changed. The tests print the table that is in the reference page on surroundings.

use diesel::connection::SimpleConnection;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_counts::ShardCount;
use diesel_sharded::{
    Counter, Error, MIGRATIONS, RowCounter, ShardsTable, fold, set_total, update, verify,
};
use diesel_sharded_tests::Server;
use diesel_sharded_tests::own_server::OwnServer;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, comments};

/// A setting: its name in the table, and the SQL that sets it for a session.
type Setting = (&'static str, &'static str);

const MYSQL: &[Setting] = &[
    ("the server's defaults", "DO 0"),
    ("sql_mode = ''", "SET sql_mode = ''"),
    (
        "ANSI_QUOTES",
        "SET sql_mode = 'STRICT_TRANS_TABLES,ANSI_QUOTES'",
    ),
    (
        "PAD_CHAR_TO_FULL_LENGTH",
        "SET sql_mode = 'STRICT_TRANS_TABLES,PAD_CHAR_TO_FULL_LENGTH'",
    ),
    (
        "NO_BACKSLASH_ESCAPES",
        "SET sql_mode = 'STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES'",
    ),
    (
        "PIPES_AS_CONCAT",
        "SET sql_mode = 'STRICT_TRANS_TABLES,PIPES_AS_CONCAT'",
    ),
    ("sql_select_limit = 2", "SET sql_select_limit = 2"),
    ("sql_select_limit = 0", "SET sql_select_limit = 0"),
    ("sql_safe_updates", "SET sql_safe_updates = 1"),
    (
        "binlog_format = STATEMENT",
        "SET binlog_format = 'STATEMENT'",
    ),
    ("binlog_format = MIXED", "SET binlog_format = 'MIXED'"),
    ("max_statement_time = 5", "SET max_statement_time = 5"),
    (
        "READ UNCOMMITTED",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    ),
    (
        "SERIALIZABLE",
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    ),
    (
        "innodb_lock_wait_timeout = 1",
        "SET innodb_lock_wait_timeout = 1",
    ),
    ("READ ONLY by default", "SET SESSION TRANSACTION READ ONLY"),
];

const POSTGRES: &[Setting] = &[
    ("the server's defaults", "SELECT 1"),
    (
        "REPEATABLE READ by default",
        "SET default_transaction_isolation = 'repeatable read'",
    ),
    (
        "SERIALIZABLE by default",
        "SET default_transaction_isolation = 'serializable'",
    ),
    (
        "READ ONLY by default",
        "SET default_transaction_read_only = on",
    ),
    ("statement_timeout = 5 s", "SET statement_timeout = '5s'"),
    ("lock_timeout = 1 s", "SET lock_timeout = '1s'"),
    (
        "idle_in_transaction_session_timeout = 5 s",
        "SET idle_in_transaction_session_timeout = '5s'",
    ),
    (
        "standard_conforming_strings = off",
        "SET standard_conforming_strings = off; SET escape_string_warning = off; SET backslash_quote = off",
    ),
    (
        "another schema in search_path",
        "SET search_path = other, public",
    ),
    (
        "plan_cache_mode",
        "SET plan_cache_mode = force_generic_plan",
    ),
    ("synchronous_commit = off", "SET synchronous_commit = off"),
    ("bytea_output = escape", "SET bytea_output = 'escape'"),
];

/// Whether a setting may refuse an operation. Under all other settings the operation must succeed.
fn may_refuse(setting: &str, operation: &str) -> bool {
    match setting {
        "READ ONLY by default" | "binlog_format = STATEMENT" | "sql_safe_updates" => true,
        // It would truncate the application's own recount.
        "sql_select_limit = 2" | "sql_select_limit = 0" => operation == "verify, repair",
        _ => false,
    }
}

/// Bases, totals of the views and the likes, the counter "named", and the number of shards' rows that nobody owns.
type State = (Vec<i64>, Vec<i64>, Vec<i32>, i64);

/// The changes that an operation makes.
#[derive(Clone, Copy)]
struct Effect {
    /// Added to the views of the videos 1 to 3.
    views: [i64; 3],
    likes: [i32; 3],
    named: i64,
    /// The bases are the totals now.
    folded: bool,
}

const NOTHING: Effect = Effect {
    views: [0; 3],
    likes: [0; 3],
    named: 0,
    folded: false,
};

macro_rules! on {
    ($module:ident, $conn:ty, $server:expr, $start:expr, $settings:expr) => {
        mod $module {
            use super::*;

            type Conn = $conn;

            #[derive(Debug)]
            struct Set(&'static str);

            impl CustomizeConnection<Conn, diesel::r2d2::Error> for Set {
                fn on_acquire(&self, conn: &mut Conn) -> Result<(), diesel::r2d2::Error> {
                    conn.batch_execute(self.0)
                        .map_err(diesel::r2d2::Error::QueryError)
                }
            }

            fn state(conn: &mut Conn) -> State {
                (
                    videos.order(id).select(views).load(conn).unwrap(),
                    videos.order(id).select(views.total()).load(conn).unwrap(),
                    videos.order(id).select(likes.total()).load(conn).unwrap(),
                    Counter::named("named").get(conn).unwrap(),
                )
            }

            /// An operation, given a connection that is set up and the database's address.
            type Operation = fn(&mut Conn, &str, &'static str) -> QueryResult<()>;

            fn met(expected: usize, met: usize) {
                assert_eq!(met, expected, "rows");
            }

            const OPERATIONS: &[(&str, Effect, Operation)] = &[
                (
                    "by key",
                    Effect { views: [1, 0, 0], ..NOTHING },
                    |conn, _, _| {
                        let count = update(videos.find(1)).set(views.eq(views + 1));
                        count.execute(conn).map(|rows| met(1, rows))
                    },
                ),
                (
                    "by filter",
                    Effect { views: [0, 1, 1], likes: [0, 2, 2], ..NOTHING },
                    |conn, _, _| {
                        let count = update(videos.filter(channel.eq("news")))
                            .set((views.eq(views + 1), likes.eq(likes + 2)));
                        count.execute(conn).map(|rows| met(2, rows))
                    },
                ),
                (
                    "by no filter",
                    Effect { views: [1, 1, 1], ..NOTHING },
                    |conn, _, _| {
                        let count = update(videos).set(views.eq(views + 1));
                        count.execute(conn).map(|rows| met(3, rows))
                    },
                ),
                (
                    "rows back",
                    Effect { views: [1, 1, 1], ..NOTHING },
                    |conn, _, _| {
                        let count = update(videos.filter(likes.ge(0)))
                            .set(views.eq(views + 1))
                            .returning((id, views));
                        let mut rows: Vec<(i64, i64)> = count.get_results(conn)?;
                        rows.sort();
                        met(3, rows.len());
                        let totals = videos.order(id).select((id, views.total()));
                        // A session's own SELECT may be limited.
                        let totals: Vec<(i64, i64)> = totals.limit(3).load(conn)?;
                        assert_eq!(rows, totals);
                        Ok(())
                    },
                ),
                (
                    "in a transaction",
                    Effect { views: [1, 1, 1], named: 1, ..NOTHING },
                    |conn, _, _| {
                        conn.transaction(|conn| {
                            let one = update(videos.find(1)).set(views.eq(views + 1));
                            met(1, one.execute(conn)?);
                            let others = update(videos.filter(slug.ne("a"))).set(views.eq(views + 1));
                            met(2, others.execute(conn)?);
                            Counter::named("named").increment(conn)
                        })
                    },
                ),
                ("named", Effect { named: 1, ..NOTHING }, |conn, _, _| {
                    Counter::named("named").increment(conn)
                }),
                (
                    "bounded",
                    Effect { likes: [1, 0, 0], ..NOTHING },
                    |conn, _, _| {
                        let stock = RowCounter::of(likes, 1).never_below(0).never_above(1000);
                        assert!(!stock.add(-1000, conn)?);
                        assert!(stock.add(1, conn)?);
                        Ok(())
                    },
                ),
                (
                    "idempotent",
                    Effect { views: [0, 1, 1], ..NOTHING },
                    |conn, _, _| {
                        for _ in 0..2 {
                            let count = update(videos.filter(channel.eq("news")))
                                .set(views.eq(views + 1));
                            let counted = count.idempotency_key("a 'key'").execute(conn)?;
                            met(2, counted);
                        }
                        Ok(())
                    },
                ),
                (
                    "coalesced",
                    Effect { views: [1, 1, 0], named: 1, ..NOTHING },
                    |_, url, set| {
                        let pool = Pool::builder()
                            .max_size(2)
                            .connection_customizer(Box::new(Set(set)))
                            .build(ConnectionManager::<Conn>::new(url))
                            .unwrap();
                        let coalescer = Coalescer::new(pool).map_err(|error| {
                            match error.downcast::<DieselError>() {
                                Ok(error) => *error,
                                Err(error) => match error.downcast::<Error>() {
                                    Ok(error) => (*error).into(),
                                    Err(error) => panic!("{error}"),
                                },
                            }
                        })?;
                        coalescer.add_later(&RowCounter::of(views, 1), 1)?;
                        coalescer.add_later(&RowCounter::of(views, 2), 1)?;
                        coalescer.flush()?;
                        coalescer.add(&Counter::named("named"), 1)?;
                        coalescer.close()?;
                        Ok(())
                    },
                ),
                ("resize", NOTHING, |conn, _, _| {
                    let number = ShardCount::of(views);
                    number.resize(6, conn)?;
                    assert_eq!(number.get(conn)?, 6);
                    number.resize(4, conn)
                }),
                (
                    "fold",
                    Effect { folded: true, ..NOTHING },
                    |conn, _, _| {
                        let folded = fold(videos).keep_shards(0).run(conn)?;
                        assert!(folded.finished && folded.unfit.is_empty() && folded.busy.is_empty());
                        met(3, folded.parents as usize);
                        Ok(())
                    },
                ),
                (
                    "set",
                    Effect { views: [-1000, -1000, -1000], ..NOTHING },
                    |conn, _, _| {
                        // Back to its former value, less 1000, which the test below knows.
                        set_total(videos, views, 5).execute(conn).map(|rows| met(3, rows))
                    },
                ),
                (
                    "verify, repair",
                    Effect { likes: [-1000, -1000, -1000], ..NOTHING },
                    |conn, _, _| {
                        let recount = || {
                            comments::table
                                .group_by(comments::video_id)
                                .select((comments::video_id, count_star()))
                        };
                        let drifts = verify(videos, likes, recount()).drifts(conn)?;
                        met(3, drifts.len());
                        let repaired = verify(videos, likes, recount()).repair(conn)?;
                        met(3, repaired.len());
                        Ok(())
                    },
                ),
                (
                    "drop",
                    Effect { folded: true, ..NOTHING },
                    |conn, _, _| {
                        ShardsTable::of(schema::videos::table).drop(conn)
                    },
                ),
            ];

            #[test]
            fn every_operation_is_done_or_refused_under_every_setting() {
                let server = $start;
                let mut root = Conn::establish(&format!("{}/{}", server.address(), $server)).unwrap();
                let mut table = String::from("| setting |");
                for (operation, _, _) in OPERATIONS {
                    table.push_str(&format!(" {operation} |"));
                }
                table.push_str(&format!("\n|{}\n", "---|".repeat(OPERATIONS.len() + 1)));
                let mut all_wrong = vec![];
                for (number, (setting, set)) in $settings.iter().enumerate() {
                    root.batch_execute(&format!("CREATE DATABASE modes_{number}")).unwrap();
                    let url = format!("{}/modes_{number}", server.address());
                    let observer = &mut Conn::establish(&url).unwrap();
                    schema::create(observer);
                    observer.run_pending_migrations(MIGRATIONS).unwrap();
                    table.push_str(&format!("| {setting} |"));
                    for (operation, effect, carry_out) in OPERATIONS {
                        // Some counts are on shards, whatever ran before.
                        update(videos).set((views.eq(views + 7), likes.eq(likes + 3))).execute(observer).unwrap();
                        let before = state(observer);
                        let mut wrong = vec![];
                        let conn = &mut Conn::establish(&url).unwrap();
                        conn.batch_execute(set).unwrap();
                        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                            carry_out(conn, &url, set)
                        }));
                        // The application has to commit the work that autocommit = 0 leaves open.
                        let _ = conn.batch_execute("COMMIT");
                        let cell = match done {
                            Ok(Ok(())) => {
                                let after = if *operation == "drop" {
                                    let bases: Vec<i64> = videos.order(id).select(views).load(observer).unwrap();
                                    let liked: Vec<i32> = videos.order(id).select(likes).load(observer).unwrap();
                                    (bases.clone(), bases, liked, before.3)
                                } else {
                                    state(observer)
                                };
                                if is_as(&before, &after, effect) {
                                    "yes".to_owned()
                                } else {
                                    wrong.push(format!("{setting}, {operation}: {before:?} became {after:?}"));
                                    "WRONG".to_owned()
                                }
                            }
                            Ok(Err(error)) => {
                                let error = Error::from(error);
                                let after = state(observer);
                                if after != before {
                                    wrong.push(format!("{setting}, {operation}: {error}, and {before:?} became {after:?}"));
                                }
                                match name_of(&error).filter(|_| may_refuse(setting, operation)) {
                                    Some(name) => name.to_owned(),
                                    None => {
                                        wrong.push(format!("{setting}, {operation}: {error:?}"));
                                        "untyped".to_owned()
                                    }
                                }
                            }
                            Err(panic) => {
                                let text = panic.downcast_ref::<String>().cloned();
                                wrong.push(format!("{setting}, {operation}: {text:?}"));
                                "PANIC".to_owned()
                            }
                        };
                        all_wrong.append(&mut wrong);
                        table.push_str(&format!(" {cell} |"));
                    }
                    table.push('\n');
                }
                println!("{table}");
                assert!(all_wrong.is_empty(), "{table}\n{}", all_wrong.join("\n"));
            }
        }
    };
}

/// Whether the second state is the first one after that effect.
fn is_as(before: &State, after: &State, effect: &Effect) -> bool {
    let added = |i: usize| match effect.views[i] {
        -1000 => 5,
        n => before.1[i] + n,
    };
    let liked = |i: usize| match effect.likes[i] {
        -1000 => [0, 0, 2][i],
        n => before.2[i] + n,
    };
    (0..3).all(|i| after.1[i] == added(i) && after.2[i] == liked(i))
        && after.3 == before.3 + effect.named
        && (!effect.folded || after.0 == after.1)
}

/// The error's name in the table, if its message says how to fix it.
fn name_of(error: &Error) -> Option<&'static str> {
    match error {
        Error::Diesel(DieselError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _)) => {
            Some("`ReadOnlyTransaction`")
        }
        // From Diesel's `batch_execute`, which gives errors no kind.
        Error::Diesel(DieselError::DatabaseError(_, told))
            if told.message().contains("READ ONLY transaction") =>
        {
            Some("`ReadOnlyTransaction`")
        }
        Error::NodeNotReady { .. } => Some("`NodeNotReady`"),
        Error::RefusedBySetting { .. } => Some("`RefusedBySetting`"),
        // The coalescer keeps retrying, and reports why it has not succeeded yet.
        Error::FlushPending { reason, .. } if reason.contains("refuses") => Some("`FlushPending`"),
        _ => None,
    }
}

on!(
    mysql,
    MysqlConnection,
    "mysql",
    OwnServer::start_with(Server::Mysql, "--log-bin=binlog").expect("a server"),
    MYSQL
);
on!(
    postgres,
    PgConnection,
    "postgres",
    OwnServer::start_with(Server::Postgres, "fsync=off").expect("a server"),
    POSTGRES
);

//! The cases of `cases/`, and those of PostgreSQL alone.

#[path = "blocking/mod.rs"]
mod blocking;
#[path = "cases/mod.rs"]
mod cases;
#[path = "hostile/mod.rs"]
mod hostile;
#[path = "servers/mod.rs"]
mod servers;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{ShardsTable, Unfit, fold, update};
use diesel_sharded_tests::schema::WholeVideo;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, insert, number, pool, until};

/// The crate that the cases test.
use diesel_sharded as api;

use self::cases::count;

type Conn = PgConnection;

servers::server_tests!(postgres);

#[test]
fn the_server_really_speaks_german() {
    let (_database, mut conn) = servers::database();
    conn.batch_execute("SET lc_messages = 'de_DE.UTF-8'")
        .unwrap();
    let error = conn.batch_execute("SELECT 1/0").unwrap_err();
    assert_eq!(error.to_string(), "Division durch Null");
}

/// The first use of a row by many transactions that cannot see each other's.
#[test]
fn rows_are_inserted_by_racing_snapshots() {
    use diesel_sharded::Counter;
    let (database, mut conn) = servers::database();
    conn.run_pending_migrations(diesel_sharded::MIGRATIONS)
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let conn = &mut Conn::connect(&database);
                let counted: QueryResult<()> = Transaction::new()
                    .isolation(Isolation::Serializable)
                    .run(conn, |conn| Counter::named("x").increment(conn));
                assert_eq!(counted, Ok(()));
            });
        }
    });
    assert_eq!(Counter::named("x").get(&mut conn), Ok(16));
}

/// Two keys that the database takes for one, in one batch: on a shard that is missing, and on one that is there.
#[test]
fn a_coalescer_adds_to_one_row_under_two_keys() {
    use diesel_sharded::RowCounter;
    use diesel_sharded::coalescer::Coalescer;
    use diesel_sharded_tests::schema::watchlists::dsl::{entries, name, watchlists};
    let (database, mut conn) = servers::database();
    conn.run_pending_migrations(diesel_sharded::MIGRATIONS)
        .unwrap();
    let shards = r#""watch ""list"" shards""#;
    let lists = r#""Watch ""lists""""#;
    conn.batch_execute(&format!(
        "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false); \
         ALTER TABLE {shards} DROP CONSTRAINT IF EXISTS \"watch \"\"list\"\" shards_name_fkey\"; \
         ALTER TABLE {lists} ALTER name TYPE VARCHAR(100) COLLATE any_case; \
         ALTER TABLE {shards} ALTER name TYPE VARCHAR(100) COLLATE any_case"
    ))
    .unwrap();
    insert!(watchlists, (name.eq("Home"), entries.eq(0)), &mut conn);
    let coalescer = Coalescer::new(pool::<Conn>(database.url())).unwrap();
    for _ in 0..3 {
        for (key, n) in [("HOME", 2), ("home", 3), ("away", 5)] {
            coalescer
                .add_later(&RowCounter::of(entries, key.to_owned()), n)
                .unwrap();
        }
        coalescer.flush().unwrap();
    }
    let total = watchlists.select(entries.total()).load(&mut conn);
    assert_eq!(total, Ok(vec![15]));
}

/// A fold of one row waits for a lock that is released soon, and changes the session's own bound for nobody else.
#[test]
fn a_fold_waits_shortly_for_one_row() {
    let (database, mut conn) = servers::database();
    assert_eq!(count!(videos.find(1), views.eq(views + 1), &mut conn), 1);
    let bound = |conn: &mut Conn| {
        let bound = diesel::select(sql::<Text>("current_setting('lock_timeout')"));
        bound.get_result::<String>(conn).unwrap()
    };
    conn.batch_execute("SET lock_timeout = '7s'").unwrap();
    std::thread::scope(|scope| {
        let mut holder = Conn::connect(&database);
        servers::lock_shard_0(&mut holder);
        let mut watcher = Conn::connect(&database);
        scope.spawn(move || {
            let waits = "SELECT COUNT(*) FROM pg_stat_activity \
                WHERE wait_event_type = 'Lock' AND datname = current_database()";
            until("it waits", || {
                sql::<BigInt>(waits).get_result(&mut watcher) != Ok(0_i64)
            });
            holder.batch_execute("ROLLBACK").unwrap();
        });
        let once = RetryPolicy::never();
        let folded = fold(videos.find(1)).retry(once).run(&mut conn).unwrap();
        assert_eq!((folded.parents, folded.busy), (1, vec![]));
    });
    assert_eq!(bound(&mut conn), "7s");
    let inside: QueryResult<String> = conn.transaction(|conn| {
        count(1, 1, conn)?;
        assert_eq!(fold(videos.find(1)).run(conn)?.parents, 1);
        Ok(bound(conn))
    });
    assert_eq!(inside, Ok("7s".to_owned()));
}

/// A base of a smaller scale than its shards would round counts away.
#[test]
fn what_a_base_would_round_is_not_folded() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let (_database, mut conn) = servers::database();
    let tiny: bigdecimal::BigDecimal = "0.0000004".parse().unwrap();
    count!(measures, exact.eq(exact + &tiny), &mut conn);
    // In a sum over the whole batch, this row would cancel out the other one.
    diesel::insert_into(measures)
        .values(id.eq(2))
        .execute(&mut conn)
        .unwrap();
    count!(measures.find(2), exact.eq(exact - &tiny), &mut conn);
    let folded = fold(measures).run(&mut conn).unwrap();
    let unfit = folded.unfit.iter().map(|(key, _)| *key);
    assert_eq!((folded.parents, unfit.collect()), (0, vec![1, 2]));
    let rounded = Unfit::NotWritten {
        field: "exact".into(),
    };
    assert!(folded.unfit.iter().all(|(_, reason)| *reason == rounded));
    let totals = measures.select(exact.total()).order(id);
    assert_eq!(totals.load(&mut conn), Ok(vec![tiny.clone(), -tiny]));
}

/// The statements of this database that the server has seen, without those of this test itself.
fn statements(conn: &mut Conn) -> Vec<(String, i64)> {
    diesel::select(sql::<(Text, BigInt)>(
        "query, calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
         WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_%' ORDER BY query",
    ))
    .load(conn)
    .unwrap()
}

#[test]
fn a_count_by_key_is_one_statement_and_never_touches_the_parent() {
    let (database, mut conn) = servers::database();
    conn.batch_execute("CREATE EXTENSION pg_stat_statements; SELECT pg_stat_statements_reset()")
        .unwrap();
    let touched = "SELECT (COALESCE(seq_scan, 0) + COALESCE(idx_scan, 0) + n_tup_upd)::bigint AS touched \
                   FROM pg_stat_user_tables WHERE relname = 'videos'";
    let touches = |conn: &mut Conn| {
        conn.batch_execute("SELECT pg_stat_clear_snapshot()")
            .unwrap();
        number!(&format!("touched FROM ({touched}) AS t"), conn)
    };
    // Statistics are sent when a connection ends.
    drop(conn);
    let mut watching = Conn::connect(&database);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = touches(&mut watching);
    let mut conn = Conn::connect(&database);
    for _ in 0..50 {
        update(videos.find(1))
            .set(views.eq(views + 1))
            .shard_choice(ShardChoice::Random) // asks nobody
            .execute(&mut conn)
            .unwrap();
    }
    drop(conn);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let expected = r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1) WHERE ("videos"."id" = $2) AND "videos"."shard" = $3 AND CAST(CASE WHEN $4 = decode($5, $6) THEN $7 ELSE $8 END AS BOOLEAN)"#;
    let counts: Vec<_> = statements(&mut watching)
        .into_iter()
        .filter(|(query, _)| query.contains("videos"))
        .collect();
    assert_eq!(counts, [(expected.to_owned(), 50)]);
    assert_eq!(touches(&mut watching), before);
}

/// The first attempt reads its rows and fails at COMMIT; by the second one the video is gone.
#[test]
fn rows_of_an_attempt_that_was_taken_back_are_not_given_out() {
    let (database, mut conn) = servers::database();
    conn.batch_execute(
        "CREATE SEQUENCE commits;
         CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('commits') = 1 THEN RAISE SQLSTATE '40001'; END IF; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER fail_once AFTER UPDATE ON videos_shards DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION fail_once()",
    )
    .unwrap();
    for by_key in [true, false] {
        let url = database.url().to_owned();
        conn.batch_execute("ALTER SEQUENCE commits RESTART")
            .unwrap();
        let key = if by_key { 1 } else { 2 };
        let policy = RetryPolicy::new().with_notify(move |_| {
            let other = &mut Conn::establish(&url).unwrap();
            diesel::delete(videos.find(key)).execute(other).unwrap();
        });
        let count = |conn: &mut Conn| match by_key {
            true => update(videos.find(key))
                .set(views.eq(views + 1))
                .retry(policy)
                .get_results::<WholeVideo>(conn),
            false => update(videos.filter(slug.eq("b")))
                .set(views.eq(views + 1))
                .retry(policy)
                .get_results(conn),
        };
        assert_eq!(count(&mut conn), Ok(vec![]));
    }
}

mod uuid_key {
    use super::*;

    diesel_sharded_tests::counted_table! {
        Page of pages (id) {
            id -> Uuid = uuid::Uuid,
            #[sharded] hits -> BigInt = i64,
        }
    }

    #[test]
    fn counts() {
        use self::pages::dsl::*;
        let database = Conn::database();
        let conn = &mut Conn::connect(&database);
        conn.batch_execute("CREATE TABLE pages (id UUID PRIMARY KEY, hits BIGINT NOT NULL)")
            .unwrap();
        ShardsTable::of(pages).create(conn).unwrap();
        let key = uuid::Uuid::new_v4();
        insert!(pages, (id.eq(key), hits.eq(0)), conn);
        assert_eq!(count!(pages.find(key), hits.eq(hits + 1), conn), 1);
        let rows = pages.find(uuid::Uuid::nil());
        assert_eq!(count!(rows, hits.eq(hits + 1), conn), 0);
        let counted = update(pages.filter(hits.total().ge(1)))
            .set(hits.eq(hits + 1))
            .returning((id, hits));
        assert_eq!(counted.get_results(conn), Ok(vec![(key, 2_i64)]));
    }
}

//! The cases of `cases/`, and those of PostgreSQL alone.

#[path = "blocking/mod.rs"]
mod blocking;
#[path = "cases/mod.rs"]
mod cases;
#[path = "hostile/mod.rs"]
mod hostile;
#[path = "servers/mod.rs"]
mod servers;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::combine::Combiner;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{
    Counter, CounterCache, Error, RowCounter, ShardsTable, Unfit, fold, retry, set_total, update,
};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::proxy::Proxy;
use diesel_sharded_tests::role::Role;
use diesel_sharded_tests::schema::comments;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{assert_matches, edit, insert, number, pool, sent, texts, until};

/// The crate that the cases test.
use diesel_sharded as api;

use self::cases::{count, on_threads, total_of};

type Conn = PgConnection;

#[test]
fn the_server_really_speaks_german() {
    let [conn] = &mut *servers::database();
    conn.run("SET lc_messages = 'de_DE.UTF-8'");
    let error = conn.batch_execute("SELECT 1/0").unwrap_err();
    assert_eq!(error.to_string(), "Division durch Null");
}

/// As after a change of the parent's alone, which PostgreSQL lets the foreign key follow.
#[test]
fn a_key_that_is_narrower_than_its_parents_is_named() {
    let [conn, fresh] = &mut *Fixture::<Conn, _>::with_tables();
    conn.run("ALTER TABLE videos_shards ALTER COLUMN id TYPE INTEGER");
    let row = (id.eq(3_000_000_000), slug.eq("z"), title.eq("Z"));
    insert!(videos, row, conn);
    assert_eq!(count(1, 1, conn), Ok(1));
    let inside = conn.transaction(|conn| count(3_000_000_000, 1, conn));
    let added = RowCounter::of(views, 3_000_000_000).add(1, conn);
    for error in [
        count(3_000_000_000, 1, conn).unwrap_err(),
        inside.unwrap_err(),
        added.unwrap_err(),
        fold(videos).run(conn).unwrap_err(),
    ] {
        let error = Error::from(error);
        assert_matches!(&error, Error::NarrowKey { table, column, .. } if table == "videos_shards" && column == "id");
        let says = error.to_string();
        assert!(
            says.contains("the key column `id` of `videos_shards`"),
            "{says}"
        );
    }
    conn.run("ALTER TABLE videos_shards ALTER COLUMN id TYPE BIGINT");
    assert_eq!(count(3_000_000_000, 1, fresh), Ok(1));
    assert_eq!(fold(videos).run(fresh).unwrap().parents, 2);
}

mod reactions {
    /// An enum of the database.
    #[derive(diesel::sql_types::SqlType, diesel::query_builder::QueryId)]
    #[diesel(postgres_type(name = "mood"))]
    pub struct MoodType;

    #[derive(
        Debug,
        Clone,
        Copy,
        PartialEq,
        Eq,
        PartialOrd,
        Ord,
        Hash,
        diesel::expression::AsExpression,
        diesel::deserialize::FromSqlRow,
    )]
    #[diesel(sql_type = MoodType)]
    pub enum Mood {
        Sad,
        Happy,
    }

    impl diesel::serialize::ToSql<MoodType, diesel::pg::Pg> for Mood {
        fn to_sql<'b>(
            &'b self,
            out: &mut diesel::serialize::Output<'b, '_, diesel::pg::Pg>,
        ) -> diesel::serialize::Result {
            let text = match self {
                Mood::Sad => "sad",
                Mood::Happy => "happy",
            };
            std::io::Write::write_all(out, text.as_bytes())?;
            Ok(diesel::serialize::IsNull::No)
        }
    }

    impl diesel::deserialize::FromSql<MoodType, diesel::pg::Pg> for Mood {
        fn from_sql(bytes: diesel::pg::PgValue<'_>) -> diesel::deserialize::Result<Self> {
            Ok(match bytes.as_bytes() {
                b"sad" => Mood::Sad,
                _ => Mood::Happy,
            })
        }
    }

    diesel::table! {
        use diesel::sql_types::*;
        use super::MoodType;

        reactions (day, mood) {
            day -> Timestamptz,
            mood -> MoodType,
            number -> BigInt,
        }
    }

    #[derive(diesel_sharded::ShardedField)]
    #[diesel(primary_key(day, mood))]
    #[expect(dead_code, reason = "the derive reads the fields' types")]
    struct Reaction {
        day: chrono::DateTime<chrono::Utc>,
        #[sharded(sql_type = "mood")]
        mood: Mood,
        #[sharded]
        number: i64,
    }
}

/// The key has the partitions' time, and an enum of the database, which sorts otherwise than its texts do.
#[test]
fn a_parent_with_partitions_by_time_and_an_enum() {
    use self::reactions::{Mood, reactions::dsl::*};
    let [conn] = &mut *Fixture::<Conn, _>::empty();
    conn.run(
        "CREATE TYPE mood AS ENUM ('sad', 'happy');
         CREATE TABLE reactions (day TIMESTAMPTZ, mood mood, number BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (day, mood)) PARTITION BY RANGE (day);
         CREATE TABLE reactions_1 PARTITION OF reactions FOR VALUES FROM ('2026-01-01Z') TO ('2026-02-01Z');
         CREATE TABLE reactions_2 PARTITION OF reactions FOR VALUES FROM ('2026-02-01Z') TO ('2026-03-01Z')",
    );
    ShardsTable::of(reactions).create(conn).unwrap();
    let days = ["2026-01-31T23:59:59.999999Z", "2026-02-01T00:00:00Z"];
    for at in days.map(|text| text.parse::<chrono::DateTime<chrono::Utc>>().unwrap()) {
        for (of, n) in [(Mood::Happy, 1), (Mood::Sad, 2)] {
            insert!(reactions, (day.eq(at), mood.eq(of)), conn);
            let count = update(reactions.find((at, of))).set(number.eq(number + n));
            assert_eq!(count.execute(conn), Ok(1));
            let many = diesel_sharded::count_many(number, [((at, of), 10)]);
            assert_eq!(many.run(conn).unwrap().rows, 1);
        }
    }
    let happy = update(reactions.filter(mood.eq(Mood::Happy))).set(number.eq(number + 100));
    let counted = happy.returning(number).get_results::<i64>(conn).unwrap();
    assert_eq!(counted, [111, 111]);
    let folded = fold(reactions).batch(1).keep_shards(0).run(conn).unwrap();
    assert_eq!((folded.parents, folded.unfit.len()), (4, 0));
    let recount = reactions.select(((day, mood), number + 1));
    let drifts = diesel_sharded::verify(reactions, number, recount)
        .drifts(conn)
        .unwrap();
    assert_eq!(drifts.len(), 4);
    let bases = reactions
        .select(number)
        .order((day, mood))
        .load::<i64>(conn);
    assert_eq!(bases, Ok(vec![12, 111, 12, 111]));
    // A partition that goes takes its rows' shards along.
    let count = update(reactions).set(number.eq(number + 1));
    assert_eq!(count.execute(conn), Ok(4));
    conn.run("DELETE FROM reactions_1; ALTER TABLE reactions DETACH PARTITION reactions_1");
    assert_eq!(number!("COUNT(*) FROM reactions_shards", conn), 2);
    ShardsTable::of(reactions).drop(conn).unwrap();
    assert_eq!(number!("SUM(number)::bigint FROM reactions", conn), 125);
}

/// The part of a view that keeps writes away costs its readers nothing: the plans are those of a plain view.
#[test]
fn a_view_of_totals_is_planned_as_a_plain_one() {
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    let view = ShardsTable::of(videos).view("totals");
    view.create(conn).unwrap();
    let sql = view.create_sql(&diesel::pg::Pg).unwrap();
    let (head, _) = sql.split_once("\nFROM ").unwrap();
    conn.run(&format!(
        "{} FROM videos",
        head.replace("\"totals\"", "plain")
    ));
    conn.run("INSERT INTO videos (id, slug, title) SELECT i, i, i FROM generate_series(4, 20000) i; ANALYZE videos");
    let writable = |view: &str, conn: &mut Conn| {
        let is_updatable = format!(
            "COUNT(*) FROM information_schema.views WHERE table_name = '{view}' AND (is_updatable || is_insertable_into) LIKE '%YES%'"
        );
        number!(&is_updatable, conn)
    };
    assert_eq!([writable("plain", conn), writable("totals", conn)], [1, 0]);
    #[derive(Debug, PartialEq, QueryableByName)]
    struct Plan {
        #[diesel(sql_type = diesel::sql_types::Text, column_name = "QUERY PLAN")]
        line: String,
    }
    for query in [
        "SELECT * FROM view WHERE id = 7",
        "SELECT * FROM comments c JOIN view v ON v.id = c.video_id WHERE c.id < 10",
        "SELECT c.id, v.views FROM comments c LEFT JOIN view v ON v.id = c.video_id",
        "SELECT * FROM view ORDER BY id LIMIT 5",
        "SELECT id, title FROM view ORDER BY slug LIMIT 5",
        "SELECT COUNT(*) FROM view",
    ] {
        let plan = |view: &str, conn: &mut Conn| {
            let query = format!("EXPLAIN {query} ").replace("view ", &format!("{view} "));
            let plan: Vec<Plan> = diesel::sql_query(query).load(conn).unwrap();
            plan
        };
        assert_eq!(plan("totals", conn), plan("plain", conn), "{query}");
    }
}

#[test]
fn a_fold_reads_doubles_whole_in_a_session_that_shows_few_digits() {
    use diesel_sharded_tests::schema::measures::{real, table as measures};
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    conn.run("SET extra_float_digits = -3");
    let third = 1.0 / 3.0;
    edit!(measures, real.eq(third), conn);
    for (n, sum) in [(third, third + third), (0.1, third + third + 0.1)] {
        let counted = update(measures).set(real.eq(real + n)).execute(conn);
        let folded = fold(measures).run(conn).unwrap();
        assert_eq!((counted, folded.parents, folded.unfit), (Ok(1), 1, vec![]));
        assert_eq!(measures.select(real).first(conn), Ok(sum));
    }
}

/// Which has tables of the same names, and keeps their shards by triggers.
#[test]
fn a_drop_leaves_the_triggers_of_another_schema() {
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    let shards_table = ShardsTable::of(videos);
    shards_table.drop(conn).unwrap();
    shards_table.without_foreign_key().create(conn).unwrap();
    assert_eq!(count(1, 1, conn), Ok(1));
    // A shard of somebody else's may be younger than the snapshot.
    let rename = "BEGIN ISOLATION LEVEL REPEATABLE READ; UPDATE videos SET id = 70 WHERE id = 1";
    let refused = conn.batch_execute(rename).unwrap_err().to_string();
    assert!(refused.contains("READ COMMITTED"), "{refused}");
    conn.run("ROLLBACK");
    conn.run("CREATE SCHEMA tenant; CREATE TABLE tenant.videos (LIKE videos INCLUDING ALL); SET search_path = tenant, public");
    let tenants = ShardsTable::of(videos);
    tenants.create(conn).unwrap();
    tenants.drop(conn).unwrap();
    conn.run("SET search_path = public; DELETE FROM videos WHERE id = 1");
    assert_eq!(number!("COUNT(*) FROM videos_shards", conn), 0);
}

/// As rows of the application's that are inserted lock it by their foreign keys, one after another without an end.
#[test]
fn a_row_that_others_refer_to_is_folded() {
    let [conn, other] = &mut *Fixture::<Conn, _>::with_tables();
    assert_eq!(count(1, 5, conn), Ok(1));
    other.run("BEGIN; SELECT 1 FROM videos WHERE id = 1 FOR KEY SHARE");
    other.run("INSERT INTO videos_shards (id, shard, views) VALUES (1, 99, 3)");
    let folded = fold(videos).run(conn).unwrap();
    assert_eq!((folded.parents, folded.busy.len()), (1, 0));
    other.run("COMMIT");
    let total = videos.find(1).select(views.total()).first(conn);
    assert_eq!(total, Ok(108_i64));
}

/// Row 3 is locked, so rows are folded one by one; the update of row 2 fails as on a standby.
#[test]
fn rows_are_reported_before_an_error_ends_the_fold() {
    let [conn, other] = &mut *Fixture::<Conn, _>::with_tables();
    for video in 1..=3 {
        assert_eq!(count(video, 5, conn), Ok(1));
    }
    conn.run(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '25006'; END $$;
         CREATE TRIGGER fail BEFORE UPDATE ON videos FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION fail()",
    );
    other.run("BEGIN; SELECT 1 FROM videos WHERE id = 3 FOR UPDATE");
    let reported = Arc::new(Mutex::new(vec![]));
    let reports = Arc::clone(&reported);
    let fold = fold(videos).on_folded(views, move |rows: &[(i64, i64)]| {
        reports.lock().unwrap().extend(rows.iter().copied());
    });
    let failed = Error::from(fold.run(conn).unwrap_err());
    assert_matches!(failed, Error::NodeNotReady { .. });
    assert_eq!(*reported.lock().unwrap(), [(1, 105)]);
}

/// While this has moved values of video 1 and its transaction is open.
fn no_shard_is_created_beside(moves: impl FnOnce(&mut Conn)) {
    let [conn, other] = &mut *Fixture::<Conn, _>::with_tables();
    assert_eq!(count(1, 5, conn), Ok(1));
    let create = "SET lock_timeout = '100ms'; INSERT INTO videos_shards (id, shard, views) VALUES (1, 99, 3)";
    let moved: QueryResult<()> = conn.transaction(|conn| {
        moves(conn);
        let refused = other.batch_execute(create).unwrap_err().to_string();
        assert!(refused.contains("lock timeout"), "{refused}");
        Ok(())
    });
    assert_eq!(moved, Ok(()));
}

/// An increment on it would be seen before the set is committed, and survive it.
#[test]
fn no_shard_is_created_beside_a_set() {
    no_shard_is_created_beside(|conn| {
        assert_eq!(set_total(videos.find(1), views, 7).execute(conn), Ok(1));
    });
}

/// It would hold the greatest value that the fold and a correction behind it took away.
#[test]
fn no_shard_is_created_beside_a_fold_in_a_transaction() {
    no_shard_is_created_beside(|conn| {
        let folded = fold(videos.find(1)).run(conn).unwrap();
        assert_eq!(folded.unfit.len(), 0);
    });
}

/// Both have inserted a row that refers to the same one, as bookings do, and count then.
#[test]
fn bookings_take_seats_one_after_the_other() {
    let [one, other] = &mut *Fixture::<Conn, _>::with_tables();
    let refer = "SELECT 1 FROM videos WHERE id = 1 FOR KEY SHARE";
    let take = |conn: &mut Conn| RowCounter::of(views, 1).never_below(0).add(-60, conn);
    std::thread::scope(|scope| {
        let (booked, waits) = std::sync::mpsc::channel();
        let second = scope.spawn(move || {
            other.transaction(|conn| {
                conn.run(refer);
                booked.send(()).unwrap();
                take(conn)
            })
        });
        let first = one.transaction(|conn| {
            conn.run(refer);
            waits.recv().unwrap();
            take(conn)
        });
        let mut taken = [first.unwrap(), second.join().unwrap().unwrap()];
        taken.sort();
        assert_eq!(taken, [false, true]);
    });
}

/// Far from the bound and at it: each transaction holds a shard of its own when it takes a seat, and waits for nobody who waits for it.
#[test]
fn a_seat_is_taken_behind_another_count_of_the_same_row() {
    for (room, first) in [
        (100, "a count"),
        (100_000, "a count"),
        (100, "a cached row"),
        (100_000, "a cached row"),
    ] {
        let own = &mut Fixture::<Conn, 1>::with_tables();
        let (database, [conn]) = own.parts();
        CounterCache::of(views)
            .counts(comments::video_id)
            .create(conn)
            .unwrap();
        conn.run(&format!("UPDATE videos SET likes = {room} WHERE id = 1"));
        let [tries, sold] = [const { AtomicI64::new(0) }; 2];
        on_threads(24, database, |_, conn| {
            for _ in 0..8 {
                let booked = retry::transaction(conn, RetryPolicy::default(), |conn| {
                    let comment = (
                        comments::id.eq(100 + tries.fetch_add(1, Ordering::Relaxed)),
                        comments::video_id.eq(1),
                    );
                    match first {
                        "a count" => assert_eq!(count(1, 1, conn)?, 1),
                        _ => assert_eq!(insert!(comments::table, comment, conn), 1),
                    }
                    RowCounter::of(likes, 1).never_below(0).add(-1, conn)
                });
                sold.fetch_add(booked.unwrap().into(), Ordering::Relaxed);
            }
        });
        let left: i32 = videos.find(1).select(likes.total()).first(conn).unwrap();
        assert_eq!(i64::from(left), (room - 192).max(0));
        assert_eq!(sold.into_inner(), room.min(192));
        // Few are tried again, as after a shard that appeared.
        let tries = tries.into_inner();
        assert!(tries < 200, "{tries} of 192: {room}, {first}");
    }
}

/// It would be taken for the base's, and be lost.
#[test]
fn a_shard_that_appears_beside_a_bounded_count_is_kept() {
    let [conn, other, watcher] = &mut *Fixture::<Conn, _>::with_tables();
    conn.run(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END';
        CREATE TRIGGER slow BEFORE UPDATE ON videos_shards FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    );
    let seats = || RowCounter::of(views, 1).never_below(0);
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| seats().add(-60, conn));
        let sleeps = "COUNT(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database() \
            AND query LIKE '%THEN 0 WHEN%'";
        until("it hands out", || number!(sleeps, watcher) > 0);
        other.run("INSERT INTO videos_shards (id, shard, views) VALUES (1, 99, 50)");
        assert_eq!(taken.join().unwrap(), Ok(true));
    });
    let total = videos.find(1).select(views.total()).first(watcher);
    assert_eq!(total, Ok(100 - 60 + 50_i64));
}

/// Each fold removes the shards, and each increment creates one, also while a fold is under way.
#[test]
fn shards_that_appear_during_a_fold_are_left_to_the_next() {
    let own = &mut Fixture::<Conn, 1>::with_tables();
    let (database, [conn]) = own.parts();
    on_threads(8, database, |number, conn| {
        for _ in 0..200 {
            match number {
                0 | 1 => {
                    let folded = fold(videos).keep_shards(0).run(conn).unwrap();
                    assert!(folded.unfit.is_empty(), "{:?}", folded.unfit);
                }
                _ => {
                    let count = update(videos.find(1)).set(views.eq(views + 1));
                    let count = count.shard_choice(ShardChoice::Random);
                    assert_eq!(count.execute(conn), Ok(1));
                }
            }
        }
    });
    let total = videos.find(1).select(views.total()).first(conn);
    assert_eq!(total, Ok(100 + 6 * 200_i64));
}

/// The first use of a row by many transactions that cannot see each other's.
#[test]
fn rows_are_inserted_by_racing_snapshots() {
    let conns = &mut *Fixture::<Conn, 16>::with_counters();
    std::thread::scope(|scope| {
        for conn in conns.iter_mut() {
            scope.spawn(move || {
                let transaction = Transaction::new().isolation(Isolation::Serializable);
                let counted: QueryResult<()> =
                    transaction.run(conn, |conn| Counter::named("x").increment(conn));
                assert_eq!(counted, Ok(()));
            });
        }
    });
    assert_eq!(Counter::named("x").get(&mut conns[0]), Ok(16));
}

/// Two keys that the database takes for one, in one batch: on a shard that is missing, and on one that is there.
#[test]
fn a_coalescer_adds_to_one_row_under_two_keys() {
    use diesel_sharded::coalescer::Coalescer;
    use diesel_sharded_tests::schema::watchlists::dsl::{entries, name, watchlists};
    let own = &mut Fixture::<Conn, _>::with_counters();
    let (database, [conn]) = own.parts();
    let shards = r#""watch ""list`s""' \ shards""#;
    let lists = r#""Watch ""li`sts""' \ -- $1 ?""#;
    conn.run(&format!(
        "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false); \
         ALTER TABLE {shards} DROP CONSTRAINT IF EXISTS \"watch \"\"list`s\"\"' \\ shards_name_fkey\"; \
         ALTER TABLE {lists} ALTER name TYPE VARCHAR(100) COLLATE any_case; \
         ALTER TABLE {shards} ALTER name TYPE VARCHAR(100) COLLATE any_case"
    ));
    insert!(watchlists, (name.eq("Home"), entries.eq(0)), conn);
    let coalescer = Coalescer::new(pool::<Conn>(database.url())).unwrap();
    for _ in 0..3 {
        for (key, n) in [("HOME", 2), ("home", 3), ("away", 5)] {
            coalescer
                .add_later(&RowCounter::of(entries, key.to_owned()), n)
                .unwrap();
        }
        coalescer.flush().unwrap();
    }
    let total = watchlists.select(entries.total()).load(conn);
    assert_eq!(total, Ok(vec![15]));
}

/// A fold of one row waits for a lock that is released soon, and changes the session's own bound for nobody else.
#[test]
fn a_fold_waits_shortly_for_one_row() {
    let [conn, holder, watcher] = &mut *servers::database();
    assert_eq!(count!(videos.find(1), views.eq(views + 1), conn), 1);
    let bound = |conn: &mut Conn| texts!("current_setting('lock_timeout')", conn);
    conn.run("SET lock_timeout = '7s'");
    std::thread::scope(|scope| {
        servers::lock_shard_0(holder);
        scope.spawn(|| {
            let waits = "COUNT(*) FROM pg_stat_activity \
                WHERE wait_event_type = 'Lock' AND datname = current_database()";
            until("it waits", || number!(waits, watcher) > 0);
            holder.run("ROLLBACK");
        });
        let once = RetryPolicy::never();
        let folded = fold(videos.find(1)).retry(once).run(conn).unwrap();
        assert_eq!((folded.parents, folded.busy), (1, vec![]));
    });
    assert_eq!(bound(conn), ["7s"]);
    let inside: QueryResult<Vec<String>> = conn.transaction(|conn| {
        count(1, 1, conn)?;
        assert_eq!(fold(videos.find(1)).run(conn)?.parents, 1);
        Ok(bound(conn))
    });
    assert_eq!(inside, Ok(vec!["7s".to_owned()]));
}

/// The server logs each statement that fails, and a background fold runs all day.
#[test]
fn a_fold_does_not_ask_a_table_that_is_missing() {
    let [conn] = &mut *servers::database();
    let asks_for_numbers = |conn: &mut Conn| {
        assert_eq!(count!(videos.find(1), views.eq(views + 1), conn), 1);
        let (folded, sent) = sent(conn, |conn| fold(videos.find(1)).run(conn).unwrap());
        assert_eq!(folded.parents, 1);
        let reads = |sql: &String| sql.contains(r#"FROM "diesel_sharded_shard_numbers""#);
        sent.iter().any(reads)
    };
    assert!(!asks_for_numbers(conn));
    conn.run_pending_migrations(api::MIGRATIONS).unwrap();
    assert!(asks_for_numbers(conn));
}

/// A base of a smaller scale than its shards would round increments away.
#[test]
fn what_a_base_would_round_is_not_folded() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let [conn] = &mut *servers::database();
    let tiny: bigdecimal::BigDecimal = "0.0000004".parse().unwrap();
    count!(measures, exact.eq(exact + &tiny), conn);
    // In a sum over the whole batch, this row would cancel out the other one.
    insert!(measures, id.eq(2), conn);
    count!(measures.find(2), exact.eq(exact - &tiny), conn);
    let folded = fold(measures).run(conn).unwrap();
    let unfit = folded.unfit.iter().map(|(key, _)| *key);
    assert_eq!((folded.parents, unfit.collect()), (0, vec![1, 2]));
    let field = "exact".into();
    let rounded = Unfit::NotWritten { field };
    assert!(folded.unfit.iter().all(|(_, reason)| *reason == rounded));
    let totals = measures.select(exact.total()).order(id);
    assert_eq!(totals.load(conn), Ok(vec![tiny.clone(), -tiny]));
}

/// The statement is in the unit tests of `query_builder::count`.
#[test]
fn a_count_by_key_does_not_even_read_the_parent() {
    let [conn, holder] = &mut *servers::database();
    holder.run("BEGIN; LOCK TABLE videos IN ACCESS EXCLUSIVE MODE");
    conn.run("SET lock_timeout = '1s'");
    let count = update(videos.find(1)).set(views.eq(views + 1));
    let count = count.shard_choice(ShardChoice::Random); // whose shards are there
    assert_eq!(count.retry(RetryPolicy::never()).execute(conn), Ok(1));
    holder.run("ROLLBACK");
    assert_eq!(servers::total(conn), 101);
}

mod uuid_key {
    use super::*;
    use diesel_sharded::unique::Unique;
    use diesel_sharded_tests::HUNDRED_YEARS;

    diesel_sharded_tests::counted_table! {
        Page of pages (id) {
            id -> Uuid = uuid::Uuid,
            #[sharded] hits -> BigInt = i64,
        }
    }

    #[test]
    fn counts() {
        use self::pages::dsl::*;
        let own = &mut Fixture::<Conn, _>::empty();
        let (database, [conn]) = own.parts();
        conn.run("CREATE TABLE pages (id UUID PRIMARY KEY, hits BIGINT NOT NULL)");
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
        conn.run_pending_migrations(diesel_sharded::MIGRATIONS)
            .unwrap();
        let other = uuid::Uuid::new_v4();
        insert!(pages, (id.eq(other), hits.eq(0)), conn);
        for answer in [Unique::Counted, Unique::Repeat] {
            for page in [key, other] {
                let visit = update(pages.find(page)).set(hits.eq(hits + 1));
                let visit = visit.once_per("ann", HUNDRED_YEARS);
                assert_eq!(visit.count(conn), Ok(answer));
            }
        }
        let combiner = Combiner::new();
        on_threads(16, database, |_, conn| {
            for _ in 0..20 {
                for (page, rows) in [(key, 1), (other, 1), (uuid::Uuid::nil(), 0)] {
                    let count = update(pages.find(page)).set(hits.eq(hits + 1));
                    assert_eq!(count.combine(&combiner).execute(conn), Ok(rows));
                }
            }
        });
        let totals = pages.order(hits.total()).select(hits.total());
        assert_eq!(totals.load::<i64>(conn), Ok(vec![321, 323]));
    }
}

/// Videos 2 and 3 are of the channel that the role owns, video 1 is of none.
const POLICIES: &str = "ALTER TABLE videos ENABLE ROW LEVEL SECURITY;
    CREATE POLICY everybody_reads ON videos FOR SELECT USING (true);
    CREATE POLICY owners_update ON videos FOR UPDATE USING (channel = 'news')";

const POLICIES_OF_SHARDS: &str = "ALTER TABLE videos_shards ENABLE ROW LEVEL SECURITY;
    CREATE POLICY everybody_reads ON videos_shards FOR SELECT USING (true);
    CREATE POLICY owners_insert ON videos_shards FOR INSERT
        WITH CHECK (EXISTS (SELECT 1 FROM videos WHERE videos.id = videos_shards.id AND channel = 'news'));
    CREATE POLICY owners_update ON videos_shards FOR UPDATE
        USING (EXISTS (SELECT 1 FROM videos WHERE videos.id = videos_shards.id AND channel = 'news'))";

/// An increment does not write to the video, so that a policy for updates of videos does not concern it.
#[test]
fn a_policy_of_the_parent_stops_no_count() {
    let own = &mut Fixture::<Conn, _>::with_tables();
    let (database, [conn]) = own.parts();
    conn.run(POLICIES);
    let (_role, mut acting) = Role::acting(&["Counting"], |_| false, database, conn);
    for video in [1, 1, 2] {
        assert_eq!(cases::count(video, 1, &mut acting), Ok(1));
    }
    let totals = [1, 2].map(|video| cases::total_of(video, &mut acting));
    assert_eq!(totals, [102, 201]);
}

/// A policy of the shards table does: an increment that it hides is not acknowledged.
#[test]
fn a_policy_of_the_shards_table_stops_counts() {
    let own = &mut Fixture::<Conn, _>::with_tables();
    let (database, [conn]) = own.parts();
    conn.run(POLICIES);
    conn.run(POLICIES_OF_SHARDS);
    let (_role, mut acting) = Role::acting(&["Counting"], |_| false, database, conn);
    let mut count = |video| cases::count(video, 1, &mut acting);
    assert_eq!([count(2), count(2)], [Ok(1), Ok(1)]);
    let refused = count(1).unwrap_err().to_string(); // no shard is there yet
    assert!(refused.contains("row-level security"), "{refused}");
    assert_eq!(cases::count(1, 1, conn), Ok(1)); // the tables' owner, who is exempt
    let refused = count(1).unwrap_err().to_string(); // it is there, and hidden from updates
    assert!(refused.contains("row-level security"), "{refused}");
    let totals = [1, 2].map(|video| cases::total_of(video, &mut acting));
    assert_eq!(totals, [101, 202]);
}

/// The policies that the guide writes; the role sees video 2.
pub const POLICIES_OF_COUNTS: &str = "ALTER TABLE videos ENABLE ROW LEVEL SECURITY; CREATE POLICY two ON videos USING (id = 2);
    ALTER TABLE videos_shards ENABLE ROW LEVEL SECURITY;
    CREATE POLICY whole ON videos_shards FOR SELECT USING (true);
    CREATE POLICY new ON videos_shards FOR INSERT WITH CHECK (EXISTS (SELECT FROM videos WHERE videos.id = videos_shards.id));
    CREATE POLICY counted ON videos_shards FOR UPDATE USING (EXISTS (SELECT FROM videos WHERE videos.id = videos_shards.id))";

/// An increment reaches what the role sees, and answers as for a row that is not there.
#[test]
fn policies_let_a_role_count_on_the_rows_that_it_sees() {
    let own = &mut Fixture::<Conn, _>::with_tables();
    let (database, [conn]) = own.parts();
    conn.run(POLICIES_OF_COUNTS);
    let (_role, mut acting) = Role::acting(&["Counting"], |_| false, database, conn);
    for is_there in [false, true] {
        if is_there {
            assert_eq!(count(1, 1, conn), Ok(1));
        }
        for _ in 0..2 {
            let counted = [1, 2].map(|video| count(video, 1, &mut acting));
            assert_eq!(counted, [Ok(0), Ok(1)]);
        }
    }
    assert_eq!([1, 2].map(|video| cases::total_of(video, conn)), [101, 204]);
}

/// A proxy has lost its server after that has committed, and says so in words of its own.
#[test]
fn an_error_that_may_be_a_proxys_leaves_the_outcome_unknown() {
    let mut own = Fixture::<Conn, 1>::with_tables();
    let (database, [conn]) = own.parts();
    let (proxy, url) = Proxy::before(database.url());
    let behind = &mut Conn::establish(&url).unwrap();
    for _ in 0..3 {
        assert_eq!(count(1, 1, behind), Ok(1));
    }
    proxy.answer_after(
        0,
        *b"E\0\0\0\x2bSERROR\0VERROR\0C58000\0Mthe server went\0\0Z\0\0\0\x05I",
        true,
    );
    let error = Error::from(count(1, 1, behind).unwrap_err());
    assert_matches!(error, Error::OutcomeUnknown { .. });
    assert_eq!(total_of(1, conn), 104);
}

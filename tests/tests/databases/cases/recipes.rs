//! The guide's recipes that end in an increment, by 32 threads: the totals are the rows.

use std::fmt::Debug;

use super::api::retry::{Isolation, Transaction};
use super::support::*;
use diesel::dsl::{sql, sum};
use diesel::result::DatabaseErrorKind::UniqueViolation;
use diesel::sql_types::BigInt;
use diesel_sharded::backend::Dialect;
use diesel_sharded::operation::Folded;
use diesel_sharded_tests::schema::videos::dsl::*;

const THREADS: i64 = 32;

diesel::table! {
    likes_by_user (video_id, user_id) {
        video_id -> BigInt,
        user_id -> BigInt,
    }
}

diesel::table! {
    slots (video_id, slot) {
        video_id -> BigInt,
        slot -> BigInt,
        number -> BigInt,
    }
}

fn with(table: &str) -> Connected<Conn> {
    let mut fixture = set_up_with_counters();
    fixture.conn.batch_execute(table).unwrap();
    fixture
}

diesel::table! {
    clips (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

/// The model of `videos` under another name, whose shards keep theirs.
#[derive(ShardedField)]
#[diesel(table_name = clips)]
#[sharded(table_name = videos_shards, crate = super::models::facade::counters)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Clip {
    id: i64,
    #[sharded]
    views: i64,
}

const LIKES_BY_USER: &str = "CREATE TABLE likes_by_user (video_id BIGINT NOT NULL, user_id BIGINT NOT NULL, PRIMARY KEY (video_id, user_id))";

/// As many attempts as a crowd needs.
fn patiently() -> Transaction {
    let policy = diesel_sharded_tests::patient().with_attempts(1_000);
    Transaction::new().retry(policy)
}

/// A query whose rows are locked; SQLite's transaction has locked all.
fn locked(query: &str, conn: &mut Conn) -> QueryResult<()> {
    let lock = match dialect(conn) {
        Dialect::Sqlite => "",
        _ => " FOR UPDATE",
    };
    conn.batch_execute(&format!("{query}{lock}"))
}

fn likes_of(video: i64, conn: &mut Conn) -> i64 {
    let total = videos.find(video).select(likes.total());
    i64::from(total.first::<i32>(conn).unwrap())
}

fn assert_whole<T, K: Debug>(folded: &Folded<T, K>) {
    let is_whole = folded.busy.is_empty() && folded.unfit.is_empty();
    assert!(is_whole, "{folded:?}");
}

/// Each of 10 users likes a video three times at once.
fn like_thrice(
    database: &Database,
    like: impl Fn((i64, i64), &mut Conn) -> QueryResult<bool> + Sync,
) {
    let counted = AtomicI64::new(0);
    on_threads(THREADS - 2, database, |thread, conn| {
        for video in [1, 2] {
            let liked = like((video, thread % 10), conn).unwrap();
            counted.fetch_add(i64::from(liked), Ordering::SeqCst);
        }
    });
    assert_eq!(counted.into_inner(), 20);
}

#[test]
fn one_like_of_each_user() {
    let Connected { conn, database } = &mut with(LIKES_BY_USER);
    like_thrice(database, like);
    assert_eq!((likes_of(1, conn), likes_of(2, conn)), (11, 12));
}

/// Of a row that it inserted.
fn like((video, user): (i64, i64), conn: &mut Conn) -> QueryResult<bool> {
    use self::likes_by_user::dsl::*;
    patiently().run(conn, |conn| {
        let row = (video_id.eq(video), user_id.eq(user));
        let like = diesel::insert_into(likes_by_user).values(row);
        match conn.transaction(|conn| like.execute(conn)) {
            Err(DieselError::DatabaseError(UniqueViolation, _)) => return Ok(false),
            inserted => inserted?,
        };
        let count = update(videos.find(video)).set(likes.eq(likes + 1));
        count.execute(conn).done().map(|counted| counted == 1)
    })
}

/// A like is taken back by whoever deletes its row.
#[test]
fn likes_that_are_taken_back() {
    use self::likes_by_user::dsl::*;
    let Connected { conn, database } = &mut with(LIKES_BY_USER);
    let changed = AtomicI64::new(0);
    on_threads(THREADS, database, |thread, conn| {
        for round in 0..8 {
            let (video, user) = (1 + (thread + round) % 2, thread % 5);
            let is_changed = match (thread + round) % 3 {
                0 => patiently().run(conn, |conn| {
                    let unlike = diesel::delete(likes_by_user.find((video, user)));
                    if unlike.execute(conn)? != 1 {
                        return Ok(false);
                    }
                    let count = update(videos.find(video)).set(likes.eq(likes - 1));
                    count.execute(conn).done().map(|counted| counted == 1)
                }),
                _ => like((video, user), conn),
            };
            changed.fetch_add(is_changed.unwrap().into(), Ordering::SeqCst);
        }
    });
    for video in [1, 2] {
        let rows = likes_by_user.filter(video_id.eq(video)).count();
        let rows = rows.get_result::<i64>(conn).unwrap();
        assert_eq!(likes_of(video, conn), video + rows); // as many likes were there at first
    }
    assert!(changed.into_inner() > 10, "some are new and some are gone");
}

/// Whatever the insert reports.
#[test]
fn one_like_of_each_user_by_a_cache() {
    use self::likes_by_user::dsl::*;
    let Connected { conn, database } = &mut with(LIKES_BY_USER);
    let cache = CounterCache::of(likes).counts(video_id);
    cache.create(conn).unwrap();
    on_threads(THREADS, database, |thread, conn| {
        for video in [1, 2] {
            let row = (video_id.eq(video), user_id.eq(thread % 10));
            let like = diesel::insert_into(likes_by_user).values(row);
            let like = like.on_conflict_do_nothing();
            let liked = patiently().run(conn, |conn| like.execute(conn));
            assert_matches!(liked, Ok(0 | 1));
        }
    });
    assert_eq!((likes_of(1, conn), likes_of(2, conn)), (11, 12));
}

/// They are moved and deleted by a filter on what they count for.
#[test]
fn rows_that_move_and_go() {
    let Connected { conn, database } = &mut set_up();
    on_threads(THREADS, database, |thread, conn| {
        for round in 0..4 {
            let (from, to) = (1 + (thread + round) % 3, 1 + (thread + 1) % 3);
            let row = move |on| {
                let row = comments::table.find(1 + round % 2);
                row.filter(comments::video_id.eq(on))
            };
            let written: QueryResult<()> = patiently().run(conn, |conn| {
                let moved = diesel::update(row(from)).set(comments::video_id.eq(to));
                if from != to && moved.execute(conn)? == 1 {
                    let counts = [(from, -1), (to, 1)];
                    count_many(views, counts).run(conn).done().map(drop)?;
                }
                if round == 1 && diesel::delete(row(to)).execute(conn)? == 1 {
                    count(to, -1, conn)?;
                }
                Ok(())
            });
            assert_eq!(written, Ok(()));
        }
    });
    let of = |video: i64, conn: &mut Conn| {
        let rows = comments::table.filter(comments::video_id.eq(video));
        rows.count().get_result::<i64>(conn).unwrap()
    };
    // At first both were on video 3.
    let rows = [100 + of(1, conn), 200 + of(2, conn), 298 + of(3, conn)];
    assert_eq!(totals(conn), rows);
}

/// The parent is locked first, and nothing is read before.
#[test]
fn a_quota_by_a_cache() {
    const QUOTA: i64 = 40;
    let Connected { conn, database } = &mut set_up();
    let cache = CounterCache::of(views).counts(comments::video_id);
    cache.create(conn).unwrap();
    let written = AtomicI64::new(0);
    on_threads(THREADS, database, |thread, conn| {
        for round in 0..3 {
            let id_of_row = comments::id.eq(100 + 3 * thread + round);
            let row = (id_of_row, comments::video_id.eq(1));
            let inserted: QueryResult<usize> = patiently().run(conn, |conn| {
                locked("SELECT id FROM videos WHERE id = 1", conn)?;
                let total = videos.find(1).select(views.total());
                let write = diesel::insert_into(comments::table).values(row);
                match total.first::<i64>(conn)? < 100 + QUOTA {
                    true => write.execute(conn),
                    false => Ok(0),
                }
            });
            written.fetch_add(inserted.unwrap() as i64, Ordering::SeqCst);
        }
    });
    assert_eq!(written.into_inner(), QUOTA);
    assert_eq!(totals(conn), [100 + QUOTA, 200, 300]);
}

/// If one refuses, an error takes back those before.
#[test]
fn a_reservation_of_several() {
    let Connected { conn, database } = &mut set_up();
    set_total(videos.find(1), likes, 40).execute(conn).unwrap();
    set_total(videos.find(2), likes, 30).execute(conn).unwrap();
    let reserved = AtomicI64::new(0);
    on_threads(THREADS, database, |_, conn| {
        for _ in 0..2 {
            let both: QueryResult<()> = patiently().run(conn, |conn| {
                for video in [1, 2] {
                    let left = RowCounter::of(likes, video).never_below(0);
                    if !left.add(-1, conn).done()? {
                        return Err(DieselError::RollbackTransaction);
                    }
                }
                Ok(())
            });
            assert_matches!(both, Ok(()) | Err(DieselError::RollbackTransaction));
            reserved.fetch_add(i64::from(both.is_ok()), Ordering::SeqCst);
        }
    });
    assert_eq!(reserved.into_inner(), 30);
    assert_eq!((likes_of(1, conn), likes_of(2, conn)), (10, 0));
}

/// The limit of a window, in a table of its own, whose row the first request inserts.
#[test]
fn a_rate_limit_by_rows() {
    use diesel_sharded_tests::schema::downloads::dsl::*;
    const LIMIT: i64 = 50;
    let Connected { conn, database } = &mut set_up();
    let allowed = AtomicI64::new(0);
    on_threads(THREADS, database, |_, conn| {
        let window = (42, Day(1));
        let requests = RowCounter::of(number, window).never_above(LIMIT);
        for _ in 0..2 {
            let mut added = requests.add(1, conn).done();
            if added == Err(DieselError::NotFound) {
                let create = update(downloads.find(window)).set(number.eq(number + 0));
                let create = create.or_insert((version.eq(window.0), day.eq(window.1)));
                gives!(create.execute(conn), 1);
                added = requests.add(1, conn).done();
            }
            allowed.fetch_add(i64::from(added.unwrap()), Ordering::SeqCst);
        }
    });
    assert_eq!(allowed.into_inner(), LIMIT);
    let total = downloads.find((42, Day(1))).select(number.total());
    assert_eq!(total.first(conn), Ok(LIMIT as i32));
}

/// The plain columns are written by a statement of their own.
#[test]
fn an_upsert_of_plain_columns_too() {
    let Connected { conn, database } = &mut set_up();
    on_threads(THREADS, database, |thread, conn| {
        for round in 0..4 {
            let new = format!("Title {}", (thread + round) % 3);
            let upserted = patiently().run(conn, |conn| {
                let row = (id.eq(20), slug.eq("new"), title.eq(&new));
                let count = viewed!(videos.find(20)).or_insert(row);
                count.execute(conn).done()?;
                let edited = videos.find(20).filter(title.ne(&new));
                diesel::update(edited).set(title.eq(&new)).execute(conn)
            });
            assert_matches!(upserted, Ok(0 | 1));
        }
    });
    assert_eq!(total_of(20, conn), 4 * THREADS);
}

/// Batches count by day and in total, in one transaction.
#[test]
fn batches_by_day_and_in_total() {
    use diesel_sharded_tests::schema::downloads::dsl::*;
    let Connected { conn, database } = &mut set_up();
    on_threads(THREADS, database, |thread, conn| {
        for round in 0..4 {
            let today = Day((thread as i32 + round) % 3);
            let batch = [((7, today), 4), ((8, today), 2)];
            let counted = patiently().run(conn, |conn| {
                let row = |key: &(i32, Day)| (version.eq(key.0), day.eq(key.1));
                let by_day = count_many(number, batch).or_insert(row).run(conn).done()?;
                let in_total = count_many(views, [(1, 4), (2, 2)]).run(conn).done()?;
                QueryResult::Ok((by_day.missing.len(), in_total.missing.len()))
            });
            assert_eq!(counted, Ok((0, 0)));
        }
    });
    let rounds = 4 * THREADS;
    assert_eq!(totals(conn), [100 + 4 * rounds, 200 + 2 * rounds, 300]);
    let by_day = downloads.select(sum(number.total()));
    assert_eq!(by_day.first(conn), Ok(Some(6 * rounds)));
}

/// Rows are merged into another one while both are counted on: the row is locked, folded and read, and its base is added to the other.
#[test]
fn rows_that_are_merged() {
    let Connected { conn, database } = &mut set_up();
    let losers = 10..26_i64;
    for loser in losers.clone() {
        let row = (id.eq(loser), slug.eq(loser.to_string()), title.eq(""));
        insert!(videos, (row, views.eq(5)), conn);
    }
    let counted = AtomicI64::new(0);
    let counts = |thread: i64, conn: &mut Conn| {
        for loser in losers.clone() {
            for _ in 0..3 {
                let rows = count(loser, 1, conn).unwrap() + count(1, thread % 2, conn).unwrap();
                let rows = rows as i64 - (1 - thread % 2);
                counted.fetch_add(rows, Ordering::SeqCst);
            }
        }
    };
    on_threads_beside(THREADS, database, counts, 2, |merger, _, conn| {
        for loser in losers.clone().filter(|loser| loser % 2 == merger) {
            let merge = patiently().isolation(Isolation::ReadCommitted);
            let merged: QueryResult<usize> = merge.run(conn, |conn| {
                locked(&format!("SELECT id FROM videos WHERE id = {loser}"), conn)?;
                let folded = fold(videos.find(loser)).keep_shards(0).run(conn).done()?;
                assert_whole(&folded);
                let base = videos.find(loser).select(views).first::<i64>(conn)?;
                count(1, base, conn)?;
                diesel::delete(videos.find(loser)).execute(conn)
            });
            assert_eq!(merged, Ok(1));
        }
    });
    let bases = 5 * losers.count() as i64;
    assert_eq!(totals(conn), [100 + bases + counted.into_inner(), 200, 300]);
}

/// Slots of the application's own, which old binaries go on counting on, move to the base. Readers add all three.
#[test]
fn slots_that_are_adopted() {
    const COUNTS: i64 = 20;
    let Connected { conn, database } = &mut with(
        "CREATE TABLE slots (video_id BIGINT NOT NULL, slot BIGINT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (video_id, slot))",
    );
    let (upsert, bigint) = match dialect(conn) {
        Dialect::Mysql => ("ON DUPLICATE KEY UPDATE number = number + 1", "SIGNED"),
        _ => (
            "ON CONFLICT (video_id, slot) DO UPDATE SET number = slots.number + 1",
            "BIGINT",
        ),
    };
    let all = |conn: &mut Conn| {
        let of_slots = format!(
            "CAST((SELECT COALESCE(SUM(number), 0) FROM slots WHERE video_id = videos.id) AS {bigint})"
        );
        let all = (views.total(), sql::<BigInt>(&of_slots));
        let read = |conn: &mut Conn| videos.find(1).select(all).first::<(i64, i64)>(conn);
        let (total, of_slots) = conn.transaction(read).unwrap();
        total + of_slots
    };
    let write = |thread: i64, conn: &mut Conn| {
        for _ in 0..COUNTS {
            if thread % 2 == 0 {
                assert_eq!(count(1, 1, conn), Ok(1));
                continue;
            }
            let count = format!("INSERT INTO slots VALUES (1, {}, 1) {upsert}", thread % 8);
            let counted: QueryResult<()> = patiently().run(conn, |conn| conn.batch_execute(&count));
            assert_eq!(counted, Ok(()));
        }
    };
    let adopt = |conn: &mut Conn| {
        let of_video = slots::table.filter(slots::video_id.eq(1));
        let slot = of_video.select(slots::slot).first::<i64>(conn).optional()?;
        let Some(slot) = slot else { return Ok(()) };
        let query = format!("SELECT number FROM slots WHERE video_id = 1 AND slot = {slot}");
        locked(&query, conn)?;
        let slot = slots::table.find((1, slot));
        let number = slot.select(slots::number).first::<i64>(conn)?;
        let base = diesel::update(videos.find(1)).set(views.eq(views + number));
        base.execute(conn)?;
        diesel::delete(slot).execute(conn).map(drop)
    };
    on_threads_beside(THREADS, database, write, 2, |reader, rounds, conn| {
        let mut last = 100;
        for _ in rounds {
            if reader == 0 {
                let adopting = patiently().isolation(Isolation::ReadCommitted);
                assert_eq!(adopting.run(conn, adopt), Ok(()));
                continue;
            }
            let total = all(conn);
            assert!(total >= last, "{total} after {last}");
            last = total;
        }
    });
    assert_eq!(all(conn), 100 + COUNTS * THREADS);
}

/// Bounds go with the crate: the row is folded, and a filter keeps the bound from then on.
#[test]
fn bounds_that_a_filter_keeps() {
    const SEATS: i32 = 60;
    let Connected { conn, database } = &mut set_up();
    gives!(set_total(videos.find(1), likes, SEATS).execute(conn), 1);
    let sold = AtomicI64::new(0);
    on_threads(THREADS, database, |_, conn| {
        let seats = RowCounter::of(likes, 1).never_below(0).never_above(60);
        let bought = seats.add(-1, conn).unwrap();
        sold.fetch_add(i64::from(bought), Ordering::SeqCst);
    });
    let folded = fold(videos.find(1)).keep_shards(0).run(conn).unwrap();
    assert_whole(&folded);
    on_threads(THREADS, database, |_, conn| {
        let bought: QueryResult<usize> = patiently().run(conn, |conn| {
            let left = videos.find(1).filter(likes.ge(1));
            diesel::update(left).set(likes.eq(likes - 1)).execute(conn)
        });
        sold.fetch_add(bought.unwrap() as i64, Ordering::SeqCst);
    });
    assert_eq!(sold.into_inner(), i64::from(SEATS));
    assert_eq!(videos.find(1).select(likes).first(conn), Ok(0));
}

/// Views of a video and of its day are counted together, and days that are over become a month.
#[test]
fn views_by_day_become_months() {
    use diesel_sharded_tests::schema::downloads::{day, number, version};
    const DAYS: i64 = 3;
    let table = "CREATE TABLE months (version INTEGER PRIMARY KEY, number BIGINT NOT NULL)";
    let Connected { conn, database } = &mut with(table);
    on_threads(8, database, |thread, conn| {
        for round in 0..2 * DAYS {
            let today = Day((round % DAYS) as i32);
            patiently()
                .run(conn, |conn| {
                    count(1 + thread % 2, 1, conn)?;
                    let of_day = downloads::table.find((1 + (thread % 2) as i32, today));
                    update(of_day)
                        .set(number.eq(number + 1))
                        .or_insert((version.eq(1 + (thread % 2) as i32), day.eq(today)))
                        .execute(conn)
                        .done()
                })
                .unwrap();
        }
    });
    let of_video = 4 * 2 * DAYS;
    assert_eq!(totals(conn), [100 + of_video, 200 + of_video, 300]);
    let by_day = downloads::table.select(number.total());
    assert_eq!(by_day.load(conn), Ok(vec![8; 2 * DAYS as usize]));

    let over = downloads::table.filter(day.lt(Day(2)));
    assert_whole(&fold(over).run(conn).unwrap());
    let rolled_up: QueryResult<_> = conn.transaction(|conn| {
        conn.batch_execute("INSERT INTO months SELECT version, SUM(number) FROM downloads WHERE day < 2 GROUP BY version")?;
        conn.batch_execute("DELETE FROM downloads WHERE day < 2")
    });
    rolled_up.unwrap();
    let of_two_days = "(SELECT COUNT(*) FROM months WHERE number = 16)";
    assert_eq!(number!(of_two_days, conn), 2);
    assert_eq!(by_day.load(conn), Ok(vec![8; 2]));
    let of_deleted = "(SELECT COUNT(*) FROM downloads_shards WHERE day < 2)";
    assert_eq!(number!(of_deleted, conn), 0);
}

/// Binaries that know the old name find a view there. They count on the same shards, as those do that know the new one.
#[test]
fn a_table_that_is_renamed() {
    let Connected { conn, database } = &mut set_up();
    let old = |conn: &mut Conn| viewed!(videos.find(1)).execute(conn).done();
    assert_eq!(old(conn), Ok(1));
    let renamed = "ALTER TABLE videos RENAME TO clips; CREATE VIEW videos AS SELECT * FROM clips";
    conn.batch_execute(renamed).unwrap();
    on_threads(8, database, |thread, conn| {
        for _ in 0..20 {
            let new = update(clips::table.find(1)).set(clips::views.eq(clips::views + 1));
            let counted = match thread % 2 {
                0 => old(conn),
                _ => new.execute(conn).done(),
            };
            assert_eq!(counted, Ok(1));
        }
    });
    assert_eq!(totals(conn), [100 + 161, 200, 300]);
    let by_new_name = clips::table.select(clips::views.total());
    assert_eq!(by_new_name.first(conn), Ok(261_i64));
    assert_whole(&fold(clips::table).run(conn).unwrap());
    let bases = videos.order(id).select(views).load(conn);
    assert_eq!(bases, Ok(vec![261_i64, 200, 300]));
}

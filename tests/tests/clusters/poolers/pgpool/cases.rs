//! Each operation does behind the splitter what it does on the primary.

use std::fmt::Debug;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::MIGRATIONS;
use diesel_sharded_tests::awaited::Done;
use diesel_sharded_tests::pgpool::Pgpool;
use diesel_sharded_tests::replication::Pair;
use diesel_sharded_tests::schema::measures::dsl::{id as measure, measures, real, small};
use diesel_sharded_tests::schema::{self, videos::dsl::*};

use super::Conn;
use super::api::retry::RetryPolicy;
use super::api::{Error, RowCounter, ShardsTable, fold, update};
use super::operations::Before::{Nothing, Parent, Shards};
use super::operations::{ALL, Operation, arrange, ask, counter, is_of_schema};

/// What the primary has done to a row since the standby stopped to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    Inserted,
    /// It has created the row's shards.
    Counted,
    /// It has raised the row's totals from 0 to 100.
    Restocked,
    Deleted,
}

use Since::{Counted, Deleted, Inserted, Restocked};

/// Operations whose answer depends on what there is, beside those that every connection runs.
const FURTHER: &[Operation] = &[
    ("add 0", Parent, |conn, video| {
        let counted = RowCounter::of(views, video).add(0, conn).done()?;
        Ok(counted as i64)
    }),
    ("add 0, bounded", Parent, |conn, video| {
        let bounded = RowCounter::of(likes, video).never_below(0);
        bounded.add(0, conn).done().map(i64::from)
    }),
    ("by filter, several", Shards, |conn, video| {
        let several = videos.filter(slug.like(format!("% {video}")));
        let counted = update(several)
            .set(views.eq(views + 1))
            .execute(conn)
            .done()?;
        Ok(counted as i64)
    }),
    // Sums of doubles are rounded, so that the rows are picked before they are counted.
    ("by filter, picked", Parent, |conn, video| {
        let number = i16::try_from(video % 10_000).unwrap();
        conn.batch_execute(&format!("INSERT INTO measures (id) VALUES ({number})"))?;
        let picked = measures.filter(measure.eq(number).and(small.ge(0)));
        let count = update(picked).set(real.eq(real + 1.0)).returning(real);
        let rows: Vec<f64> = count.get_results(conn).done()?;
        Ok(rows.len() as i64)
    }),
    ("fold of all rows", Shards, |conn, _| {
        let folded = fold(videos).keep_shards(0).run(conn).done()?;
        Ok((folded.finished && folded.unfit.is_empty()).into())
    }),
];

/// Operations of bounded counters that the primary allows, and the standby would not.
const BOUNDED: &[Operation] = &[
    ("bounded", Parent, |conn, video| {
        let stock = RowCounter::of(views, video).never_below(0);
        stock.add(-1, conn).done().map(i64::from)
    }),
    ("bounded, up to", Parent, |conn, video| {
        let stock = RowCounter::of(views, video).never_below(0);
        stock.add_up_to(-3, conn).done()
    }),
    ("bounded, add and get", Parent, |conn, video| {
        let stock = RowCounter::of(views, video).never_below(0);
        Ok(stock.add_and_get(-1, conn).done()?.unwrap_or(-1))
    }),
    ("bounded, keyed", Parent, |conn, video| {
        let stock = RowCounter::of(views, video).never_below(0);
        let keyed = stock.idempotency_key(format!("stock {video}"));
        keyed.add(-1, conn).done().map(i64::from)
    }),
    ("bounded, in a transaction", Parent, |conn, video| {
        let stock = RowCounter::of(views, video).never_below(0);
        conn.transaction(|conn| stock.add(-1, conn).done().map(i64::from))
    }),
    ("bounded, named", Parent, |conn, video| {
        let stock = counter(video).never_below(0);
        stock.add(-1, conn).done().map(i64::from)
    }),
    ("bounded, named, up to", Parent, |conn, video| {
        counter(video).never_below(0).add_up_to(-3, conn).done()
    }),
    ("bounded, named, add and get", Parent, |conn, video| {
        let total = counter(video).never_below(0).add_and_get(-1, conn).done()?;
        Ok(total.unwrap_or(-1))
    }),
];

/// Reads that are documented to lag.
const READS: [&str; 2] = ["total", "top"];

struct Case {
    operation: Operation,
    since: Since,
    /// One for the splitter, and one for the primary.
    rows: [i64; 2],
}

fn cases() -> Vec<Case> {
    let all = || ALL.iter().chain(FURTHER).copied();
    let inserted = all().map(|operation| (operation, Inserted));
    let of_rows = || all().filter(|(name, before, _)| !is_of_schema(name) && *before != Nothing);
    let counted = of_rows().map(|operation| (operation, Counted));
    let counted = counted.filter(|((_, before, _), _)| *before == Shards);
    let restocked = BOUNDED.iter().map(|operation| (*operation, Restocked));
    let deleted = of_rows().map(|operation| (operation, Deleted));
    let operations = inserted.chain(counted).chain(restocked).chain(deleted);
    let operations = operations.filter(|((name, ..), _)| !READS.contains(name));
    let numbered = (100_000..).step_by(2).zip(operations);
    let case = |(row, (operation, since))| Case {
        operation,
        since,
        rows: [row, row + 1],
    };
    numbered.map(case).collect()
}

/// What a row, its shards and its named counter hold.
fn state(video: i64, conn: &mut Conn) -> Vec<i64> {
    let of = [
        format!("SELECT views FROM videos WHERE id = {video}"),
        format!("SELECT likes FROM videos WHERE id = {video}"),
        format!("SELECT SUM(views) FROM videos_shards WHERE id = {video}"),
        format!("SELECT SUM(likes) FROM videos_shards WHERE id = {video}"),
        format!("SELECT COUNT(*) FROM videos_shards WHERE id = {video}"),
        format!("SELECT value FROM diesel_sharded_counters WHERE name = 'counter {video}'"),
        format!(
            "SELECT SUM(value) FROM diesel_sharded_counter_shards WHERE name = 'counter {video}'"
        ),
    ];
    let read = |number: &String| ask(&format!("COALESCE(({number}), -1)"), conn).unwrap();
    of.iter().map(read).collect()
}

/// An outcome without the row's number.
fn told<T: Debug>(outcome: QueryResult<T>, video: i64) -> String {
    let outcome = outcome.map_err(Error::from);
    format!("{outcome:?}").replace(&video.to_string(), "…")
}

#[test]
fn each_operation_does_what_it_does_on_the_primary() {
    let pair = Pair::start().expect("PostgreSQL is installed");
    let url = pair.primary_url("postgres");
    let mut primary = Conn::establish(&url).unwrap();
    schema::create(&mut primary);
    primary.run_pending_migrations(MIGRATIONS).unwrap();
    let cases = cases();
    for Case {
        operation: (name, before, _),
        since,
        rows,
    } in &cases
    {
        for row in rows {
            match since {
                Inserted => {}
                Counted => arrange(name, Parent, *row, &mut primary),
                Deleted => arrange(name, *before, *row, &mut primary),
                Restocked => {
                    arrange(name, Parent, *row, &mut primary);
                    stock(*row, 0, &mut primary);
                }
            }
        }
    }
    pair.wait_until_applied();
    pair.pause_replay();
    let split_url = Pgpool::start(&pair).url(&url);
    let split = &mut Conn::establish(&split_url).unwrap();
    // Nobody is misled where nothing lags: the splitter sends reads to the standby.
    primary
        .batch_execute("INSERT INTO videos (id, slug, title) VALUES (-7, 'lag', '')")
        .unwrap();
    assert_eq!(
        ask("SELECT COUNT(*) FROM videos WHERE id = -7", split),
        Ok(0)
    );
    let mut wrong = vec![];
    for Case {
        operation: (name, before, work),
        since,
        rows,
    } in &cases
    {
        let [there, here] = [(rows[0], true), (rows[1], false)].map(|(row, is_split)| {
            match since {
                Inserted => arrange(name, *before, row, &mut primary),
                Counted => shards(row, &mut primary),
                Restocked => stock(row, 100, &mut primary),
                Deleted => {
                    let delete = format!("DELETE FROM videos WHERE id = {row}");
                    primary.batch_execute(&delete).unwrap();
                }
            }
            let done = match is_split {
                // A connection of its own: a statement that was prepared on the primary stays there.
                true => work(&mut Conn::establish(&split_url).unwrap(), row),
                false => work(&mut primary, row),
            };
            (told(done, row), state(row, &mut primary))
        });
        if there != here {
            wrong.push(format!("{name}, {since:?}: {there:?}, not {here:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
    orphans_are_removed(&mut primary, split);
    a_busy_row_is_folded(&url, &mut primary, split);
    a_repeat_reads_the_primarys_total(&split_url, &mut primary);
}

/// The primary alone has a shard without a row.
fn orphans_are_removed(primary: &mut Conn, split: &mut Conn) {
    let orphan = "SET session_replication_role = replica;
                  INSERT INTO videos_shards (id, shard) VALUES (-8, 0);
                  SET session_replication_role = origin";
    primary.batch_execute(orphan).unwrap();
    assert_eq!(ShardsTable::of(videos).remove_orphans(split).done(), Ok(1));
}

/// The primary alone has the shards, one of which is locked: a fold finds out which others there are.
fn a_busy_row_is_folded(url: &str, primary: &mut Conn, split: &mut Conn) {
    arrange("fold", Shards, -9, primary);
    let mut holder = Conn::establish(url).unwrap();
    let hold = "BEGIN; SELECT 1 FROM videos_shards WHERE id = -9 AND shard = 0 FOR UPDATE";
    holder.batch_execute(hold).unwrap();
    let folded = fold(videos.find(-9))
        .retry(RetryPolicy::never())
        .run(split)
        .done();
    assert_eq!(folded.unwrap().busy, [-9]);
    let base = "SELECT views FROM videos WHERE id = -9";
    assert_eq!(ask(base, primary), Ok(13));
}

/// The primary alone has the row, its increment and the key.
fn a_repeat_reads_the_primarys_total(split_url: &str, primary: &mut Conn) {
    arrange("add", Parent, -10, primary);
    let key = || RowCounter::of(views, -10).idempotency_key("order 10");
    let [first, again] = [(); 2].map(|()| {
        let split = &mut Conn::establish(split_url).unwrap();
        key().add_and_get(5, split).unwrap()
    });
    assert!(first.is_some());
    assert_eq!(again, first);
    let named = || counter(-10).idempotency_key("order 11");
    let totals = [(); 2].map(|()| {
        let split = &mut Conn::establish(split_url).unwrap();
        named().add_and_get(5, split).done()
    });
    assert_eq!(totals, [Ok(5), Ok(5)]);
}

/// Sets the totals of the row and of the named counter.
fn stock(video: i64, n: i64, conn: &mut Conn) {
    conn.batch_execute(&format!("UPDATE videos SET views = {n} WHERE id = {video}"))
        .unwrap();
    counter(video).set(n, conn).unwrap();
}

/// Four shards, each with one view.
fn shards(video: i64, conn: &mut Conn) {
    let insert = format!(
        "INSERT INTO videos_shards (id, shard, views) SELECT {video}, generate_series(0, 3), 1"
    );
    conn.batch_execute(&insert).unwrap();
}

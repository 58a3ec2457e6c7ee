//! Every operation in the surroundings that the reference page names, and in further ones: it is done, exactly, or it is refused by an
//! error that gives the reason, and then nothing has changed.

use std::error::Error as StdError;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error as R2d2Error, Pool};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_counts::ShardCount;
use diesel_sharded::{
    Counter, Error, MIGRATIONS, RowCounter, ShardsTable, fold, set_total, update, verify,
};
use diesel_sharded_tests::TestConnection;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, comments};

use super::{BEFORE, Conn, FURTHER, SECTION};

type Result<T = ()> = std::result::Result<T, Box<dyn StdError + Send + Sync>>;

const PAGE: &str = include_str!("../../../../src/reference/surroundings.md");

/// One row of a table: a surrounding, and the operations that the database refuses there.
pub struct Row {
    pub surrounding: &'static str,
    pub refused: &'static str,
}

/// In place of the refused operations: any may be refused.
pub const ANY: &str = "any";

/// The cells of the first table after this text, without its head.
fn rows_after(text: &str) -> impl Iterator<Item = Vec<&'static str>> + use<> {
    let (_, behind) = PAGE.split_once(text).expect(text);
    let lines = behind.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|line| {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        cells.collect()
    })
}

/// The operations that the page names, and the rows of the section's table.
fn table() -> (Vec<&'static str>, Vec<Row>) {
    let operations = rows_after("\n\n").flat_map(|cells| cells[0].split(", "));
    let operations: Vec<_> = operations.collect();
    let rows = rows_after(&format!("\n# {SECTION}\n\n")).map(|cells| Row {
        surrounding: cells[0],
        refused: cells[1],
    });
    let rows: Vec<_> = rows.collect();
    for Row { refused, .. } in &rows {
        let named = refused.strip_prefix("all but ").unwrap_or(refused);
        let is_known = |name| name == "none" || operations.contains(&name);
        assert!(named.split(", ").all(is_known), "{refused}");
    }
    (operations, rows)
}

fn holds(operation: &str, refused: &str) -> bool {
    let names = |list: &str| list.split(", ").any(|name| name == operation);
    match refused.strip_prefix("all but ") {
        Some(others) => names(others),
        None => !names(refused),
    }
}

/// A database, and the SQL that each connection to it begins with.
struct Surrounded<'a> {
    url: &'a str,
    setup: &'a str,
    totals: &'a Totals,
}

impl Surrounded<'_> {
    fn connect(&self) -> Result<Conn> {
        let mut conn = Conn::establish(self.url)?;
        conn.batch_execute(BEFORE)?;
        conn.batch_execute(self.setup)?;
        Ok(conn)
    }

    fn pool(&self) -> Result<Pool<ConnectionManager<Conn>>> {
        let manager = ConnectionManager::new(self.url);
        let pool = Pool::builder().max_size(2).min_idle(Some(0));
        let setup = SetUp(self.setup.to_owned());
        Ok(pool.connection_customizer(Box::new(setup)).build(manager)?)
    }
}

#[derive(Debug)]
struct SetUp(String);

impl CustomizeConnection<Conn, R2d2Error> for SetUp {
    fn on_acquire(&self, conn: &mut Conn) -> std::result::Result<(), R2d2Error> {
        let set_up = conn.batch_execute(BEFORE);
        let set_up = set_up.and_then(|()| conn.batch_execute(&self.0));
        set_up.map_err(R2d2Error::QueryError)
    }
}

/// Three videos, of each its total views and likes; and a named counter.
#[derive(Debug, Clone, PartialEq)]
struct Totals {
    videos: Vec<(i64, i32)>,
    named: i64,
}

impl Totals {
    /// As the database's own defaults show them. Bases, once the shards table was dropped.
    fn read(url: &str, dropped: bool) -> Self {
        let conn = &mut Conn::establish(url).unwrap();
        let totals = match dropped {
            true => videos.select((views, likes)).order(id).load(conn),
            false => {
                let totals = videos.select((views.total(), likes.total()));
                totals.order(id).load(conn)
            }
        };
        Totals {
            videos: totals.unwrap(),
            named: Counter::named("page:/").get(conn).unwrap(),
        }
    }

    fn count(&mut self, n: i64) {
        self.videos.iter_mut().for_each(|video| video.0 += n);
    }
}

/// An operation of the tables, and its effect on totals.
type Operation = (fn(&Surrounded<'_>) -> Result, fn(&mut Totals));

/// Operations that the page does not name.
const FURTHER_OPERATIONS: [&str; 3] = ["one", "all", "once by filter"];

fn operation(name: &str) -> Operation {
    match name {
        "one" => (one, |totals| totals.videos[0].0 += 1),
        "all" => (all, |totals| totals.count(1)),
        "once by filter" => (once_by_filter, |totals| {
            totals.videos[1].0 += 1;
            totals.videos[2].0 += 1;
        }),
        "read" => (read, |_| {}),
        "key" => (by_key, |totals| totals.videos[0].0 += 40),
        "filter" => (by_filter, |totals| {
            for (seen, liked) in &mut totals.videos[1..] {
                *seen += 1;
                *liked += 2;
            }
        }),
        "rows" => (rows_back, |totals| totals.count(1)),
        "inside" => (inside, |totals| {
            totals.count(1);
            totals.videos[2].1 += 1;
            totals.named += 1;
        }),
        "named" => (named, |totals| totals.named += 2),
        "bounded" => (bounded, |totals| totals.videos[1].1 = 0),
        "once" => (once, |totals| totals.videos[0].0 += 1),
        "coalesced" => (coalesced, |totals| {
            totals.count(1);
            totals.videos[2].0 += 2;
            totals.named += 1;
        }),
        "fold" => (fold_all, |_| {}),
        "set" => (set, |totals| {
            totals.videos.iter_mut().for_each(|video| video.0 = 5);
        }),
        "resize" => (resize, |_| {}),
        "repair" => (repair, |totals| {
            for (video, (_, all)) in totals.videos.iter_mut().enumerate() {
                *all = if video == 2 { 2 } else { 0 };
            }
        }),
        "drop" => (drop_shards, |_| {}),
        _ => panic!("no operation {name}"),
    }
}

fn one(surrounded: &Surrounded<'_>) -> Result {
    let counted = update(videos.find(1)).set(views.eq(views + 1));
    assert_eq!(counted.execute(&mut surrounded.connect()?)?, 1);
    Ok(())
}

fn all(surrounded: &Surrounded<'_>) -> Result {
    let counted = update(videos).set(views.eq(views + 1));
    assert_eq!(counted.execute(&mut surrounded.connect()?)?, 3);
    Ok(())
}

fn once_by_filter(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    for _ in 0..2 {
        let counted = update(videos.filter(channel.eq("news"))).set(views.eq(views + 1));
        assert_eq!(counted.idempotency_key("a 'key'").execute(conn)?, 2);
    }
    Ok(())
}

/// With limits of their own, since a setting may limit queries that have none. So do the checks below.
fn read(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    let totals = videos.select((views.total(), likes.total())).order(id);
    let totals: Vec<(i64, i32)> = totals.limit(3).load(conn)?;
    assert_eq!(totals, surrounded.totals.videos);
    let more = videos.filter(views.total().gt(totals[1].0)).order(id);
    let more: Vec<i64> = more.select(views.total()).limit(3).load(conn)?;
    let expected = totals.iter().map(|(seen, _)| *seen);
    assert_eq!(
        more,
        expected
            .filter(|seen| *seen > totals[1].0)
            .collect::<Vec<_>>()
    );
    Ok(())
}

/// From four threads, beside one that folds.
fn by_key(surrounded: &Surrounded<'_>) -> Result {
    let count = || -> Result {
        let conn = &mut surrounded.connect()?;
        for _ in 0..10 {
            let counted = update(videos.find(1)).set(views.eq(views + 1));
            assert_eq!(counted.execute(conn)?, 1);
        }
        Ok(())
    };
    let fold_it = || -> Result {
        let conn = &mut surrounded.connect()?;
        for _ in 0..5 {
            let folded = fold(videos.find(1)).run(conn)?;
            assert!(folded.unfit.is_empty());
        }
        Ok(())
    };
    thread::scope(|scope| {
        let mut threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads.push(scope.spawn(fold_it));
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended.fold(Ok(()), Result::and)
    })
}

fn by_filter(surrounded: &Surrounded<'_>) -> Result {
    let counted = update(videos.filter(channel.eq("news")));
    let counted = counted.set((views.eq(views + 1), likes.eq(likes + 2)));
    assert_eq!(counted.execute(&mut surrounded.connect()?)?, 2);
    Ok(())
}

fn rows_back(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    let counted = update(videos.filter(title.ne("x"))).set(views.eq(views + 1));
    let mut rows: Vec<(i64, i64)> = counted.returning((id, views)).get_results(conn)?;
    rows.sort();
    let totals = (1..).zip(&surrounded.totals.videos);
    let expected = totals.map(|(video, (seen, _))| (video, seen + 1));
    assert_eq!(rows, expected.collect::<Vec<_>>());
    Ok(())
}

fn inside(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    conn.transaction(|conn| -> Result {
        diesel::update(videos.find(3))
            .set(likes.eq(likes + 1))
            .execute(conn)?;
        let one = update(videos.find(1)).set(views.eq(views + 1));
        assert_eq!(one.execute(conn)?, 1);
        let others = update(videos.filter(slug.ne("a"))).set(views.eq(views + 1));
        assert_eq!(others.execute(conn)?, 2);
        Ok(Counter::named("page:/").increment(conn)?)
    })
}

fn named(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    Counter::named("page:/").increment(conn)?;
    Counter::named("page:/").increment(conn)?;
    assert_eq!(Counter::list("page:").load(conn)?.len(), 1);
    Ok(())
}

fn bounded(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    let bounded = RowCounter::of(likes, 2).never_below(0).never_above(1000);
    let there = i64::from(surrounded.totals.videos[1].1);
    assert!(!bounded.add(-1000, conn)?);
    assert!(bounded.add(-there, conn)?);
    assert!(!bounded.add(-1, conn)?);
    Ok(())
}

fn once(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    for _ in 0..2 {
        let counted = update(videos.find(1)).set(views.eq(views + 1));
        assert_eq!(counted.idempotency_key("once").execute(conn)?, 1);
    }
    Ok(())
}

fn coalesced(surrounded: &Surrounded<'_>) -> Result {
    let coalescer = Coalescer::new(surrounded.pool()?)?;
    for video in 1..=3 {
        coalescer.add_later(&RowCounter::of(views, video), 1)?;
    }
    coalescer.flush()?;
    coalescer.add_later(&RowCounter::of(views, 3), 2)?;
    coalescer.add_later(&Counter::named("page:/"), 1)?;
    Ok(coalescer.close()?)
}

fn fold_all(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    let folded = fold(videos).keep_shards(0).run(conn)?;
    assert_eq!((folded.parents, folded.finished), (3, true));
    assert_eq!((folded.unfit, folded.busy), (vec![], vec![]));
    let folded = videos.filter(views.eq(views.total()));
    assert_eq!(folded.count().limit(1).get_result::<i64>(conn)?, 3);
    Ok(())
}

fn set(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    assert_eq!(set_total(videos, views, 5).execute(conn)?, 3);
    Ok(())
}

/// At last to the number that the derive has: other tests count meanwhile.
fn resize(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    for number in [6, 4] {
        ShardCount::of(likes).resize(number, conn)?;
        assert_eq!(ShardCount::of(likes).get(conn)?, number);
    }
    Ok(())
}

fn repair(surrounded: &Surrounded<'_>) -> Result {
    let conn = &mut surrounded.connect()?;
    let recount = comments::table
        .group_by(comments::video_id)
        .select((comments::video_id, count_star()));
    let drifts = verify(videos, likes, recount).drifts(conn)?;
    assert!(!drifts.is_empty());
    let repaired = verify(videos, likes, recount).repair(conn)?;
    assert_eq!(repaired.len(), drifts.len());
    assert_eq!(verify(videos, likes, recount).drifts(conn)?.len(), 0);
    Ok(())
}

fn drop_shards(surrounded: &Surrounded<'_>) -> Result {
    Ok(ShardsTable::of(videos).drop(&mut surrounded.connect()?)?)
}

/// Whether a refusal names its reason: by the error's type, or, of the coalescer, which retries it, by its text.
fn is_typed(error: Box<dyn StdError + Send + Sync>) -> bool {
    let error = match error.downcast::<DieselError>() {
        Ok(error) => Error::from(*error),
        Err(error) => match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(_) => return false,
        },
    };
    match error {
        Error::Diesel(DieselError::DatabaseError(kind, told)) => {
            // Diesel's `batch_execute` gives errors no kind.
            matches!(kind, DatabaseErrorKind::ReadOnlyTransaction)
                || told.message().contains("READ ONLY transaction")
        }
        Error::FlushPending { reason, .. } => reason.contains("refuses"),
        error => matches!(
            error,
            Error::NodeNotReady { .. } | Error::RefusedBySetting { .. }
        ),
    }
}

/// Returns the SQL that connections begin with there. A surrounding that is a kind of table is built.
fn arrange(surrounding: &'static str, conn: &mut Conn) -> &'static str {
    if let Some((setup, _)) = surrounding
        .strip_prefix('`')
        .and_then(|rest| rest.split_once('`'))
    {
        return setup;
    }
    let latin1 = "ALTER TABLE videos CONVERT TO CHARACTER SET latin1";
    match surrounding {
        "a partitioned parent" => partition(conn),
        "a parent whose text is latin1" => conn.batch_execute(latin1).unwrap(),
        _ => panic!("no surrounding {surrounding}"),
    }
    BEFORE
}

fn partition(conn: &mut Conn) {
    ShardsTable::of(videos).drop(conn).unwrap();
    conn.batch_execute(
        "ALTER TABLE videos RENAME TO plain;
         CREATE TABLE videos (LIKE plain INCLUDING DEFAULTS, PRIMARY KEY (id)) PARTITION BY HASH (id);
         CREATE TABLE videos_even PARTITION OF videos FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE videos_odd PARTITION OF videos FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         INSERT INTO videos SELECT * FROM plain",
    )
    .unwrap();
    ShardsTable::of(videos).create(conn).unwrap();
}

/// What is otherwise than the row says, in the empty database at `url`.
pub fn otherwise(
    Row {
        surrounding,
        refused,
    }: Row,
    url: &str,
) -> Vec<String> {
    let patient = RetryPolicy::new().with_attempts(10_000);
    patient.with_deadline(Duration::from_secs(60)).set_global();
    let conn = &mut Conn::establish(url).unwrap();
    if surrounding.contains("(MariaDB)") && !conn.version().contains("MariaDB") {
        return vec![]; // it knows no such setting
    }
    conn.batch_execute(BEFORE).unwrap();
    schema::create(conn);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let setup = arrange(surrounding, conn);
    let (of_the_page, _) = table();
    let mut otherwise = vec![];
    for name in FURTHER_OPERATIONS.into_iter().chain(of_the_page) {
        let may_be_refused = refused == ANY;
        if may_be_refused && name == "key" {
            continue; // its threads may be refused one by one
        }
        // Something is on shards, whatever ran before.
        let counted = update(videos).set(views.eq(views + 7));
        assert_eq!(counted.execute(conn), Ok(3));
        let mut expected = Totals::read(url, false);
        let (run, effect) = operation(name);
        let ended = run(&Surrounded {
            url,
            setup,
            totals: &expected,
        });
        let is_done = ended.is_ok();
        let told = match &ended {
            Ok(()) => "it holds".to_owned(),
            Err(error) => error.to_string(),
        };
        if is_done {
            effect(&mut expected);
        }
        let totals = Totals::read(url, name == "drop" && is_done);
        assert_eq!(totals, expected, "{surrounding}, {name}: {told}");
        let is_typed = SECTION == "SQLite" || ended.err().is_none_or(is_typed);
        if !is_typed || !(may_be_refused || is_done == holds(name, refused)) {
            otherwise.push(format!("{surrounding}, {name}: {told}"));
        }
    }
    otherwise
}

#[test]
fn every_operation_does_what_the_table_says() {
    let (operations, rows) = table();
    assert!(operations.len() > 10 && rows.len() > 5);
    let further = FURTHER.iter().map(|(surrounding, refused)| Row {
        surrounding,
        refused,
    });
    let otherwise = rows.into_iter().chain(further).flat_map(|row| {
        let database = Conn::database();
        otherwise(row, database.url())
    });
    let otherwise: Vec<_> = otherwise.collect();
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n"));
}

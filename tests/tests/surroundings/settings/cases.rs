//! Every operation in the surroundings that the reference page names, and in further ones: it is done, exactly, or it is refused by an
//! error that gives the reason, and then nothing has changed.

use std::error::Error as StdError;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{Error, MIGRATIONS, RowCounter, ShardsTable, fold, update};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, pool_with, schema};

use super::operations::{ALL, Before, LIKES, VIEWS, arrange, ask, counter, totals};
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
}

impl Surrounded<'_> {
    fn connect(&self) -> Result<Conn> {
        let mut conn = Conn::establish(self.url)?;
        conn.batch_execute(BEFORE)?;
        conn.batch_execute(self.setup)?;
        Ok(conn)
    }
}

/// Operations that the page does not name.
const FURTHER_OPERATIONS: [&str; 3] = ["one", "all", "once by filter"];

impl Surrounded<'_> {
    /// Runs an operation of the tables on a video. Returns what it adds to the totals.
    fn run(&self, name: &str, video: i64) -> Result<i64> {
        let name = match name {
            "all" => return self.all(),
            "read" => return self.read(video),
            "key" => return self.by_key_beside_folds(video),
            "coalesced" => return self.coalesced(video),
            "drop" => {
                ShardsTable::of(videos).drop(&mut self.connect()?)?;
                return Ok(0);
            }
            "one" => "by key",
            "filter" => "by filter",
            "rows" => "by filter, rows back",
            "inside" => "in a transaction",
            "once" => "keyed",
            "once by filter" => "keyed, by filter",
            "set" => "set_total",
            name => name,
        };
        let operation = ALL.iter().find(|(other, ..)| *other == name);
        let (.., work) = operation.unwrap_or_else(|| panic!("no operation {name}"));
        Ok(work(&mut self.connect()?, video)?)
    }

    fn all(&self) -> Result<i64> {
        let conn = &mut self.connect()?;
        let counted = update(videos).set(views.eq(views + 1)).execute(conn)?;
        assert!(counted > 3);
        Ok(1)
    }

    /// With limits of its own, since a setting may limit queries that have none.
    fn read(&self, video: i64) -> Result<i64> {
        let conn = &mut self.connect()?;
        let totals = videos.select((views.total(), likes.total())).order(id);
        let totals: Vec<(i64, i32)> = totals.filter(id.eq(video)).limit(3).load(conn)?;
        assert_eq!(totals, [(VIEWS, LIKES as i32)]);
        let more = videos.filter(views.total().gt(VIEWS - 1).and(id.eq(video)));
        let more: Vec<i64> = more.select(views.total()).limit(3).load(conn)?;
        assert_eq!(more, [VIEWS]);
        Ok(0)
    }

    /// From four threads, beside one that folds.
    fn by_key_beside_folds(&self, video: i64) -> Result<i64> {
        let count = || -> Result {
            let conn = &mut self.connect()?;
            for _ in 0..10 {
                let counted = update(videos.find(video)).set(views.eq(views + 1));
                assert_eq!(counted.execute(conn)?, 1);
            }
            Ok(())
        };
        let fold_it = || -> Result {
            let conn = &mut self.connect()?;
            for _ in 0..5 {
                let folded = fold(videos.find(video)).run(conn)?;
                assert!(folded.unfit.is_empty());
            }
            Ok(())
        };
        thread::scope(|scope| {
            let mut threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.push(scope.spawn(fold_it));
            let ended = threads.into_iter().map(|thread| thread.join().unwrap());
            ended.fold(Ok(()), Result::and)
        })?;
        Ok(40)
    }

    fn coalesced(&self, video: i64) -> Result<i64> {
        let coalescer = Coalescer::new(pool_with::<Conn>(self.url, &[BEFORE, self.setup]))?;
        let views_of_video = RowCounter::of(views, video);
        coalescer.add_later(&views_of_video, 1)?;
        coalescer.flush()?;
        coalescer.add_later(&views_of_video, 2)?;
        coalescer.add_later(&counter(video), 1)?;
        coalescer.close()?;
        Ok(4)
    }
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
        Error::NodeNotReady { .. } | Error::RefusedBySetting { .. } => true,
        _ => false,
    }
}

/// Returns the SQL that connections begin with there. A surrounding that is a kind of table is built.
fn build(surrounding: &'static str, conn: &mut Conn) -> &'static str {
    if surrounding.starts_with('`') {
        return surrounding.split('`').nth(1).unwrap();
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
pub fn otherwise(row: Row, url: &str) -> Vec<String> {
    let Row {
        surrounding,
        refused,
    } = row;
    let patient = RetryPolicy::new().with_attempts(10_000);
    patient.with_deadline(Duration::from_secs(60)).set_global();
    let conn = &mut Conn::establish(url).unwrap();
    if surrounding.contains("(MariaDB)") && !conn.version().contains("MariaDB") {
        return vec![]; // it knows no such setting
    }
    conn.batch_execute(BEFORE).unwrap();
    schema::create(conn);
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let setup = build(surrounding, conn);
    let (of_the_page, _) = table();
    let mut otherwise = vec![];
    for (video, name) in (1000..).zip(FURTHER_OPERATIONS.into_iter().chain(of_the_page)) {
        let may_be_refused = refused == ANY;
        if may_be_refused && name == "key" {
            continue; // its threads may be refused one by one
        }
        arrange(name, Before::Shards, video, conn);
        let before = totals(video, conn);
        let ended = Surrounded { url, setup }.run(name, video);
        let is_done = ended.is_ok();
        let told = match &ended {
            Ok(_) => "it holds".to_owned(),
            Err(error) => error.to_string(),
        };
        let after = match name {
            "drop" if is_done => {
                let bases = format!("SELECT views + likes FROM videos WHERE id = {video}");
                ask(&bases, conn).unwrap()
            }
            _ => totals(video, conn),
        };
        let added = *ended.as_ref().unwrap_or(&0);
        assert_eq!(after - before, added, "{surrounding}, {name}: {told}");
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

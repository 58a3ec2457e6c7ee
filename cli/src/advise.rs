//! `diesel-sharded advise`: columns that are counted on one row, before they are sharded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;
use serde::Serialize;

use crate::args::AdviseArgs;
use crate::connection::{AnyConnection, is_schema};
use crate::error::{Ended, Error};
use crate::interrupt;
use crate::live::LiveTables;
use crate::output::{self, or_dash};
use crate::sharded::{self, names};
use crate::shell;
use crate::statement::{Token, quoted, tokens};

/// The pause between two looks at running statements.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default, Serialize)]
struct Report {
    seconds: f64,
    /// The remedies where the database shows less than it could.
    notes: Vec<String>,
    columns: Vec<Advice>,
    assumption: Option<&'static str>,
}

/// A column that statements count on.
#[derive(Debug, Serialize)]
struct Advice {
    table: String,
    column: String,
    /// Whether it has shards, so that these statements are those of code without the library.
    sharded: bool,
    /// Since the database's statistics began.
    counts: Option<u64>,
    counts_per_second: Option<f64>,
    mean_ms: Option<f64>,
    /// Of the statements seen running, the part that waited for a lock.
    waiting_share: Option<f64>,
    /// On average at one moment.
    waiting_sessions: f64,
    next: String,
}

/// The findings about one column.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    counts: u64,
    /// Within the time of looking.
    new_counts: u64,
    new_ms: f64,
    running: u64,
    waiting: u64,
}

/// The columns of a table that statements count on, whatever name of the table they use.
struct Columns {
    live: Arc<LiveTables>,
    table: String,
    columns: Vec<String>,
    seen: Seen,
}

pub fn run(args: &AdviseArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    interrupt::handle("showing what was seen so far")?;
    let report = match conn.dialect() {
        Dialect::Sqlite => Report {
            notes: vec![ON_SQLITE.to_owned()],
            ..Report::default()
        },
        _ => look(args, conn)?,
    };
    match args.json {
        true => output::json(&report)?,
        false => show(&report)?,
    }
    Ok(Ended::Done)
}

const ON_SQLITE: &str = "SQLite keeps no statistics of statements, and has one writer for the whole database: shards do not make its writes faster. If \
writers wait there (SQLITE_BUSY, or seconds in busy_timeout), commit many counts at once by the library's Coalescer. To see how often a \
column is counted, count its statements in the application, as the library's feature `metrics` does.";

fn look(args: &AdviseArgs, conn: &mut AnyConnection) -> Result<Report, Error> {
    // The findings about the statements that count on the same columns. All of these are one write.
    let mut statements = BTreeMap::<Counting, Seen>::new();
    let dialect = conn.dialect();
    let mut add = |text: &str, seen: Seen| {
        if let Some(counting) = Counting::read(text, dialect) {
            statements.entry(counting).or_default().add(seen);
        }
    };
    let mut notes = vec![];
    output::note(&format!(
        "Looking for {} s at the statements of this database…",
        args.seconds
    ));
    let before = or_note(Statistics::read(conn))?;
    let start = Instant::now();
    let end = start + Duration::from_secs(args.seconds.into());
    let mut looks = 0_u32;
    while Instant::now() < end && !interrupt::came() {
        let mut due = Instant::now() + PAUSE;
        match or_note(running(conn))? {
            Ok(running) => {
                looks += 1;
                running.iter().for_each(|(text, seen)| add(text, *seen));
            }
            Err(note) => {
                notes.push(note);
                due = end;
            }
        }
        interrupt::sleep_until(due.min(end));
    }
    let looks = f64::from(looks.max(1));
    let seconds = start.elapsed().as_secs_f64();
    let statistics = match (before, or_note(Statistics::read(conn))?) {
        (Ok(before), Ok(after)) => {
            for (text, digest) in &after.digests {
                add(text, digest.since(before.digests.get(text)));
            }
            Some((before, after))
        }
        (Err(off), _) | (_, Err(off)) => {
            notes.push(off);
            None
        }
    };
    let mut columns = by_column(statements, conn)?;
    if let Some((before, after)) = statistics
        && add_row_updates(&before, &after, seconds * 1000.0 / looks, &mut columns)
    {
        notes.push(BY_TABLE.to_owned());
    }
    let columns = columns.iter();
    let mut columns: Vec<_> = columns
        .map(|columns| columns.advice(dialect, seconds, looks))
        .collect();
    let rate = |advice: &Advice| advice.counts_per_second.unwrap_or(0.0);
    columns.sort_by(|a, b| {
        let by_waits = b.waiting_sessions.total_cmp(&a.waiting_sessions);
        by_waits.then(rate(b).total_cmp(&rate(a)))
    });
    Ok(Report {
        seconds,
        notes,
        columns,
        assumption: Some(ASSUMPTION),
    })
}

/// What was read, or the remedy where the database refused it.
fn or_note<T>(read: Result<T, Error>) -> Result<Result<T, String>, Error> {
    match read {
        Err(Error::Refused(note)) => Ok(Err(note)),
        read => read.map(Ok),
    }
}

impl Seen {
    /// What came since an earlier look. Statistics that were reset meanwhile begin again.
    fn since(self, earlier: Option<&Seen>) -> Self {
        let earlier = earlier.copied().unwrap_or_default();
        Seen {
            new_counts: self.counts.saturating_sub(earlier.counts),
            new_ms: (self.new_ms - earlier.new_ms).max(0.0),
            ..self
        }
    }

    fn add(&mut self, other: Seen) {
        self.counts += other.counts;
        self.new_counts += other.new_counts;
        self.new_ms += other.new_ms;
        self.running += other.running;
        self.waiting += other.waiting;
    }
}

/// The columns to which the statements' names lead.
fn by_column(
    statements: BTreeMap<Counting, Seen>,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Columns>> {
    let dialect = conn.dialect();
    let plain = Arc::new(LiveTables::read(conn)?);
    let mut places = BTreeMap::from([(None, plain)]);
    let mut columns = BTreeMap::<(String, Vec<String>), Columns>::new();
    for (counting, seen) in statements {
        let Some(live) = place(&counting, &mut places, conn)? else {
            continue;
        };
        let mut names = live.tables.keys();
        let by_name = names.find(|name| is_one(name, &counting.table, dialect));
        // There may be names that differ by case alone.
        let by_name = live
            .tables
            .get_key_value(&counting.table)
            .map_or(by_name, |(name, _)| Some(name));
        let Some(table) = by_name.map(|name| &live.tables[name]) else {
            continue;
        };
        let counted = table.columns.iter().filter(|column| {
            let mut counted = counting.columns.iter();
            let is_counted = counted.any(|name| is_one(name, &column.name, dialect));
            is_counted && column.key.is_none() && column.as_field(dialect).is_some()
        });
        let counted: Vec<_> = counted.map(|column| column.name.clone()).collect();
        // A shards table is counted on too, by those whose statements name it.
        let is_shards = table.name.ends_with("_shards") && table.column("shard").is_some();
        if counted.is_empty() || is_shards {
            continue;
        }
        let key = (live.full(&table.name), counted.clone());
        let of_columns = columns.entry(key).or_insert_with(|| Columns {
            live: Arc::clone(&live),
            table: table.name.clone(),
            columns: counted,
            seen: Seen::default(),
        });
        of_columns.seen.add(seen);
    }
    Ok(columns.into_values().collect())
}

/// The tables among which the one is that a statement counts on: those of this session's plain names, or of the schema that it names.
fn place(
    counting: &Counting,
    places: &mut BTreeMap<Option<String>, Arc<LiveTables>>,
    conn: &mut AnyConnection,
) -> QueryResult<Option<Arc<LiveTables>>> {
    let mut named = counting.schema.clone();
    if let Some(schema) = &named {
        let plain = catalog!(server conn.dialect(), "schema_of_plain");
        if conn.texts(plain, &[&counting.table])?.contains(schema) {
            named = None;
        } else if !is_schema(schema, conn)? {
            return Ok(None);
        }
    }
    if let (Some(schema), false) = (&named, places.contains_key(&named)) {
        let live = places[&None].in_schema(schema, conn)?;
        places.insert(named.clone(), live);
    }
    Ok(places.get(&named).cloned())
}

/// Where no digest has a column whose statements were seen running, the updates of its table are counted, and `time` in milliseconds
/// stands for each time that one was seen. Tells whether there was such a column.
fn add_row_updates(
    before: &Statistics,
    after: &Statistics,
    time: f64,
    columns: &mut [Columns],
) -> bool {
    let mut added = false;
    for Columns {
        live, table, seen, ..
    } in columns
    {
        // Those of this database alone are known.
        let is_left_out = seen.new_counts == 0 && seen.running > 0 && live.schema().is_none();
        let updates = after.row_updates.get(table.as_str());
        if let Some(updates) = updates.filter(|_| is_left_out) {
            let before = before.row_updates.get(table.as_str());
            seen.counts = *updates;
            seen.new_counts = updates.saturating_sub(before.copied().unwrap_or(0));
            seen.new_ms = seen.running as f64 * time;
            added = true;
        }
    }
    added
}

const BY_TABLE: &str = "The server's digests leave out statements that the client prepared, as Diesel does on MariaDB. Their counts are the row \
updates of the whole table, and their times those of the statements that were seen running.";

impl Columns {
    fn advice(&self, dialect: Dialect, seconds: f64, looks: f64) -> Advice {
        let (name, counted, seen) = (&self.table, &self.columns, self.seen);
        let table = self.live.full(name);
        let sharded = sharded::all(dialect, &self.live).iter().any(|sharded| {
            let fields = names(sharded.fields());
            let mut counted = counted.iter();
            sharded.table().name() == name && counted.all(|name| fields.contains(&name.as_str()))
        });
        let next = match sharded {
            true => format!(
                "{table} has shards already: the code that sends this needs `use diesel_sharded::update`"
            ),
            false => {
                let columns = counted.iter().map(String::as_str);
                shell::command(["generate", &*table].into_iter().chain(columns))
            }
        };
        let new = (seen.new_counts > 0).then_some(seen.new_counts as f64);
        Advice {
            table,
            column: counted.join(", "),
            sharded,
            counts: (seen.counts > 0).then_some(seen.counts),
            counts_per_second: (seen.counts > 0).then_some(seen.new_counts as f64 / seconds),
            mean_ms: new.map(|new| seen.new_ms / new),
            waiting_share: (seen.running > 0).then(|| seen.waiting as f64 / seen.running as f64),
            waiting_sessions: seen.waiting as f64 / looks,
            next,
        }
    }
}

fn show(report: &Report) -> Result<(), Error> {
    for note in &report.notes {
        output::line(&format!("{note}\n"))?;
    }
    let Some(assumption) = report.assumption else {
        return Ok(());
    };
    if report.columns.is_empty() {
        return output::line(
            "No statement counts on a row: none of the form UPDATE t SET c = c + n was seen.",
        );
    }
    let rows = report.columns.iter().map(|advice| {
        let rate = advice.counts_per_second.map(|n| format!("{n:.1}"));
        let share = advice.waiting_share.map(|n| format!("{:.0}%", n * 100.0));
        vec![
            ("table", advice.table.clone()),
            ("column", advice.column.clone()),
            ("counts", or_dash(advice.counts)),
            ("a second", or_dash(rate)),
            (
                "mean ms",
                or_dash(advice.mean_ms.map(|n| format!("{n:.2}"))),
            ),
            ("wait", or_dash(share)),
            (
                "waiting sessions",
                format!("{:.1}", advice.waiting_sessions),
            ),
        ]
    });
    output::table(&rows.collect::<Vec<_>>())?;
    for advice in &report.columns {
        let verdict = match advice.waiting_share {
            Some(share) if share >= 0.2 => {
                "sessions wait for its rows, and shards would let them go on"
            }
            Some(_) => "few wait for its rows: shards would give little now",
            None => "none was running when it was looked at: shards would give little now",
        };
        output::line(&format!(
            "\n{}.{}: {verdict}.\n  {}",
            advice.table, advice.column, advice.next
        ))?;
    }
    output::line(&format!("\n{assumption}"))
}

const ASSUMPTION: &str = "Assumed: the writers wait for one row, as in the library's benchmark. The page benchmarks of its documentation says how \
many times the counts of one row its shards take on each database.";

/// The database's own statistics about the statements that it ran, at one moment.
struct Statistics {
    /// Of each kind of statements how many there were since the statistics began, and their milliseconds.
    digests: BTreeMap<String, Seen>,
    /// How many rows of each table were updated: MariaDB's digests leave out statements that a client prepared.
    row_updates: BTreeMap<String, u64>,
}

/// PostgreSQL's pattern of an update, behind comments or not. It has no backslash, which some sessions read otherwise.
const IS_UPDATE: &str = "^([[:space:]]|/[*].*[*]/|--[^\n]*\n)*update[[:space:]]";

/// PostgreSQL's text in place of another role's statement.
const HIDDEN: &str = "<insufficient privilege>";

impl Statistics {
    /// They are refused with the way to switch them on.
    fn read(conn: &mut AnyConnection) -> Result<Self, Error> {
        let dialect = conn.dialect();
        let state = conn.rows(catalog!(server dialect, "statistics"), &[])?;
        let get = |column| state.first().and_then(|row| row.get(column));
        let Some(schema) = get(0) else {
            let is_loaded = |libraries: &str| libraries.contains("pg_stat_statements");
            return Err(Error::refused(match dialect {
                Dialect::Postgres if get(1).is_some_and(is_loaded) => {
                    "PostgreSQL keeps no statistics of statements that this database may read: CREATE EXTENSION pg_stat_statements;"
                }
                Dialect::Postgres => {
                    "PostgreSQL keeps no statistics of statements: set shared_preload_libraries = 'pg_stat_statements' in \
                     postgresql.conf, restart it, and run CREATE EXTENSION pg_stat_statements;"
                }
                _ => {
                    "The server keeps no statistics of statements: set performance_schema = ON under [mysqld] in its configuration, \
                     and restart it."
                }
            }));
        };
        let remedy = match dialect {
            Dialect::Postgres => "The extension has to be in shared_preload_libraries.",
            _ => "GRANT SELECT ON performance_schema.* to this role.",
        };
        let source =
            catalog!(server dialect, "digests").replace("{schema}", &quoted(dialect, schema));
        let rows = conn.rows(&source, &[IS_UPDATE, HIDDEN]).map_err(|error| {
            refused(error, "The statistics of statements cannot be read", remedy)
        })?;
        if let [Some(HIDDEN)] = rows.iter().map(|row| row.get(0)).collect::<Vec<_>>()[..] {
            return Err(Error::refused(
                "The statements of other roles are hidden from this one: GRANT pg_read_all_stats to it.",
            ));
        }
        let digests = rows.iter().map(|row| {
            let seen = Seen {
                counts: row.parse(1)?,
                new_ms: row.parse(2)?,
                ..Seen::default()
            };
            Ok((row.text(0)?.to_owned(), seen))
        });
        let updates = match dialect {
            Dialect::Mysql => conn.rows(catalog!("mysql/", "row_updates"), &[])?,
            _ => vec![],
        };
        let row_updates = updates.iter();
        let row_updates = row_updates.map(|row| Ok((row.text(0)?.to_owned(), row.parse(1)?)));
        Ok(Statistics {
            digests: digests.collect::<QueryResult<_>>()?,
            row_updates: row_updates.collect::<QueryResult<_>>()?,
        })
    }
}

/// The database's refusal with what it means, or any other error.
fn refused(error: DieselError, says: &str, remedy: &str) -> Error {
    match error {
        DieselError::DatabaseError(_, refused) => {
            Error::Refused(format!("{says}: {}. {remedy}", refused.message()))
        }
        error => error.into(),
    }
}

/// The updates that run in other sessions of this database, and whether they wait for a lock; refused where they are not seen.
fn running(conn: &mut AnyConnection) -> Result<Vec<(String, Seen)>, Error> {
    let rows = conn.rows(catalog!(server conn.dialect(), "running"), &[IS_UPDATE]);
    let rows =
        rows.map_err(|error| refused(error, "Waits are not seen", "GRANT PROCESS to this role."))?;
    let running = rows.iter().map(|row| {
        let seen = Seen {
            running: 1,
            waiting: u64::from(row.get(1) == Some("1")),
            ..Seen::default()
        };
        Ok((row.text(0)?.to_owned(), seen))
    });
    running.collect()
}

/// The table and the columns that a statement `UPDATE t SET c = c + n` counts on, by the names that the database reads there.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Counting {
    schema: Option<String>,
    table: String,
    columns: Vec<String>,
}

impl Counting {
    /// Nothing for any other statement.
    fn read(sql: &str, dialect: Dialect) -> Option<Self> {
        let tokens = tokens(sql);
        let mut rest = tokens.iter().filter(|token| !token.is(";")).peekable();
        rest.next_if(|token| token.is("UPDATE"))?;
        let is_option = |token: &&Token| token.is_any(&["ONLY", "LOW_PRIORITY", "IGNORE"]);
        while rest.next_if(is_option).is_some() {}
        // The name, the last part of it behind a dot, is followed by SET, or by `v` or `AS v` before it.
        let (mut schema, mut table) = (None, rest.next()?);
        while rest.next_if(|token| token.is(".")).is_some() {
            schema = Some(table);
            table = rest.next()?;
        }
        rest.by_ref().take(3).find(|token| token.is("SET"))?;
        let is_end =
            |token: &Token| token.is_any(&["WHERE", "RETURNING", "FROM", "ORDER", "LIMIT"]);
        let assignments: Vec<_> = rest.take_while(|token| !is_end(token)).collect();
        let columns = split(&assignments).filter_map(|assignment| counted(assignment, dialect));
        let columns: Vec<_> = columns.collect();
        (!columns.is_empty()).then(|| Counting {
            schema: schema.map(|schema| name(schema, dialect)),
            table: name(table, dialect),
            columns,
        })
    }
}

/// At the commas outside of parentheses.
fn split<'t>(tokens: &'t [&'t Token]) -> impl Iterator<Item = &'t [&'t Token]> {
    let mut depth = 0;
    tokens.split(move |token| {
        depth += i32::from(token.is("(")) - i32::from(token.is(")"));
        depth == 0 && token.is(",")
    })
}

/// PostgreSQL reads a name without quotes in lower case.
fn name(token: &Token, dialect: Dialect) -> String {
    match (dialect, token.quoted) {
        (Dialect::Postgres, false) => token.text.to_ascii_lowercase(),
        _ => token.text.clone(),
    }
}

/// Whether two names of columns are one. They differ by case on PostgreSQL alone.
fn is_one(one: &str, other: &str, dialect: Dialect) -> bool {
    one == other || dialect != Dialect::Postgres && one.to_lowercase() == other.to_lowercase()
}

/// The column of `c = c + n`, however it is qualified and bracketed.
fn counted(assignment: &[&Token], dialect: Dialect) -> Option<String> {
    let mut plain: Vec<&Token> = vec![];
    for token in assignment {
        match token.text.as_str() {
            "(" | ")" if !token.quoted => {}
            // `videos.` in front of a column; a number has its own dot.
            "." if !token.quoted => {
                plain.pop_if(|qualifier| !is_value(qualifier));
            }
            _ => plain.push(token),
        }
    }
    let (column, rest) = plain.split_first()?;
    let (equals, sum) = rest.split_first()?;
    let column = name(column, dialect);
    let same = |token: &Token| is_one(&name(token, dialect), &column, dialect);
    let counts = match sum {
        [coalesce, own, comma, zero, rest @ ..]
            if coalesce.is_any(&["COALESCE", "IFNULL"]) && comma.is(",") && is_value(zero) =>
        {
            same(own) && is_added(rest)
        }
        [own, rest @ ..] if same(own) => is_added(rest),
        [value, plus, own] => is_value(value) && plus.is("+") && same(own),
        _ => false,
    };
    (equals.is("=") && counts).then_some(column)
}

/// `+ n`, with a cast behind it or not.
fn is_added(tokens: &[&Token]) -> bool {
    let (sign, tokens) = match tokens {
        [sign, minus, rest @ ..] if minus.is("-") => (sign, rest),
        [sign, rest @ ..] => (sign, rest),
        [] => return false,
    };
    let Some((value, rest)) = tokens.split_first() else {
        return false;
    };
    let mut rest = rest.iter();
    let is_part = |token: &&Token| !token.is_any(&["+", "-", "*", "/", "%"]);
    sign.is_any(&["+", "-"]) && is_value(value) && rest.all(is_part)
}

/// A number, or the place of one.
fn is_value(token: &Token) -> bool {
    let first = token.text.chars().next();
    !token.quoted && first.is_some_and(|c| c.is_ascii_digit() || "?$:@".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(sql: &str) -> Option<(String, Vec<String>)> {
        let counting = Counting::read(sql, Dialect::Postgres)?;
        Some((counting.table, counting.columns))
    }

    #[test]
    fn statements_that_count() {
        for sql in [
            "UPDATE videos SET views = views + 1 WHERE id = 7",
            r#"UPDATE "videos" SET "views" = ("videos"."views" + $1) WHERE ("videos"."id" = $2)"#,
            "UPDATE `videos` SET `views` = `views` + ? WHERE `id` = ?",
            "UPDATE `videos` SET `views` = ( `videos` . `views` + ? ) WHERE ( `videos` . `id` = ? )",
            "update public.videos as v set views = v.views + 1.5, title = 'a, b' where v.id = 1;",
            "UPDATE ONLY videos SET title = $1, views = $2 + views",
            "UPDATE videos SET views = COALESCE(views, 0) - $1::bigint RETURNING views",
            "UPDATE videos SET views = views + -1",
        ] {
            let expected = ("videos".to_owned(), vec!["views".to_owned()]);
            assert_eq!(columns(sql), Some(expected), "{sql}");
        }
        for (dialect, sql, schema, table, column) in [
            (
                Dialect::Postgres,
                r#"UPDATE Shop."My Posts" SET "View Count" = "View Count" + 1"#,
                Some("shop"),
                "My Posts",
                "View Count",
            ),
            (
                Dialect::Mysql,
                "UPDATE `Shop` . `My Posts` SET `View Count` = `view count` + ?",
                Some("Shop"),
                "My Posts",
                "View Count",
            ),
            (
                Dialect::Postgres,
                "/* app */ UPDATE Videos SET Views = VIEWS + 1",
                None,
                "videos",
                "views",
            ),
        ] {
            let counting = Counting::read(sql, dialect).unwrap();
            assert_eq!(counting.schema.as_deref(), schema, "{sql}");
            assert_eq!(
                (&*counting.table, &*counting.columns[0]),
                (table, column),
                "{sql}"
            );
        }
        let both = "UPDATE videos SET views = views + ?, likes = likes - ? WHERE id = ?";
        assert_eq!(columns(both).unwrap().1, ["views", "likes"]);
    }

    #[test]
    fn statements_that_do_not() {
        for sql in [
            "UPDATE videos SET views = 5 WHERE id = 7",
            r#"UPDATE videos SET "Views" = views + 1"#,
            "UPDATE videos SET views = likes + 1",
            "UPDATE videos SET views = views * 2",
            "UPDATE videos SET views = views + likes",
            "UPDATE videos SET views = views + 1 * likes",
            "SELECT views + 1 FROM videos",
            "UPDATE videos",
            "UPDATE",
            "",
        ] {
            assert_eq!(columns(sql), None, "{sql}");
        }
    }
}

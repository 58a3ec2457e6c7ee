//! `diesel-sharded advise`: columns that are counted on one row, before they are sharded.

use std::cmp::Ordering;
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
use crate::output;
use crate::sharded::{self, names};
use crate::shell;
use crate::statement::{Row, Token, tokens};

/// The pause between two looks at running statements.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default, Serialize)]
struct Report {
    seconds: f64,
    columns: Vec<Advice>,
    /// Why nothing was looked at.
    note: Option<String>,
}

/// A column that statements count on.
#[derive(Debug, Serialize)]
struct Advice {
    table: String,
    column: String,
    /// Whether it has shards, so that these statements are those of code without the library.
    sharded: bool,
    /// On average at one moment.
    running_sessions: f64,
    waiting_sessions: f64,
    /// Of the statements seen running, the part that waited for a lock.
    waiting_share: f64,
    next: String,
}

/// How often statements were seen.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
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
            note: Some(ON_SQLITE.to_owned()),
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

const ON_SQLITE: &str = "SQLite does not show what others run, and has one writer for the whole database: shards do not make its writes faster. If \
writers wait there (SQLITE_BUSY, or seconds in busy_timeout), commit many counts at once by the library's Coalescer. To see how often a \
column is counted, count its statements in the application, as the library's feature `metrics` does.";

fn look(args: &AdviseArgs, conn: &mut AnyConnection) -> Result<Report, Error> {
    let dialect = conn.dialect();
    // By the columns that statements count on. All of these are one write.
    let mut statements = BTreeMap::<Counting, Seen>::new();
    output::note(&format!(
        "Looking for {} s at the statements of this database…",
        args.seconds
    ));
    let start = Instant::now();
    let end = start + Duration::from_secs(args.seconds.into());
    let (mut looks, mut is_hidden) = (0_u32, false);
    while Instant::now() < end && !interrupt::came() {
        let due = Instant::now() + PAUSE;
        for row in running(conn)? {
            is_hidden |= row.get(0) == Some(HIDDEN);
            if let Some(counting) = Counting::read(row.text(0)?, dialect) {
                let seen = statements.entry(counting).or_default();
                seen.running += 1;
                seen.waiting += u64::from(row.get(1) == Some("1"));
            }
        }
        looks += 1;
        interrupt::sleep_until(due.min(end));
    }
    let columns = by_column(statements, conn)?;
    if columns.is_empty() && is_hidden {
        return Err(Error::refused(
            "The statements of other roles are hidden from this one: GRANT pg_read_all_stats to it.",
        ));
    }
    let columns = columns.iter().map(|columns| columns.advice(dialect, looks));
    let mut columns: Vec<_> = columns.collect();
    let sessions = |advice: &Advice| (advice.waiting_sessions, advice.running_sessions);
    columns.sort_by(|a, b| {
        sessions(b)
            .partial_cmp(&sessions(a))
            .unwrap_or(Ordering::Equal)
    });
    Ok(Report {
        seconds: start.elapsed().as_secs_f64(),
        columns,
        note: None,
    })
}

/// PostgreSQL's pattern of an update, behind comments or not. It has no backslash, which some sessions read otherwise.
const IS_UPDATE: &str = "^([[:space:]]|/[*].*[*]/|--[^\n]*\n)*update[[:space:]]";

/// PostgreSQL's text in place of another role's statement.
const HIDDEN: &str = "<insufficient privilege>";

/// The updates that run in other sessions of this database, and whether they wait for a lock.
fn running(conn: &mut AnyConnection) -> Result<Vec<Row>, Error> {
    let rows = conn.rows(
        catalog!(server conn.dialect(), "running"),
        &[IS_UPDATE, HIDDEN],
    );
    rows.map_err(|error| match error {
        DieselError::DatabaseError(_, refused) => Error::Refused(format!(
            "Waits are not seen: {}. GRANT PROCESS to this role.",
            refused.message()
        )),
        error => error.into(),
    })
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
        let by_case = || {
            let mut tables = live.tables.values();
            tables.find(|table| is_one(&table.name, &counting.table, dialect))
        };
        let Some(table) = live.tables.get(&counting.table).or_else(by_case) else {
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
        of_columns.seen.running += seen.running;
        of_columns.seen.waiting += seen.waiting;
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

impl Columns {
    fn advice(&self, dialect: Dialect, looks: u32) -> Advice {
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
        let average = |number: u64| number as f64 / f64::from(looks.max(1));
        Advice {
            table,
            column: counted.join(", "),
            sharded,
            running_sessions: average(seen.running),
            waiting_sessions: average(seen.waiting),
            waiting_share: seen.waiting as f64 / seen.running as f64,
            next,
        }
    }
}

fn show(report: &Report) -> Result<(), Error> {
    if let Some(note) = &report.note {
        return output::line(note);
    }
    if report.columns.is_empty() {
        return output::line(
            "No statement counts on a row: none of the form UPDATE t SET c = c + n was seen running.",
        );
    }
    let rows = report.columns.iter().map(|advice| {
        let share = advice.waiting_share * 100.0;
        vec![
            ("table", advice.table.clone()),
            ("column", advice.column.clone()),
            ("sessions", format!("{:.1}", advice.running_sessions)),
            ("waiting", format!("{:.1}", advice.waiting_sessions)),
            ("wait", format!("{share:.0}%")),
        ]
    });
    output::table(&rows.collect::<Vec<_>>())?;
    for advice in &report.columns {
        let verdict = match advice.waiting_share >= 0.2 {
            true => "sessions wait for its rows, and shards would let them go on",
            false => "few wait for its rows: shards would give little now",
        };
        let Advice {
            table,
            column,
            next,
            ..
        } = advice;
        output::line(&format!("\n{table}.{column}: {verdict}.\n  {next}"))?;
    }
    output::line(ASSUMPTION)
}

const ASSUMPTION: &str = "\nAssumed: the writers wait for one row, as in the library's benchmark. The page benchmarks of its documentation says how \
many times the counts of one row its shards take on each database.";

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

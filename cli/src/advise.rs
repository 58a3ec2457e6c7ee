//! `diesel-sharded advise`: columns that are counted on one row, before they are sharded.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;
use serde::Serialize;

use crate::args::AdviseArgs;
use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::interrupt;
use crate::output;
use crate::privilege::current_role;
use crate::sharded::{self, Sharded, names};
use crate::shell;
use crate::statement::{Row, Token, tokens};

/// The pause between two looks at running statements.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default, Serialize)]
struct Report {
    seconds: f64,
    columns: Vec<Advice>,
    /// The reason why the statements could not be seen.
    note: Option<String>,
}

/// A column that statements count on.
#[derive(Debug, Serialize)]
struct Advice {
    table: String,
    column: String,
    /// Whether it has shards already. Then these statements come from code that does not use the library.
    sharded: bool,
    /// The average at one moment.
    running_sessions: f64,
    waiting_sessions: f64,
    /// The fraction of running statements that waited for a lock.
    waiting_share: f64,
    next: String,
}

/// How often statements were seen.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    running: u64,
    waiting: u64,
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
    // By the table and the columns that one statement counts on.
    let mut columns = BTreeMap::<(String, Vec<String>), Seen>::new();
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
            if let Some(counted) = counted(row.text(0)?) {
                let seen = columns.entry(counted).or_default();
                seen.running += 1;
                seen.waiting += u64::from(row.get(1) == Some("1"));
            }
        }
        looks += 1;
        interrupt::sleep_until(due.min(end));
    }
    if columns.is_empty() && is_hidden {
        let role = current_role(conn)?;
        return Err(Error::refused(format!(
            "The statements of other roles are hidden from this one: GRANT pg_read_all_stats TO {role};"
        )));
    }
    let sharded = sharded::named(&[], |_| {}, conn)?;
    let mut columns: Vec<_> = columns.into_iter().collect();
    columns.sort_by_key(|(_, seen)| Reverse((seen.waiting, seen.running)));
    let columns = columns.into_iter();
    let columns =
        columns.map(|((table, columns), seen)| advice(table, &columns, seen, looks, &sharded));
    Ok(Report {
        seconds: start.elapsed().as_secs_f64(),
        columns: columns.collect(),
        note: None,
    })
}

/// A pattern for PostgreSQL that matches an update, perhaps after comments. It has no backslash, because a setting of the session may
/// change its meaning.
const IS_UPDATE: &str = "^([[:space:]]|/[*].*[*]/|--[^\n]*\n)*update[[:space:]]";

/// The text that PostgreSQL shows instead of another role's statement.
const HIDDEN: &str = "<insufficient privilege>";

/// The updates that run in other sessions of this database, and whether they wait for a lock.
fn running(conn: &mut AnyConnection) -> Result<Vec<Row>, Error> {
    let running = catalog!(server conn.dialect(), "running");
    match conn.rows(running, &[IS_UPDATE, HIDDEN]) {
        Err(DieselError::DatabaseError(_, refused)) => {
            let (says, role) = (refused.message(), current_role(conn)?);
            Err(Error::refused(format!(
                "Waits are not seen: {says}. GRANT PROCESS ON *.* TO {role};"
            )))
        }
        rows => Ok(rows?),
    }
}

fn advice(table: String, columns: &[String], seen: Seen, looks: u32, all: &[Sharded]) -> Advice {
    let sharded = all.iter().any(|sharded| {
        let fields = names(&sharded.fields);
        let mut columns = columns.iter();
        sharded.table().as_str() == table && columns.all(|name| fields.contains(&name.as_str()))
    });
    let next = match sharded {
        true => format!(
            "{table} has shards already: the code that sends this needs `use diesel_sharded::update`"
        ),
        false => {
            let columns = columns.iter().map(String::as_str);
            shell::command(["generate", &*table].into_iter().chain(columns))
        }
    };
    let average = |number: u64| number as f64 / f64::from(looks.max(1));
    Advice {
        table,
        column: columns.join(", "),
        sharded,
        running_sessions: average(seen.running),
        waiting_sessions: average(seen.waiting),
        waiting_share: seen.waiting as f64 / seen.running as f64,
        next,
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
        let (table, column, next) = (&advice.table, &advice.column, &advice.next);
        output::line(&format!("\n{table}.{column}: {verdict}.\n  {next}"))?;
    }
    output::line(ASSUMPTION)
}

const ASSUMPTION: &str = "\nAssumed: the writers wait for one row, as in the library's benchmark. The page benchmarks of its documentation says how \
many times the counts of one row its shards take on each database.";

/// The table and the columns of `UPDATE t SET c = c + n`, under the names in the statement. `None` for any other statement, and for the
/// library's own statements on shards.
fn counted(sql: &str) -> Option<(String, Vec<String>)> {
    let tokens = tokens(sql);
    let place = |words: &[&str]| tokens.iter().position(|token| token.is_any(words));
    let set = place(&["SET"]).filter(|_| tokens[0].is("UPDATE"))?;
    let is_option = |token: &&Token| token.is_any(&["ONLY", "LOW_PRIORITY", "IGNORE"]);
    let mut named = tokens[1..set].iter().skip_while(is_option);
    let mut table = named.next()?.text.clone();
    while named.next().is_some_and(|token| token.is(".")) {
        table = format!("{table}.{}", named.next()?.text);
    }
    let end = place(&["WHERE", "RETURNING", "ORDER", "LIMIT"]).unwrap_or(tokens.len());
    // Without brackets, and `videos.` in front of a column.
    let words = tokens[..end]
        .iter()
        .zip(tokens[1..].iter().map(Some).chain([None]));
    let words = words.skip(set).filter(|(word, next)| {
        let is_qualifier = !is_value(word) && next.is_some_and(|next| next.is("."));
        !is_qualifier && !word.is_any(&["(", ")", "."])
    });
    let words: Vec<_> = words.map(|(word, _)| word).collect();
    let counts = words.windows(5).filter_map(|words| {
        let [column, equals, own, sign, n] = words else {
            return None;
        };
        let counts = equals.is("=") && own.text.eq_ignore_ascii_case(&column.text);
        let adds = sign.is_any(&["+", "-"]) && (is_value(n) || n.is("-"));
        (counts && adds).then(|| column.text.clone())
    });
    let columns: Vec<_> = counts.collect();
    (!columns.is_empty() && !table.ends_with("_shards")).then_some((table, columns))
}

/// A number, or the place of one.
fn is_value(token: &Token) -> bool {
    let first = token.text.chars().next();
    !token.quoted && first.is_some_and(|c| c.is_ascii_digit() || "?$:@".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_count() {
        for sql in [
            "UPDATE videos SET views = views + 1 WHERE id = 7",
            r#"UPDATE "videos" SET "views" = ("videos"."views" + $1) WHERE ("videos"."id" = $2)"#,
            "UPDATE `videos` SET `views` = ( `videos` . `views` + ? ) WHERE ( `videos` . `id` = ? )",
            "update videos as v set views = v.views + 1.5, title = 'a, b' where v.id = 1;",
            "/* app */ UPDATE ONLY videos SET title = $1, views = views - $2::bigint RETURNING views",
            "UPDATE videos SET views = views + -1",
        ] {
            let expected = ("videos".to_owned(), vec!["views".to_owned()]);
            assert_eq!(counted(sql), Some(expected), "{sql}");
        }
        let both = "UPDATE `Shop` . `My Posts` SET `View Count` = `view count` + ?, likes = likes - ? WHERE id = ?";
        let columns = ["View Count", "likes"].map(str::to_owned).to_vec();
        assert_eq!(counted(both), Some(("Shop.My Posts".to_owned(), columns)));
    }

    #[test]
    fn statements_that_do_not() {
        for sql in [
            "UPDATE videos SET views = 5 WHERE id = 7",
            "UPDATE videos SET views = likes + 1",
            "UPDATE videos SET views = views * 2",
            "UPDATE videos SET views = views + likes",
            r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)"#,
            "SELECT views + 1 FROM videos",
            "UPDATE videos",
            "UPDATE",
            "",
        ] {
            assert_eq!(counted(sql), None, "{sql}");
        }
    }
}

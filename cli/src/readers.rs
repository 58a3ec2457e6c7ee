//! `diesel-sharded readers`: what in the database reads a plain column. It sees the base alone, while shards hold the rest of the total.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use serde::Serialize;

use crate::args::ReadersArgs;
use crate::connection::{AnyConnection, within};
use crate::error::{Ended, Error};
use crate::finding::Finding;
use crate::live::LiveTables;
use crate::output::{self, joined};
use crate::sharded::{Sharded, names};
use crate::shell;

pub fn run(args: &ReadersArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let (live, table) = LiveTables::of(&args.table, conn)?;
    let column = &live.table(&table)?.named(&args.column)?.name;
    let shards_table = format!("{table}_shards");
    let shards_table = args.shards_table.as_deref().unwrap_or(&shards_table);
    let readers = within(live.schema(), conn, |conn| {
        Reader::all([&table, column, shards_table], conn)
    })?;
    if args.json {
        output::json(&readers)?;
    } else if readers.is_empty() {
        output::line(&format!(
            "Found nothing in the database that reads {table}.{column}."
        ))?;
    } else {
        let rows = readers.iter().map(Reader::cells).collect::<Vec<_>>();
        output::table(&rows)?;
    }
    Ok(Ended::Done)
}

/// An object of the database that reads the column.
#[derive(Debug, Serialize)]
struct Reader {
    kind: String,
    name: String,
    /// The catalog, which knows it, or the object's text, which has the names or may have them.
    found_in: &'static str,
    instead: &'static str,
}

impl Reader {
    /// Those of a column of a table in the schema to which plain names lead. What names the shards table too reads totals.
    fn all(
        [table, column, shards_table]: [&str; 3],
        conn: &mut AnyConnection,
    ) -> QueryResult<Vec<Self>> {
        let query = catalog!(conn.dialect(), "readers"); // its binds are by turns
        let mut readers = vec![];
        for row in conn.rows(query, &[table, column].repeat(query.matches('?').count()))? {
            let text = row.get(2).map(plain);
            let says = |name| text.as_ref().is_none_or(|text| names_in(text, name));
            let takes_it = || says(column) || text.as_deref().is_some_and(takes_all);
            let found = match (row.text(3)?, &text) {
                ("1", _) => "catalog",
                (_, None) => "text that is hidden",
                _ => "text",
            };
            let reads = match row.text(3)? {
                "1" => true,
                "own" => takes_it(),
                _ => takes_it() && says(table),
            };
            let takes_shards = text
                .as_ref()
                .is_some_and(|text| names_in(text, shards_table));
            if reads && !takes_shards {
                readers.push(Reader {
                    kind: row.text(0)?.to_owned(),
                    name: row.text(1)?.to_owned(),
                    found_in: found,
                    instead: instead_of(
                        row.text(0)?,
                        text.is_some_and(|text| updates(&text, table)),
                    ),
                });
            }
        }
        readers.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
        Ok(readers)
    }

    fn cells(&self) -> output::Cells<'_> {
        vec![
            ("kind", self.kind.clone()),
            ("name", self.name.clone()),
            ("found in", self.found_in.to_owned()),
            ("instead", self.instead.to_owned()),
        ]
    }
}

/// A text in lower case, without the second of two quotes inside a name.
fn plain(text: &str) -> String {
    let text = text.replace("\"\"", "\"").replace("``", "`");
    text.to_lowercase()
}

/// Whether it takes whole rows: by `*`, of all tables or of one, or by a trigger's bare `NEW` or `OLD`.
fn takes_all(text: &str) -> bool {
    let words = ["select", "distinct", "all", "returning"];
    let before_all = |text: &str| {
        let mut words_behind = text.rsplit(|c: char| !c.is_alphanumeric());
        let last = words_behind.next();
        text.ends_with([',', '.']) || last.is_some_and(|word| words.contains(&word))
    };
    let mut stars = text.match_indices('*').map(|(at, _)| text[..at].trim_end());
    let text = text.replace("return new", "").replace("return old", "");
    let fields = text.replace("new.", "").replace("old.", "");
    stars.any(before_all) || ["new", "old"].iter().any(|row| names_in(&fields, row))
}

/// Whether a plain text has this name as a word.
fn names_in(text: &str, name: &str) -> bool {
    let name = name.to_lowercase();
    let in_name = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "_$".contains(c));
    text.match_indices(&name).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + name.len()..]);
        !in_name(before.chars().next_back()) && !in_name(behind.chars().next())
    })
}

/// Whether a plain text updates this table, which may stand behind its schema.
fn updates(text: &str, table: &str) -> bool {
    let words: Vec<_> = text
        .split_whitespace()
        .filter(|word| *word != "only")
        .collect();
    let named = |word: &str| names_in(word.rsplit('.').next().unwrap_or(word), table);
    words
        .windows(2)
        .any(|pair| pair[0] == "update" && named(pair[1]))
}

/// What to do about it.
fn instead_of(kind: &str, updates: bool) -> &'static str {
    match kind {
        _ if updates => {
            "if it adds to the base, let it call the function that adds to a shard (`generate --function`), or replace it by a counter cache \
             (`generate --counts`)"
        }
        "trigger" => "it sees folds, not counts: fold often, or read the total where it is needed",
        "generated column" => "it follows folds alone: compute it from the total where it is read",
        "index" => "it serves `top` and `estimate()`: keep it for these",
        "policy" => "it compares bases: compare another column",
        "publication" => "publish the shards table with it",
        _ => "read the view of totals (`generate --view`), or the base and its shards",
    }
}

/// That some read the plain columns of a sharded table, if they do. An index is none that has to be changed.
pub fn finding(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Option<Finding>> {
    let (table, shards_table) = (sharded.table(), sharded.shards_table());
    let (mut found, mut commands) = (vec![], vec![]);
    for field in names(sharded.fields()) {
        let names = [table.name(), field, shards_table.name()];
        let mut readers = sharded.within(conn, |conn| Reader::all(names, conn))?;
        readers.retain(|reader| reader.kind != "index");
        if !readers.is_empty() {
            commands.push(shell::command(["readers", table.as_str(), field]));
        }
        found.extend(
            readers
                .iter()
                .map(|one| format!("{} {}", one.kind, one.name)),
        );
    }
    found.sort();
    found.dedup();
    let says = || {
        let found = joined(", ", &found);
        format!("They read plain columns of {table}, which lack what is on shards: {found}.")
    };
    Ok((!found.is_empty()).then(|| Finding::warning("readers", says(), joined("\n", commands))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_words() {
        for text in ["select views", "`videos`.`views`", "sum(v.views)", "views"] {
            assert!(!takes_all(text));
            assert!(names_in(text, "Views"), "{text}");
        }
        for text in ["previews", "views_base", "my$views", ""] {
            assert!(!names_in(text, "views"), "{text}");
        }
        assert!(names_in(&plain("SELECT `sel``ect`"), "sel`ect"));
    }

    #[test]
    fn an_update_names_its_table() {
        for text in [
            "update videos set views = 1",
            "update only public.\"videos\"\nset",
        ] {
            assert!(updates(text, "videos"), "{text}");
        }
        for text in ["update likes set n = 1 from videos", "videos update"] {
            assert!(!updates(text, "videos"), "{text}");
        }
    }

    #[test]
    fn a_star_takes_every_column() {
        for text in [
            "select * from videos",
            "select distinct *",
            "select 1, *",
            "v.*",
            "select\n *",
            "returning *",
            "insert into log values (to_jsonb(new)); return new",
        ] {
            assert!(takes_all(text), "{text}");
        }
        for text in ["count(*)", "select a * b", "2 * n"] {
            assert!(!takes_all(text), "{text}");
        }
    }
}

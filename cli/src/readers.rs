//! `diesel-sharded readers` shows which objects in the database read a plain column. They see only the base, while shards hold the rest of
//! the total.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use serde::Serialize;

use crate::args::ReadersArgs;
use crate::condition::Beside;
use crate::connection::{AnyConnection, within};
use crate::definition::Definition;
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
        let mut readers = Reader::all([&table, column, shards_table], conn)?;
        let beside = Beside::read(conn, &live.tables[&table], &[column], shards_table)?;
        readers.extend(beside.checks.into_iter().map(Reader::check));
        Ok(readers)
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
    /// Where the tool found the reader: in the catalog, which knows, or in the object's text, which contains the names, or may contain them
    /// or read whole rows.
    found_in: &'static str,
    instead: &'static str,
}

impl Reader {
    /// The readers of a column of a table that a plain name refers to. An object that also names the shards table reads totals.
    fn all(
        [table, column, shards_table]: [&str; 3],
        conn: &mut AnyConnection,
    ) -> QueryResult<Vec<Self>> {
        let query = catalog!(conn.dialect(), "readers"); // its binds are the table and the column by turns
        let mut readers = vec![];
        for row in conn.rows(query, &[table, column].repeat(query.matches('?').count()))? {
            let text = row.get(2).map(Definition::of);
            let text = text.as_ref();
            let others = row.get(4).unwrap_or_default();
            let found_in = match (row.text(3)?, text) {
                ("1", _) => "catalog",
                (_, None) => "text that is hidden",
                ("0", Some(text)) if !text.names(table) => continue,
                (_, Some(text)) if text.names(column) => "text",
                (_, Some(text)) if text.reads_rows(table, others) => {
                    "text that may read whole rows"
                }
                _ => continue,
            };
            if text.is_some_and(|text| text.names(shards_table)) {
                continue;
            }
            let updates = text.is_some_and(|text| text.updates(table));
            readers.push(Reader {
                kind: row.text(0)?.to_owned(),
                name: row.text(1)?.to_owned(),
                found_in,
                instead: instead_of(row.text(0)?, updates),
            });
        }
        readers.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
        Ok(readers)
    }

    fn check(name: String) -> Self {
        Reader {
            kind: "check".to_owned(),
            name,
            found_in: "catalog",
            instead: "it compares the base alone: keep the total within its bounds by `never_below` and `never_above`",
        }
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

/// The advice for a reader of this kind.
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
        "virtual table" => "let it have the view of totals (`generate --view`) as its content",
        _ => "read the view of totals (`generate --view`), or the base and its shards",
    }
}

/// The finding that objects read the plain columns of a sharded table, if some do. An index need not be changed.
pub fn finding(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Option<Finding>> {
    let (table, shards_table) = (sharded.table(), sharded.shards_table());
    let (mut found, mut commands) = (vec![], vec![]);
    for field in names(&sharded.fields) {
        let names = [table.name(), field, shards_table.name()];
        let mut readers = sharded.within(conn, |conn| Reader::all(names, conn))?;
        readers.retain(|reader| reader.kind != "index");
        if !readers.is_empty() {
            commands.push(shell::command(["readers", table.as_str(), field]));
        }
        let named = readers.iter();
        found.extend(named.map(|one| format!("{} {}", one.kind, one.name)));
    }
    found.sort();
    found.dedup();
    let says = || {
        let found = joined(", ", &found);
        format!("They read plain columns of {table}, which lack what is on shards: {found}.")
    };
    Ok((!found.is_empty()).then(|| Finding::warning("readers", says(), joined("\n", commands))))
}

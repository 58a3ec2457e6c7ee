//! The objects beside a sharded table that its increments depend on: the foreign key or triggers that keep shards with their rows, counter
//! caches, other triggers and `CHECK`s, and indexes of bases.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::found_caches;
use serde::Serialize;

use crate::connection::AnyConnection;
use crate::finding::Finding;
use crate::live::LiveTable;
use crate::output::joined;
use crate::readers;
use crate::sharded::{COUNTERS, Sharded, names};
use crate::shell;
use crate::statement::{Token, quoted, tokens};

/// What the catalogs say about a sharded table.
#[derive(Debug, Serialize)]
pub struct Condition {
    #[serde(flatten)]
    beside: Beside,
    #[serde(flatten)]
    pub integrity: Integrity,
    pub counter_caches: Vec<Cache>,
    /// The fields whose base is the first column of an index.
    #[serde(skip)]
    pub indexed: Vec<String>,
    #[serde(skip)]
    pub findings: Vec<Finding>,
}

impl Condition {
    pub fn read(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Self> {
        let integrity = Integrity::read(sharded, conn)?;
        let counter_caches = Cache::read(sharded, None, conn)?;
        let (beside, of_beside) = Beside::of(sharded, conn)?;
        // With such an index a top list reads only its first rows.
        let indexed = sharded.within(conn, |conn| {
            let sorted = catalog!(sharded.dialect, "sorted_columns");
            conn.texts(sorted, &[sharded.table().name()])
        })?;
        let mut findings = vec![integrity.finding(sharded)];
        findings.extend(counter_caches.iter().map(Cache::finding));
        findings.extend(of_beside);
        if sharded.table().as_str() != COUNTERS {
            let fields = names(&sharded.fields).into_iter();
            findings.extend(fields.map(|field| index(sharded, field, &indexed)));
        }
        Ok(Condition {
            beside,
            integrity,
            counter_caches,
            indexed,
            findings,
        })
    }
}

/// Whether an index begins with the base of a field, and the statement that creates one.
fn index(sharded: &Sharded, field: &str, indexed: &[String]) -> Finding {
    let table = sharded.table();
    if indexed.iter().any(|column| column == field) {
        let says = format!("one begins with {table}.{field}, for `top`");
        return Finding::ok("index", says);
    }
    let quoted = |name: &str| quoted(sharded.dialect, name);
    let index = format!("{}_{field}", table.name());
    let index = quoted(&sharded.dialect.fitting_name(index));
    let (parent, column) = (sharded.parent(), quoted(field));
    Finding::warning(
        "index",
        format!(
            "No index begins with {table}.{field}: the library's `top` reads all bases of the table for a list by this field. \
             Create one if you read such lists:"
        ),
        format!("CREATE INDEX {index} ON {parent} ({column});"),
    )
}

/// What deletes the shards of a row with the row, and renames them with it.
#[derive(Debug, Serialize)]
pub struct Integrity {
    pub kept_by: KeptBy,
    /// The statements that create the missing triggers.
    pub missing_triggers: Option<String>,
    #[serde(skip)]
    missing_names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptBy {
    ForeignKey,
    Triggers,
    /// Neither, as far as this role may see.
    Application,
}

impl Integrity {
    fn read(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Self> {
        let mut integrity = Integrity {
            kept_by: KeptBy::ForeignKey,
            missing_triggers: None,
            missing_names: vec![],
        };
        if sharded.has_foreign_key() && sharded.dialect != Dialect::Sqlite {
            return Ok(integrity);
        }
        let triggers = catalog!(sharded.dialect, "triggers");
        let tables = [sharded.table().name(), sharded.shards_table().name()];
        let found = sharded.within(conn, |conn| conn.texts(triggers, &tables))?;
        let quoted = sharded.quoted(&conn.backend())?;
        integrity.kept_by = KeptBy::Triggers;
        if let Some(missing) = quoted.missing_triggers(None, &found) {
            if missing.all {
                integrity.kept_by = KeptBy::Application;
            }
            integrity.missing_triggers = Some(missing.sql);
            integrity.missing_names = missing.names;
        }
        Ok(integrity)
    }

    /// The damage that missing triggers cause, and the statements that repair it.
    fn finding(&self, sharded: &Sharded) -> Finding {
        let (table, shards_table) = (sharded.table(), sharded.shards_table());
        let Some(sql) = &self.missing_triggers else {
            let kept_by = match self.kept_by {
                KeptBy::ForeignKey => "a foreign key keeps",
                _ => "triggers keep",
            };
            let says = format!("{kept_by} {shards_table} with its rows");
            return Finding::ok("integrity", says);
        };
        let says = match (self.kept_by, &*self.missing_names) {
            (KeptBy::Application, _) => format!(
                "{shards_table} has neither a foreign key nor triggers that this role may see. The application has to delete the shards \
                 of a row with it; `{}` removes those that it left. If triggers were to do that, create them again:",
                shell::command(["remove-orphans", table.as_str()])
            ),
            (_, []) => format!(
                "Triggers of {shards_table} are missing, as after a rebuild of {table}: a new row may inherit the shards of one that \
                 was deleted. Create them again:"
            ),
            (_, missing) => format!(
                "Triggers of {shards_table}, which has no foreign key, are missing: {}. Shards may be left behind, or be created for a \
                 row that is gone. Create them again:",
                missing.join(", ")
            ),
        };
        match self.kept_by {
            KeptBy::Application => Finding::warning("integrity", says, sql),
            _ => Finding::problem("integrity", says, sql),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Cache {
    /// The common prefix of the names of its triggers.
    pub name: String,
    /// The triggers that are missing or switched off.
    missing_triggers: Vec<String>,
}

impl Cache {
    /// The caches of all fields, or of one.
    pub fn read(
        sharded: &Sharded,
        field: Option<&str>,
        conn: &mut AnyConnection,
    ) -> QueryResult<Vec<Self>> {
        let triggers = sharded.quoted(&conn.backend())?.cache_triggers_sql(field);
        let triggers = sharded.within(conn, |conn| conn.texts(&triggers, &[]))?;
        let found = found_caches(sharded.dialect, &triggers).into_iter();
        let caches = found.map(|cache| Cache {
            name: cache.name,
            missing_triggers: cache.missing,
        });
        Ok(caches.collect())
    }

    fn finding(&self) -> Finding {
        let (check, name) = ("counter caches", &self.name);
        if self.missing_triggers.is_empty() {
            return Finding::ok(check, format!("{name} has all of its triggers"));
        }
        let lacks = self.missing_triggers.join(", ");
        Finding::problem(
            check,
            format!(
                "the counter cache {name} lacks {lacks}: some changes of its rows are not counted"
            ),
            "Drop the rest of it and create it again, by its migration's down.sql and up.sql, and run `backfill`",
        )
    }
}

/// The names of triggers that a fold's update of the base fires, and of `CHECK`s on bases.
#[derive(Debug, Default, Serialize)]
pub struct Beside {
    /// Triggers that fire when a fold updates a base; on MySQL also columns that any update sets to the current time.
    update_triggers: Vec<String>,
    /// `CHECK`s that mention a counted column.
    pub checks: Vec<String>,
}

impl Beside {
    /// Those of a counted table, with findings that tell why they matter and what to do.
    pub fn of(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<(Self, Vec<Finding>)> {
        let Some(table) = sharded.live.tables.get(sharded.table().name()) else {
            return Ok((Beside::default(), vec![]));
        };
        let fields = names(&sharded.fields);
        let shards_table = sharded.shards_table().name();
        let beside = sharded.within(conn, |conn| {
            Beside::read(conn, table, &fields, shards_table)
        })?;
        let mut findings = beside.findings(&table.name);
        findings.extend(readers::finding(sharded, conn)?);
        Ok((beside, findings))
    }

    /// Those that concern these columns of any table, without the library's own triggers.
    pub fn read(
        conn: &mut AnyConnection,
        table: &LiveTable,
        fields: &[&str],
        shards_table: &str,
    ) -> QueryResult<Self> {
        let dialect = conn.dialect();
        if dialect == Dialect::Sqlite {
            return on_sqlite(conn, table, fields, shards_table);
        }
        let fields = fields.iter().map(|field| quoted(Dialect::Mysql, field));
        let fields: Vec<_> = fields.collect();
        // The second column of these queries lists the columns in backticks; NULL means all of them.
        let concerns = |columns: &str| fields.iter().any(|field| columns.contains(field));
        let table = &*table.name;
        let mut named = |query: &str| -> QueryResult<Vec<String>> {
            let rows = conn.rows(query, &[table, table])?;
            let rows = rows.iter().filter(|row| row.get(1).is_none_or(concerns));
            rows.map(|row| row.text(0).map(str::to_owned)).collect()
        };
        Ok(Beside {
            update_triggers: named(catalog!(server dialect, "update_triggers"))?,
            checks: named(catalog!(server dialect, "checks"))?,
        })
    }

    fn findings(&self, name: &str) -> Vec<Finding> {
        let check = "triggers and checks";
        let (triggers, checks) = (self.update_triggers.join(", "), self.checks.join(", "));
        let mut findings = vec![];
        if !triggers.is_empty() {
            let remedy = "A fold updates the base, so that they see it as an edit. One that copies the column follows folds. To leave them out of the others, let these act only where another column has changed: the reference page on folding shows how.";
            let says = format!("An UPDATE of {name} fires: {triggers}.");
            findings.push(Finding::warning(check, says, remedy));
        }
        if !checks.is_empty() {
            let remedy = "They hold for the base alone; a count on a shard passes them, and a fold leaves a row that would violate one on its shards.";
            let says = format!("CHECKs on counted columns of {name}: {checks}.");
            findings.push(Finding::warning(check, says, remedy));
        }
        findings
    }
}

fn on_sqlite(
    conn: &mut AnyConnection,
    table: &LiveTable,
    fields: &[&str],
    shards_table: &str,
) -> QueryResult<Beside> {
    let own = ["delete", "update", "insert"].map(|action| format!("{shards_table}_{action}"));
    let mut beside = Beside::default();
    for row in conn.rows(catalog!("sqlite/", "definitions"), &[&table.name])? {
        let (name, tokens) = (row.text(1)?, tokens(row.text(2)?));
        match row.text(0)? {
            "trigger" if own.iter().any(|own| own == name) => {}
            "trigger" if fires_on_update(&tokens, fields) => {
                beside.update_triggers.push(name.to_owned());
            }
            "table" => beside.checks = checks(&tokens, fields),
            _ => {}
        }
    }
    Ok(beside)
}

/// Whether `CREATE TRIGGER …` declares a trigger on updates of any column or of one of these.
fn fires_on_update(tokens: &[Token], fields: &[&str]) -> bool {
    let mut event = tokens.iter().skip(2).take_while(|token| !token.is("ON"));
    if !event.any(|token| token.is("UPDATE")) {
        return false;
    }
    let mut of = event.peekable();
    of.peek().is_none() || of.any(|token| token.names(fields))
}

/// The `CHECK`s in `CREATE TABLE …` that mention one of these columns: their names, or their conditions.
fn checks(tokens: &[Token], fields: &[&str]) -> Vec<String> {
    let starts = (0..tokens.len()).filter(|i| tokens[*i].is("CHECK"));
    let checks = starts.filter_map(|start| {
        let mut depth = 0;
        let inside = tokens[start + 1..].iter().take_while(|token| {
            depth += i32::from(token.is("(")) - i32::from(token.is(")"));
            depth > 0
        });
        let inside: Vec<_> = inside.skip(1).collect();
        let mentions = inside.iter().any(|token| token.names(fields));
        let named = start >= 2 && tokens[start - 2].is("CONSTRAINT");
        mentions.then(|| match named {
            true => tokens[start - 1].text.clone(),
            false => format!("CHECK ({})", joined(" ", inside.iter().map(|t| &t.text))),
        })
    });
    checks.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use diesel_sharded::described::column;
    use diesel_sharded::model::ColumnType;

    use super::*;

    #[test]
    fn sqlites_triggers_of_update() {
        for (sql, fires) in [
            (
                "CREATE TRIGGER t AFTER UPDATE ON videos BEGIN SELECT 1; END",
                true,
            ),
            (
                "CREATE TRIGGER \"on\" UPDATE OF title, \"views\" ON videos BEGIN SELECT 1; END",
                true,
            ),
            (
                "CREATE TRIGGER t BEFORE UPDATE OF title ON videos BEGIN UPDATE videos SET views = 1; END",
                false,
            ),
            (
                "CREATE TRIGGER [update] AFTER INSERT ON videos BEGIN UPDATE videos SET views = 1; END",
                false,
            ),
            (
                "CREATE TRIGGER t /* UPDATE */ AFTER -- UPDATE\n DELETE ON videos BEGIN SELECT 1; END",
                false,
            ),
        ] {
            assert_eq!(fires_on_update(&tokens(sql), &["views"]), fires, "{sql}");
        }
    }

    #[test]
    fn sqlites_checks() {
        let table = "CREATE TABLE videos (id INTEGER CHECK (id > 0), views BIGINT CONSTRAINT \"not `less`\" CHECK ((views) >= 0), \
            likes INT CHECK (likes < 5), CHECK (views + likes < 10))";
        let found = checks(&tokens(table), &["views"]);
        assert_eq!(found, ["not `less`", "CHECK (views + likes < 10)"]);
    }

    #[test]
    fn the_note_quotes_names() {
        let columns = |name: &str| vec![column(name.into(), ColumnType::BigInt, None)];
        let created = |dialect| {
            let (of, names) = ((dialect, &Arc::default()), ["a`\"b", "s"]);
            let sharded = Sharded::new(of, names, columns("id"), columns("n"));
            index(&sharded, "n", &[]).remedy.unwrap()
        };
        let sql = r#"CREATE INDEX "a`""b_n" ON "a`""b" ("n");"#;
        assert_eq!(created(Dialect::Postgres), sql);
        let sql = "CREATE INDEX `a``\"b_n` ON `a``\"b` (`n`);";
        assert_eq!(created(Dialect::Mysql), sql);
    }
}

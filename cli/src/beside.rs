//! The other watchers of the rows of a counted table: triggers that a fold's update of the base fires, and `CHECK`s of bases.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use serde::Serialize;

use crate::connection::AnyConnection;
use crate::live::LiveTable;
use crate::output::Note;
use crate::sharded::Sharded;
use crate::sharded::names;
use crate::statement::quoted;

/// Triggers and constraints by their names.
#[derive(Debug, Default, Serialize)]
pub struct Beside {
    /// Triggers that fire when a fold updates a base; on MySQL also columns that any update sets to the time.
    pub update_triggers: Vec<String>,
    /// `CHECK`s that mention a counted column.
    pub checks: Vec<String>,
    /// Why they matter, and what to do.
    #[serde(skip)]
    pub notes: Vec<Note>,
}

impl Beside {
    /// Those of a counted table.
    pub fn of(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Self> {
        let Some(table) = sharded.live.tables.get(sharded.table().name()) else {
            return Ok(Beside::default());
        };
        let fields = names(sharded.fields());
        let shards_table = sharded.shards_table().name();
        let mut beside = sharded.within(conn, |conn| {
            Beside::read(conn, table, &fields, shards_table)
        })?;
        beside.notes = beside.notes(sharded.dialect, table, &fields);
        Ok(beside)
    }

    /// Those that concern these columns of any table; the library's own triggers are left out.
    pub fn read(
        conn: &mut AnyConnection,
        table: &LiveTable,
        fields: &[&str],
        shards_table: &str,
    ) -> QueryResult<Self> {
        match conn.dialect() {
            Dialect::Postgres => on_postgres(conn, table, fields),
            Dialect::Mysql => on_mysql(conn, table, fields),
            _ => on_sqlite(conn, table, fields, shards_table),
        }
    }

    fn notes(&self, dialect: Dialect, table: &LiveTable, fields: &[&str]) -> Vec<Note> {
        let name = &table.name;
        let mut notes = vec![];
        if !self.update_triggers.is_empty() {
            let says = format!(
                "An UPDATE of {name} fires: {}",
                self.update_triggers.join(", ")
            );
            let mut remedy = "A fold updates the base, so that they see it as an edit.".to_owned();
            if let Some(condition) = unless_folded(dialect, table, fields) {
                remedy += &format!(" To leave folds out, let them act only {condition}");
            }
            notes.push(Note::new(says, remedy));
        }
        if !self.checks.is_empty() {
            notes.push(Note::new(
                format!("CHECKs on counted columns of {name}: {}", self.checks.join(", ")),
                "They hold for the base alone; a count on a shard passes them, and a fold leaves a row that would violate one on its shards.",
            ));
        }
        notes
    }
}

/// The condition of a trigger that no fold meets: another column has changed.
fn unless_folded(dialect: Dialect, table: &LiveTable, fields: &[&str]) -> Option<String> {
    let columns = table.columns.iter();
    let others = columns.filter(|c| !fields.contains(&c.name.as_str()) && !c.generated);
    let names: Vec<_> = others.map(|column| quoted(dialect, &column.name)).collect();
    let each = |separator: &str, write: &dyn Fn(&String) -> String| {
        let columns: Vec<_> = names.iter().map(write).collect();
        columns.join(separator)
    };
    let old = each(", ", &|name| format!("OLD.{name}"));
    let new = each(", ", &|name| format!("NEW.{name}"));
    let same = each(" AND ", &|name| format!("OLD.{name} <=> NEW.{name}"));
    (!names.is_empty()).then(|| match dialect {
        Dialect::Postgres => format!("WHEN (ROW({old}) IS DISTINCT FROM ROW({new}))"),
        Dialect::Mysql => format!("IF NOT ({same}) THEN … END IF"),
        _ => format!("WHEN ({old}) IS NOT ({new})"),
    })
}

fn on_postgres(
    conn: &mut AnyConnection,
    table: &LiveTable,
    fields: &[&str],
) -> QueryResult<Beside> {
    let names = [&[table.name.as_str()], fields].concat();
    let is_field = format!("a.attname IN ({})", vec!["?"; fields.len()].join(", "));
    // 16: of UPDATE; a trigger `UPDATE OF` other columns fires for no fold.
    let triggers = format!(
        "SELECT t.tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
         WHERE pg_table_is_visible(c.oid) AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 16 <> 0 AND c.relname = ? \
         AND (t.tgattr::text = '' OR EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid \
             AND a.attnum = ANY (t.tgattr::int2[]) AND {is_field})) ORDER BY t.tgname"
    );
    let checks = format!(
        "SELECT k.conname::text FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid \
         WHERE pg_table_is_visible(c.oid) AND k.contype = 'c' AND c.relname = ? AND EXISTS (SELECT 1 FROM pg_attribute a \
             WHERE a.attrelid = c.oid AND a.attnum = ANY (k.conkey) AND {is_field}) ORDER BY k.conname"
    );
    Ok(Beside {
        update_triggers: conn.texts(&triggers, &names)?,
        checks: conn.texts(&checks, &names)?,
        ..Beside::default()
    })
}

fn on_mysql(conn: &mut AnyConnection, table: &LiveTable, fields: &[&str]) -> QueryResult<Beside> {
    let table = &[table.name.as_str()];
    let mentions = |clause: &str| {
        let quoted = fields.iter().map(|field| quoted(Dialect::Mysql, field));
        quoted.into_iter().any(|field| clause.contains(&field))
    };
    let mut named = vec![];
    for row in conn.rows(catalog!("mysql/", "checks"), table)? {
        if mentions(row.text(1)?) {
            named.push(row.text(0)?.to_owned());
        }
    }
    let mut update_triggers = conn.texts(catalog!("mysql/", "update_triggers"), table)?;
    update_triggers.extend(conn.texts(catalog!("mysql/", "stamped_columns"), table)?);
    Ok(Beside {
        update_triggers,
        checks: named,
        ..Beside::default()
    })
}

fn on_sqlite(
    conn: &mut AnyConnection,
    table: &LiveTable,
    fields: &[&str],
    shards_table: &str,
) -> QueryResult<Beside> {
    let own = ["delete", "update", "insert"].map(|action| format!("{shards_table}_{action}"));
    let schema = "SELECT type, name, sql FROM sqlite_master \
         WHERE type IN ('table', 'trigger') AND lower(tbl_name) = lower(?) AND sql IS NOT NULL ORDER BY name";
    let mut beside = Beside::default();
    for row in conn.rows(schema, &[&table.name])? {
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

/// Whether `CREATE TRIGGER …` is of UPDATE, of any column or of one of these.
fn fires_on_update(tokens: &[Token], fields: &[&str]) -> bool {
    let event: Vec<_> = tokens
        .iter()
        .skip(2)
        .take_while(|token| !token.is("ON"))
        .collect();
    let Some(update) = event.iter().position(|token| token.is("UPDATE")) else {
        return false;
    };
    let of = &event[update + 1..];
    of.is_empty() || of.iter().any(|token| token.names(fields))
}

/// The `CHECK`s in `CREATE TABLE …` that mention one of these columns: their names, or what they say.
fn checks(tokens: &[Token], fields: &[&str]) -> Vec<String> {
    let starts = (0..tokens.len()).filter(|i| tokens[*i].is("CHECK"));
    starts
        .filter_map(|start| {
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
                false => {
                    let texts: Vec<_> = inside.iter().map(|token| token.text.as_str()).collect();
                    format!("CHECK ({})", texts.join(" "))
                }
            })
        })
        .collect()
}

/// A word, a sign, or what stands in quotes, of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub quoted: bool,
}

impl Token {
    pub fn is(&self, word: &str) -> bool {
        !self.quoted && self.text.eq_ignore_ascii_case(word)
    }

    pub fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }

    fn names(&self, columns: &[&str]) -> bool {
        let mut columns = columns.iter();
        columns.any(|column| self.text.eq_ignore_ascii_case(column))
    }
}

pub fn tokens(sql: &str) -> Vec<Token> {
    let mut tokens = vec![];
    let mut rest = sql.chars().peekable();
    while let Some(c) = rest.next() {
        let mut text = String::new();
        let end = match c {
            '[' => Some(']'),
            '"' | '`' | '\'' => Some(c),
            _ => None,
        };
        if let Some(end) = end {
            while let Some(c) = rest.next() {
                match (c == end, rest.peek() == Some(&end) && end != ']') {
                    (true, false) => break,
                    (true, true) => text.extend(rest.next()),
                    _ => text.push(c),
                }
            }
        } else if c == '-' && rest.peek() == Some(&'-') {
            rest.by_ref().find(|c| *c == '\n');
            continue;
        } else if c == '/' && rest.peek() == Some(&'*') {
            let mut last = ' ';
            rest.next();
            rest.by_ref()
                .find(|c| std::mem::replace(&mut last, *c) == '*' && *c == '/');
            continue;
        } else if c.is_whitespace() {
            continue;
        } else {
            let in_word = |c: &char| c.is_alphanumeric() || *c == '_' || *c == '$';
            text.push(c);
            while in_word(&c) && rest.peek().is_some_and(in_word) {
                text.extend(rest.next());
            }
        }
        tokens.push(Token {
            text,
            quoted: end.is_some(),
        });
    }
    tokens
}

#[cfg(test)]
mod tests {
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
}

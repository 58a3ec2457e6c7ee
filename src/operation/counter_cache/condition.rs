//! A condition, and the columns that its text names.

use crate::backend::Dialect;
use crate::operation::shards_table::{identifiers, quoted_on};
use crate::query_builder::quoted;

use super::described::DescribedCache;

/// A condition on the child's columns.
#[derive(Debug)]
pub(super) struct Condition {
    /// Its text, for rows under the child's bare name.
    pub(super) text: String,
    pieces: Vec<Piece>,
}

/// A part of the text.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Sql(String),
    /// The quoted name of a column of the child.
    Column(String),
}

impl Condition {
    pub(super) fn new(text: String, child: &DescribedCache, dialect: Dialect) -> Self {
        let (mut pieces, mut rest) = (vec![], &*text);
        while !rest.is_empty() {
            let (names, length) = names(rest, dialect);
            let length = if names.is_empty() {
                word(rest, dialect)
            } else {
                length
            };
            let (part, behind) = rest.split_at(length);
            rest = behind;
            let column = child.column(&names, behind);
            pieces.push(match column {
                Some(name) => Piece::Column(quoted_on(dialect, &name)),
                None => Piece::Sql(part.to_owned()),
            });
        }
        Condition { text, pieces }
    }

    /// The condition on the one row `NEW` or `OLD`, in parentheses.
    pub(super) fn on_row(&self, row: &str) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Sql(sql) => sql.clone(),
            Piece::Column(name) => format!("{row}.{name}"),
        });
        format!("({})", pieces.collect::<String>())
    }

    /// The columns, some of them more than once.
    pub(super) fn columns(&self) -> impl Iterator<Item = &String> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column(name) => Some(name),
            Piece::Sql(_) => None,
        })
    }
}

impl DescribedCache {
    /// The column that is named so before `behind`. A name without quotes is one only if there is such a column: it may be a keyword.
    fn column(&self, names: &[Name], behind: &str) -> Option<String> {
        let (name, tables) = names.split_last()?;
        let known = self.columns.iter().find(|column| name.is(column));
        let is_column = match tables.last() {
            Some(table) => table.is(&self.child),
            None if behind.trim_start().starts_with('(') => false,
            None => name.is_quoted || known.is_some() && !behind.starts_with('\''),
        };
        is_column.then(|| known.unwrap_or(&name.name).clone())
    }
}

/// A name in a text.
struct Name {
    name: String,
    is_quoted: bool,
}

impl Name {
    fn is(&self, other: &str) -> bool {
        self.name.to_lowercase() == other.to_lowercase()
    }
}

/// The names with dots between them that a text begins with, and their length.
fn names(text: &str, dialect: Dialect) -> (Vec<Name>, usize) {
    let (mut names, mut at) = (vec![], 0);
    loop {
        let rest = &text[at..];
        let is_quoted =
            rest.starts_with('`') || dialect == Dialect::Sqlite && rest.starts_with('"');
        let length = match is_quoted {
            true => quoted(rest, false),
            false if rest.starts_with(|c: char| c.is_ascii_digit()) => 0,
            false => rest.find(|c| !in_name(c)).unwrap_or(rest.len()),
        };
        if length == 0 {
            return (names, at.saturating_sub(1)); // the dot is none of theirs
        }
        let name = &rest[..length];
        let unquoted = || identifiers(name).concat();
        let name = if is_quoted {
            unquoted()
        } else {
            name.to_owned()
        };
        names.push(Name { name, is_quoted });
        at += length;
        if !text[at..].starts_with('.') {
            return (names, at);
        }
        at += 1;
    }
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// The length of a text, a number or a variable that no column is in, or of one character.
fn word(text: &str, dialect: Dialect) -> usize {
    let in_word = |c: char| in_name(c) || c == '.';
    match text.chars().next() {
        Some('\'' | '"') => quoted(text, dialect == Dialect::Mysql),
        Some('@' | '0'..='9') => 1 + text[1..].find(|c| !in_word(c)).unwrap_or(text.len() - 1),
        c => c.map_or(1, char::len_utf8),
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use Dialect::{Mysql, Sqlite};

    fn on_row(text: &str, dialect: Dialect) -> String {
        let columns = ["id", "shown", "X", "year", "it's `new`"];
        let child = DescribedCache {
            field: String::new(),
            schema: None,
            child: "Comments".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            by: vec![],
            amount: None,
            condition: None,
            shards: None,
        };
        let condition = Condition::new(text.to_owned(), &child, dialect);
        assert_eq!(condition.text, text);
        condition.on_row("NEW")
    }

    macro_rules! rewrites {
        ($dialect:expr; $($text:expr => $on_row:expr,)+) => {$(
            assert_eq!(on_row($text, $dialect), $on_row);
        )+};
    }

    #[test]
    fn columns_are_those_of_the_row() {
        for dialect in [Sqlite, Mysql] {
            rewrites! { dialect;
                "shown" => "(NEW.`shown`)",
                "SHOWN AND NOT comments.x>1.5" => "(NEW.`shown` AND NOT NEW.`X`>1.5)",
                "`Comments`.`it's ``new```= 'shown'" => "(NEW.`it's ``new```= 'shown')",
                "main.comments.`hidden` = `hidden`" => "(NEW.`hidden` = NEW.`hidden`)",
                "year (id) = 1e5 + year" => "(year (NEW.`id`) = 1e5 + NEW.`year`)",
                "'it''s shown' <> x'78' || 'é'" => "('it''s shown' <> x'78' || 'é')",
                "hidden OR other.shown OR shown." => "(hidden OR other.shown OR NEW.`shown`.)",
                "'never closed shown" => "('never closed shown)",
                "" => "()",
            }
        }
        rewrites! { Sqlite; r#""shown" = '\'"# => r"(NEW.`shown` = '\')", }
        rewrites! { Mysql;
            r#"@shown = "shown" AND '\' shown' <> _utf8mb4 x'78'"#
                => r#"(@shown = "shown" AND '\' shown' <> _utf8mb4 x'78')"#,
        }
    }
}

//! A condition on the child's columns, each qualified by its table's name.

use crate::backend::{Dialect, word};

/// The condition with the table's name, `child` or `quoted_child`, replaced by the rows' new name. Texts and other names between quotes
/// stay. The check at the cache's creation finds what this misses, such as a name in another case.
pub(super) fn on_row(
    condition: &str,
    [child, quoted_child]: [&str; 2],
    row: &str,
    dialect: Dialect,
) -> String {
    let tables = [format!("{child}."), format!("{quoted_child}.")];
    let mut copied = String::new();
    let mut before = None;
    let mut rest = condition;
    while !rest.is_empty() {
        let is_begun = before.is_some_and(in_name);
        let table = tables.iter().find(|table| rest.starts_with(*table));
        if let Some(table) = table.filter(|_| !is_begun) {
            copied += row;
            copied.push('.');
            rest = &rest[table.len()..];
            before = Some('.');
            continue;
        }
        let (part, behind) = rest.split_at(word(rest, dialect));
        copied += part;
        before = part.chars().next_back();
        rest = behind;
    }
    copied
}

/// Whether the SQL contains a query.
pub(super) fn has_query(sql: &str, dialect: Dialect) -> bool {
    let (mut words, mut rest) = (String::new(), sql);
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(word(rest, dialect));
        let is_quoted = part.chars().count() > 1;
        words += if is_quoted { " " } else { part };
        rest = behind;
    }
    let mut words = words.split(|c| !in_name(c));
    words.any(|word| word.eq_ignore_ascii_case("SELECT"))
}

/// Whether this character may be a part of a name.
fn in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '@' | '.')
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

    macro_rules! rewrites {
        ($dialect:expr; $($text:expr => $on_row:expr,)+) => {$(
            assert_eq!(on_row($text, ["comments", "`comments`"], "NEW", $dialect), $on_row);
        )+};
    }

    #[test]
    fn queries_are_found() {
        for (sql, has) in [
            ("(Select 1)", true),
            ("1+(SELECT COUNT(*) FROM `a`)", true),
            ("`SELECT` = 'SELECT' OR selected OR x.select", false),
            ("", false),
        ] {
            assert_eq!(has_query(sql, Mysql), has, "{sql}");
        }
    }

    #[test]
    fn columns_are_those_of_the_row() {
        for dialect in [Sqlite, Mysql] {
            rewrites! { dialect;
                "comments.shown AND NOT comments.x>1.5" => "NEW.shown AND NOT NEW.x>1.5",
                "`comments`.`it's ``new```= 'shown'" => "NEW.`it's ``new```= 'shown'",
                "(`comments`.`shown`)" => "(NEW.`shown`)",
                "year(comments.id) = 1e5" => "year(NEW.id) = 1e5",
                "'it''s comments.shown' <> x'78' || 'é'" => "'it''s comments.shown' <> x'78' || 'é'",
                "my_comments.x OR other.comments.x" => "my_comments.x OR other.comments.x",
                "`my``comments`.`x` OR `comments`" => "`my``comments`.`x` OR `comments`",
                "'never closed comments.shown" => "'never closed comments.shown",
                "" => "",
            }
        }
        rewrites! { Sqlite; r"'\' = comments.shown" => r"'\' = NEW.shown", }
        rewrites! { Mysql;
            r#"@comments.x = "comments.x" AND '\' comments.x' <> _utf8mb4 x'78'"#
                => r#"@comments.x = "comments.x" AND '\' comments.x' <> _utf8mb4 x'78'"#,
        }
    }
}

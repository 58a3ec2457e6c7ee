//! A condition on the child's columns, each of which stands behind its table's name.

use crate::backend::Dialect;
use crate::query_builder::quoted;

/// The condition with the rows' new name in the place of their table's, which is `child` or `quoted_child`. Texts and other names between quotes
/// stay. What is missed, as a name in another case, the check at the cache's creation finds.
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
    while let Some(first) = rest.chars().next() {
        let is_begun = before.is_some_and(in_name);
        let table = tables.iter().find(|table| rest.starts_with(*table));
        let length = match (table.filter(|_| !is_begun), first) {
            (Some(table), _) => {
                copied += row;
                copied.push('.');
                rest = &rest[table.len()..];
                before = Some('.');
                continue;
            }
            (None, '\'' | '"') => quoted(rest, dialect == Dialect::Mysql),
            (None, '`') => quoted(rest, false),
            (None, _) => first.len_utf8(),
        };
        let (part, behind) = rest.split_at(length);
        copied += part;
        before = part.chars().next_back();
        rest = behind;
    }
    copied
}

/// Whether a name goes on behind this.
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

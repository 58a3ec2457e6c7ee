//! An `INSERT` of a parent that is counted immediately.

use diesel::query_builder::{QueryBuilder, QueryFragment};

use super::sql::{statements, text_of};
use super::under_alias::{push_text, writes_text};
use crate::backend::{Dialect, word};
use crate::model::ShardsColumn;

statements! {
    /// An insert whose row has 0 in each field that `changes` count, unless it has a value for the field: a column's default is
    /// often what the first increment would make of 0, and would be counted twice.
    ///
    /// ```sql
    /// INSERT INTO "downloads" ("version", "day", "number") VALUES ($1, $2, 0) ON CONFLICT DO NOTHING
    /// ```
    pub(crate) struct InsertParent<'a> {
        pub(crate) insert: &'a dyn QueryFragment<DB>,
        pub(crate) changes: &'a dyn QueryFragment<DB>,
        /// The table's sharded fields.
        pub(crate) fields: &'a [ShardsColumn],
        /// It does nothing where it violates a unique key.
        pub(crate) unless_there: bool,
    };
    |self, mut out| {
        if !writes_text(out.reborrow()) {
            return self.insert.walk_ast(out); // the zeros are no binds
        }
        let backend = out.backend();
        let changes = text_of(self.changes, backend)?;
        let mut insert = text_of(self.insert, backend)?;
        for field in self.fields.iter().filter(|field| field.is_sum()) {
            let mut column = backend.query_builder();
            column.push_identifier(field.name())?;
            let column = column.finish();
            if changes.contains(&format!("{column} = ")) {
                insert = from_zero(&insert, &column, backend.dialect()).unwrap_or(insert);
            }
        }
        if self.unless_there {
            insert.push_str(" ON CONFLICT DO NOTHING");
        }
        push_text(&insert, backend.dialect(), out)
    }
}

/// `insert` with 0 for a column that it does not name, or names with `DEFAULT`. `None` if it inserts what a query returns, which has all
/// columns.
fn from_zero(insert: &str, column: &str, dialect: Dialect) -> Option<String> {
    if let Some(into) = insert.strip_suffix(" DEFAULT VALUES") {
        return Some(format!("{into} ({column}) VALUES (0)"));
    }
    let (into, mut columns, mut rest) = list(insert, dialect)?;
    if !rest.starts_with(" VALUES (") {
        return None;
    }
    let place = columns.iter().position(|name| name.trim() == column);
    if place.is_none() {
        columns.push(column);
    }
    let mut text = format!("{into}{})", columns.join(", "));
    while let Some((before, mut values, behind)) = list(rest, dialect) {
        match place {
            None => values.push("0"),
            Some(place) => {
                if let Some(value) = values.get_mut(place).filter(|value| **value == "DEFAULT") {
                    *value = "0";
                }
            }
        }
        text = format!("{text}{before}{})", values.join(", "));
        rest = behind;
    }
    Some(text + rest)
}

/// The first list between parentheses: the text up to it with the one that opens it, its items, and the text after it.
fn list(text: &str, dialect: Dialect) -> Option<(&str, Vec<&str>, &str)> {
    let (mut depth, mut at, mut begun) = (0_u32, 0, 0);
    let (mut before, mut items) = ("", vec![]);
    while at < text.len() {
        let length = word(&text[at..], dialect);
        let word = &text[at..at + length];
        if matches!((word, depth), ("," | ")", 1)) {
            items.push(text[begun..at].trim());
            begun = at + 1;
        }
        match word {
            "(" => {
                depth += 1;
                if depth == 1 {
                    (before, begun) = (&text[..=at], at + 1);
                }
            }
            ")" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    items.retain(|item| !item.is_empty()); // of `()`
                    return Some((before, items, &text[at + 1..]));
                }
            }
            _ => {}
        }
        at += length;
    }
    None
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::prelude::*;
    use diesel::query_builder::AsChangeset;
    use diesel::sqlite::Sqlite;

    use super::*;
    use crate::backend::ShardedBackend;
    use crate::model::ShardedTable;
    use crate::test_schema::sql;
    use crate::test_schema::videos::{self as table, dsl::*};

    fn text<DB>(
        insert: &dyn QueryFragment<DB>,
        changes: &dyn QueryFragment<DB>,
        unless_there: bool,
    ) -> String
    where
        DB: ShardedBackend<QueryBuilder: Default> + Default,
    {
        let insert = InsertParent {
            insert,
            changes,
            fields: table::table::FIELDS,
            unless_there,
        };
        sql!(DB, insert)
    }

    #[test]
    fn counted_fields_begin_at_zero() {
        let changes = (views.eq(views + 1), likes.eq(likes - 1)).as_changeset();
        macro_rules! insert {
            ($values:expr) => {
                insert!($values, changes)
            };
            ($values:expr, $changes:expr) => {{
                let insert = diesel::insert_into(videos).values($values);
                let postgres = text::<Pg>(&insert, &$changes, false);
                let (_, behind) = postgres.split_once(r#"INSERT INTO "videos" "#).unwrap();
                assert_eq!(
                    text::<Pg>(&insert, &$changes, true),
                    format!("{postgres} ON CONFLICT DO NOTHING")
                );
                let others = (
                    text::<Mysql>(&insert, &$changes, false),
                    text::<Sqlite>(&insert, &$changes, false),
                );
                (behind.to_owned(), others.0, others.1)
            }};
        }
        let (postgres, mysql, sqlite) = insert!((id.eq(7), slug.eq("a")));
        let behind = r#"("id", "slug", "views", "likes") VALUES ($1, $2, 0, 0)"#;
        assert_eq!(postgres, behind);
        let others = "INSERT INTO `videos` (`id`, `slug`, `views`, `likes`) VALUES (?, ?, 0, 0)";
        assert_eq!((&*mysql, &*sqlite), (others, others));
        // A value that is named is the base; a default is no value.
        let no_views = None::<diesel::dsl::Eq<views, i64>>;
        let (postgres, mysql, sqlite) = insert!((likes.eq(5), no_views, id.eq(7)));
        assert_eq!(postgres, r#"("likes", "views", "id") VALUES ($1, 0, $2)"#);
        let behind = "INSERT INTO `videos` (`likes`, `views`, `id`) VALUES (?, 0, ?)";
        assert_eq!(mysql, behind);
        let behind = "INSERT INTO `videos` (`likes`, `id`, `views`) VALUES (?, ?, 0)";
        assert_eq!(sqlite, behind);
        // Only what is counted.
        let no_likes = None::<diesel::dsl::Eq<likes, diesel::dsl::Add<likes, i32>>>;
        let perhaps = (views.eq(views + 1), no_likes).as_changeset();
        let (postgres, ..) = insert!(id.eq(7), perhaps);
        assert_eq!(postgres, r#"("id", "views") VALUES ($1, 0)"#);
        let all = "INSERT INTO `videos` (`id`, `slug`, `views`, `likes`) SELECT ";
        let (_, mysql, _) = insert!(videos.filter(id.eq(1)));
        assert!(mysql.starts_with(all), "{mysql}");
        // Several rows; other parentheses and quotes.
        let rows = r#"INSERT INTO "a(" ("b") VALUES (f('),"views"', g("b"))), (DEFAULT)"#;
        assert_eq!(
            from_zero(rows, r#""views""#, Dialect::Postgres).unwrap(),
            r#"INSERT INTO "a(" ("b", "views") VALUES (f('),"views"', g("b")), 0), (DEFAULT, 0)"#
        );
        let zeros = "INSERT INTO `videos` (`views`) VALUES (0)";
        for default in [
            "INSERT INTO `videos` DEFAULT VALUES",
            "INSERT INTO `videos` () VALUES ()",
        ] {
            let text = from_zero(default, "`views`", Dialect::Mysql);
            assert_eq!(text.as_deref(), Some(zeros));
        }
    }
}

//! Statements that count on one row: `UPDATE t SET c = c + n`.

use diesel_sharded::backend::Dialect;

use crate::beside::{Token, tokens};

/// The table and the columns that a statement counts on, by the names that the database reads there.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counting {
    pub schema: Option<String>,
    pub table: String,
    pub columns: Vec<String>,
}

impl Counting {
    /// Nothing for any other statement.
    pub fn read(sql: &str, dialect: Dialect) -> Option<Self> {
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
pub fn is_one(one: &str, other: &str, dialect: Dialect) -> bool {
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

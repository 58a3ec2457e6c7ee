//! Statements that count on one row: `UPDATE t SET c = c + n`.

use crate::tokens::{Token, tokens};

/// The table and the columns that a statement counts on.
#[derive(Debug, PartialEq, Eq)]
pub struct Counting {
    pub table: String,
    pub columns: Vec<String>,
}

impl Counting {
    /// Nothing for any other statement.
    pub fn read(sql: &str) -> Option<Self> {
        let tokens = tokens(sql);
        let mut rest = tokens.iter().filter(|token| !token.is(";")).peekable();
        rest.next_if(|token| token.is("UPDATE"))?;
        while rest
            .next_if(|token| {
                ["ONLY", "LOW_PRIORITY", "IGNORE"]
                    .iter()
                    .any(|word| token.is(word))
            })
            .is_some()
        {}
        // The name, the last part of it behind a dot, is followed by SET, or by `v` or `AS v` before it.
        let mut table = rest.next()?;
        while rest.next_if(|token| token.is(".")).is_some() {
            table = rest.next()?;
        }
        rest.by_ref().take(3).find(|token| token.is("SET"))?;
        let is_end = |token: &Token| {
            ["WHERE", "RETURNING", "FROM", "ORDER", "LIMIT"]
                .iter()
                .any(|word| token.is(word))
        };
        let assignments: Vec<_> = rest.take_while(|token| !is_end(token)).collect();
        let columns: Vec<_> = split(&assignments).filter_map(counted).collect();
        (!columns.is_empty()).then(|| Counting {
            table: table.text.clone(),
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

/// The column of `c = c + n`, however it is qualified and bracketed.
fn counted(assignment: &[&Token]) -> Option<String> {
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
    let same = |token: &Token| token.text.eq_ignore_ascii_case(&column.text);
    let counts = match sum {
        [coalesce, own, comma, zero, rest @ ..]
            if (coalesce.is("COALESCE") || coalesce.is("IFNULL"))
                && comma.is(",")
                && is_value(zero) =>
        {
            same(own) && is_added(rest)
        }
        [own, rest @ ..] if same(own) => is_added(rest),
        [value, plus, own] => is_value(value) && plus.is("+") && same(own),
        _ => false,
    };
    (equals.is("=") && counts).then(|| column.text.clone())
}

/// `+ n`, with a cast behind it or not.
fn is_added(tokens: &[&Token]) -> bool {
    let is_part = |token: &&Token| !["+", "-", "*", "/", "%"].iter().any(|sign| token.is(sign));
    match tokens {
        [sign, minus, value, rest @ ..] if minus.is("-") => {
            (sign.is("+") || sign.is("-")) && is_value(value) && rest.iter().all(is_part)
        }
        [sign, value, rest @ ..] => {
            (sign.is("+") || sign.is("-")) && is_value(value) && rest.iter().all(is_part)
        }
        _ => false,
    }
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
        Counting::read(sql).map(|counting| (counting.table, counting.columns))
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
        let both = "UPDATE videos SET views = views + ?, likes = likes - ? WHERE id = ?";
        assert_eq!(columns(both).unwrap().1, ["views", "likes"]);
    }

    #[test]
    fn statements_that_do_not() {
        for sql in [
            "UPDATE videos SET views = 5 WHERE id = 7",
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

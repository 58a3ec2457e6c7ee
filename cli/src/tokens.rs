//! The words and signs of SQL that others wrote.

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

    pub fn names(&self, columns: &[&str]) -> bool {
        columns
            .iter()
            .any(|column| self.text.eq_ignore_ascii_case(column))
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

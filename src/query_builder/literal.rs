//! Texts as literals.

use crate::backend::Dialect;

/// `'text'`, in every mode of the database.
pub(crate) fn literal(dialect: Dialect, text: &str) -> String {
    let quoted = text.replace('\'', "''");
    let is_escaped_in_some_mode = text.contains('\\');
    match dialect {
        Dialect::Postgres if is_escaped_in_some_mode => {
            format!("E'{}'", quoted.replace('\\', r"\\"))
        }
        Dialect::Mysql if is_escaped_in_some_mode => {
            let bytes = text.bytes().map(|byte| format!("{byte:02X}"));
            format!("_utf8mb4 x'{}'", bytes.collect::<String>())
        }
        _ => format!("'{quoted}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_the_same_in_every_mode() {
        assert_eq!(literal(Dialect::Postgres, "it's"), "'it''s'");
        assert_eq!(literal(Dialect::Postgres, r"it\'s"), r"E'it\\''s'");
        assert_eq!(literal(Dialect::Mysql, "it's"), "'it''s'");
        assert_eq!(literal(Dialect::Mysql, r"a\"), "_utf8mb4 x'615C'");
        assert_eq!(literal(Dialect::Sqlite, r"it\'s"), r"'it\''s'");
    }
}

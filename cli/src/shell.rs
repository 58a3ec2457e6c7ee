//! Command lines that the tool prints for the user to run.

/// The word, quoted for a shell if necessary.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A command line of this tool.
pub fn command<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words = words.into_iter().map(|word| format!(" {}", quoted(word)));
    env!("CARGO_BIN_NAME").to_owned() + &words.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were() {
        assert_eq!(quoted("analytics.videos"), "analytics.videos");
        assert_eq!(quoted("it's, so"), r"'it'\''s, so'");
        assert_eq!(quoted(""), "''");
        assert_eq!(command(["fold", "a b"]), "diesel-sharded fold 'a b'");
        assert_eq!(quoted("$(id)"), "'$(id)'");
    }
}

//! Words of command lines that are printed, to be run again.

/// The word as a shell reads it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// `--name=value`
pub fn option(name: &str, value: &str) -> String {
    format!("--{name}={}", quoted(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were() {
        assert_eq!(quoted("analytics.videos"), "analytics.videos");
        assert_eq!(quoted("it's, so"), r"'it'\''s, so'");
        assert_eq!(quoted(""), "''");
        assert_eq!(option("after", "$(id)"), "--after='$(id)'");
    }
}

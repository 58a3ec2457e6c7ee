//! Names like one that does not exist.

/// As like as this, or liker, as clap has it for commands.
const LIKE: f64 = 0.7;

/// The names most like this one, the likest first; three at most.
pub fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n String>) -> Vec<&'n str> {
    let name = name.to_lowercase();
    let likeness = |other: &str| strsim::jaro(&name, &other.to_lowercase());
    let names = names.into_iter().map(|other| (likeness(other), &**other));
    let mut like: Vec<_> = names.filter(|(likeness, _)| *likeness > LIKE).collect();
    like.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    like.into_iter().take(3).map(|(_, name)| name).collect()
}

/// `; did you mean …?`
pub fn like<S: AsRef<str>>(similar: &[S]) -> String {
    let names = similar.iter().map(|name| format!("`{}`", name.as_ref()));
    let names: Vec<_> = names.collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", names.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likest_names_come_first() {
        let names = ["comments", "video_tags", "videos", "Users"].map(str::to_owned);
        assert_eq!(nearest("video", &names), ["videos", "video_tags"]);
        assert_eq!(nearest("vidoes", &names)[0], "videos");
        assert_eq!(nearest("users", &names), ["Users"]);
        assert!(nearest("x", &names).is_empty());
    }
}

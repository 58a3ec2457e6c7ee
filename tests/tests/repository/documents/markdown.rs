//! The links and headings of a Markdown text.

use std::collections::HashSet;

/// The lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of links and pictures.
pub fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| {
        let targets = line.split("](").skip(1);
        targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
    })
}

/// The anchors of headings, as GitHub makes them.
pub fn anchors(text: &str) -> HashSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let headings = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let anchors = headings.map(|heading| {
        let kept = heading.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        kept.collect()
    });
    anchors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_are_none() {
        let text = "[a](b.md) and ![c](d.svg)\n```\n[e](f.md)\n```\n[g](h.md#i)";
        assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "d.svg", "h.md#i"]);
    }

    #[test]
    fn anchors_are_github_s() {
        let anchors = anchors("# Give each node's processes a stripe\n## `max_delay`, and B");
        assert!(anchors.contains("give-each-nodes-processes-a-stripe"));
        assert!(anchors.contains("max_delay-and-b"));
    }
}

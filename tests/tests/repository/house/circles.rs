//! The circles in a graph of files or folders.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::arrows::{Arrows, Line};

/// Nodes that can all be reached from each other.
#[derive(Debug)]
pub struct Circle<'a> {
    pub nodes: BTreeSet<&'a str>,
    arrows: BTreeMap<(&'a str, &'a str), &'a Line>,
}

/// Finds the circles; a node is in one of them at most.
pub fn circles(arrows: &Arrows) -> Vec<Circle<'_>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        next.entry(from).or_default().push(to);
    }
    let reachable = |from: &str| {
        let mut reached = BTreeSet::new();
        let mut waiting = next.get(from).cloned().unwrap_or_default();
        while let Some(node) = waiting.pop() {
            if reached.insert(node) {
                waiting.extend(next.get(node).into_iter().flatten());
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|node| (*node, reachable(node))).collect();
    let mut found: Vec<Circle<'_>> = vec![];
    for (node, others) in &reached {
        let is_known = found.iter().any(|circle| circle.nodes.contains(node));
        if is_known || !others.contains(node) {
            continue;
        }
        let comes_back =
            |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(node));
        let nodes: BTreeSet<_> = others.iter().filter(comes_back).copied().collect();
        let inside = arrows
            .iter()
            .map(|((from, to), line)| ((from.as_str(), to.as_str()), line));
        let arrows = inside
            .filter(|((from, to), _)| nodes.contains(from) && nodes.contains(to))
            .collect();
        found.push(Circle { nodes, arrows });
    }
    found
}

impl Circle<'_> {
    /// The shortest way round, and the other arrows that tie its nodes to each other.
    pub fn describe(&self) -> String {
        let round = self.shortest();
        let ends = self.arrows.keys().copied();
        let others: Vec<_> = ends.filter(|ends| !round.contains(ends)).collect();
        let list = |arrows: &[(&str, &str)]| {
            let lines = arrows.iter().map(|(from, to)| {
                let Line { number, text } = self.arrows[&(*from, *to)];
                format!("    {from} -> {to}  (line {number}: {text})\n")
            });
            lines.collect::<String>()
        };
        let count = self.nodes.len();
        let mut text = format!("{count} in a circle, which these close:\n{}", list(&round));
        if !others.is_empty() {
            text += &format!("  and these belong to it:\n{}", list(&others));
        }
        text
    }

    /// The arrows of a shortest way round.
    fn shortest(&self) -> Vec<(&str, &str)> {
        let rounds = self.nodes.iter().map(|start| self.round_from(start));
        rounds.min_by_key(Vec::len).unwrap_or_default()
    }

    fn round_from<'a>(&'a self, start: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut waiting = VecDeque::from([vec![start]]);
        let mut seen = BTreeSet::new();
        while let Some(way) = waiting.pop_front() {
            let last = way[way.len() - 1];
            for (_, to) in self.arrows.keys().filter(|(from, _)| *from == last) {
                let longer = [&way[..], &[*to]].concat();
                if *to == start {
                    return longer.windows(2).map(|ends| (ends[0], ends[1])).collect();
                }
                if seen.insert(*to) {
                    waiting.push_back(longer);
                }
            }
        }
        vec![]
    }
}

/// The arrows between the folders and files directly in `root`: all files below one folder are one node, with the file of the same name.
pub fn between_folders(root: &str, files: &[String], arrows: &Arrows) -> Arrows {
    let below = |file: &str| -> Option<String> {
        let (folder, _) = file
            .strip_prefix(root)?
            .strip_prefix('/')?
            .split_once('/')?;
        Some(format!("{root}/{folder}/"))
    };
    let folders: BTreeSet<_> = files.iter().filter_map(|file| below(file)).collect();
    let node = |file: &str| {
        let own = format!("{}/", file.trim_end_matches(".rs"));
        below(file).unwrap_or_else(|| match folders.contains(&own) {
            true => own,
            false => file.to_owned(),
        })
    };
    let is_inside = |file: &str| {
        file.strip_prefix(root)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let mut between = Arrows::new();
    let inside = |((from, to), _): &(&(String, String), _)| is_inside(from) && is_inside(to);
    for ((from, to), line) in arrows.iter().filter(inside) {
        let ends = (node(from), node(to));
        if ends.0 != ends.1 {
            let mut line = line.clone();
            if ends.0 != *from {
                line.text += &format!(" in {from}");
            }
            between.entry(ends).or_insert(line);
        }
    }
    between
}

/// The folder `top`, and every folder below it that holds one of the files.
pub fn folders_below(top: &str, files: &[String]) -> BTreeSet<String> {
    let mut folders = BTreeSet::from([top.to_owned()]);
    for file in files {
        let mut path = file.as_str();
        while let Some((folder, _)) = path.rsplit_once('/') {
            if folder.len() <= top.len() {
                break;
            }
            folders.insert(folder.to_owned());
            path = folder;
        }
    }
    folders
}

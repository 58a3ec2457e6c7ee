//! Which module defines the item that a path names.

use std::collections::BTreeSet;

use super::imports::Import;
use super::modules::{Crate, Id, ROOT};

/// Imports of imports are followed so far; a name that imports itself ends there.
const MOST_HOPS: usize = 8;

impl Crate {
    /// The modules that define what `path` names in module `from`; none if it names something of another crate.
    pub fn definers(&self, from: Id, path: &[String]) -> BTreeSet<Id> {
        let mut found = BTreeSet::new();
        self.resolve(from, path, &mut BTreeSet::new(), &mut found);
        found
    }

    fn resolve(
        &self,
        from: Id,
        path: &[String],
        seen: &mut BTreeSet<(Id, String)>,
        found: &mut BTreeSet<Id>,
    ) {
        let (mut at, mut rest) = match path {
            [first, rest @ ..] if first == "crate" => (vec![ROOT], rest),
            [first, rest @ ..] if first == "self" => (vec![from], rest),
            [first, ..] if first == "super" => (vec![from], path),
            [first, ..] if self.has(from, first) || self.has_by_glob(from, first) => {
                (vec![from], path)
            }
            [first, rest @ ..] if self.names_itself(first) => (vec![ROOT], rest),
            _ => return,
        };
        while let [first, behind @ ..] = rest
            && first == "super"
        {
            at = at
                .iter()
                .filter_map(|id| self.modules[*id].parent)
                .collect();
            rest = behind;
        }
        loop {
            match rest {
                [] => return found.extend(at),
                [name] => {
                    at.iter().for_each(|id| self.item(*id, name, seen, found));
                    return;
                }
                [name, behind @ ..] => {
                    let modules: Vec<_> = at
                        .iter()
                        .flat_map(|id| self.modules_named(*id, name, 0))
                        .collect();
                    if modules.is_empty() {
                        // A type, with one of its variants or functions behind it.
                        at.iter().for_each(|id| self.item(*id, name, seen, found));
                        return;
                    }
                    (at, rest) = (modules, behind);
                }
            }
        }
    }

    /// Whether the crate gives itself this name, as `extern crate self as name` does.
    fn names_itself(&self, name: &str) -> bool {
        let mut imports = self.modules[ROOT].imports.iter();
        imports.any(|import| import.is_named(name) && import.path == ["crate"])
    }

    /// Adds the modules that define `name`, which is looked up in module `id`. An item without a known definition is one
    /// that a macro defines there.
    fn item(
        &self,
        id: Id,
        name: &str,
        seen: &mut BTreeSet<(Id, String)>,
        found: &mut BTreeSet<Id>,
    ) {
        if !seen.insert((id, name.to_owned())) {
            return;
        }
        let module = &self.modules[id];
        if module.defined.contains(name) {
            found.insert(id);
            return;
        }
        if let (ROOT, Some(definer)) = (id, self.exported_macros.get(name)) {
            found.insert(*definer);
            return;
        }
        let named = |import: &&Import| import.is_named(name);
        let mut imported = module.imports.iter().filter(named).peekable();
        if imported.peek().is_some() {
            imported.for_each(|import| self.resolve(id, &import.path, seen, found));
            return;
        }
        let glob = self
            .globs(id)
            .into_iter()
            .find(|other| self.has(*other, name));
        match (glob, module.children.get(name)) {
            (_, Some(children)) => found.extend(children),
            (Some(other), None) => self.item(other, name, seen, found),
            // A facade hands on what a macro defines in a module behind it.
            (None, None) if self.is_facade(id) => found.extend(self.globs(id)),
            (None, None) => {
                found.insert(id);
            }
        }
    }

    /// The modules that `name` stands for in a module: its children, and those that it imports.
    fn modules_named(&self, id: Id, name: &str, hops: usize) -> Vec<Id> {
        let module = &self.modules[id];
        if let Some(children) = module.children.get(name) {
            return children.clone();
        }
        let imports = module.imports.iter().filter(|import| import.is_named(name));
        let modules = imports.flat_map(|import| self.modules_at(id, &import.path, hops + 1));
        modules.collect()
    }

    /// The modules at a path; none if it is the path of an item.
    fn modules_at(&self, from: Id, path: &[String], hops: usize) -> Vec<Id> {
        if hops > MOST_HOPS {
            return vec![];
        }
        let (mut at, path) = match path {
            [first, rest @ ..] if first == "crate" => (vec![ROOT], rest),
            [first, rest @ ..] if first == "self" => (vec![from], rest),
            _ => (vec![from], path),
        };
        for name in path {
            at = match name.as_str() {
                "super" => at
                    .iter()
                    .filter_map(|id| self.modules[*id].parent)
                    .collect(),
                name => {
                    let modules = at.iter().flat_map(|id| self.modules_named(*id, name, hops));
                    modules.collect()
                }
            };
        }
        at
    }

    /// Whether a module defines, declares or imports something of this name.
    fn has(&self, id: Id, name: &str) -> bool {
        let module = &self.modules[id];
        module.defined.contains(name)
            || module.children.contains_key(name)
            || module.imports.iter().any(|import| import.is_named(name))
            || id == ROOT && self.exported_macros.contains_key(name)
    }

    /// Whether one of the modules whose names are all imported into this one has this name.
    pub fn has_by_glob(&self, id: Id, name: &str) -> bool {
        !self.has(id, name)
            && self
                .globs(id)
                .into_iter()
                .any(|other| self.has(other, name))
    }

    /// The modules whose names are all imported into a module.
    fn globs(&self, id: Id) -> Vec<Id> {
        let imports = self.modules[id].imports.iter();
        let globs = imports.filter(|import| import.name.is_none());
        globs
            .flat_map(|glob| self.modules_at(id, &glob.path, 0))
            .collect()
    }
}

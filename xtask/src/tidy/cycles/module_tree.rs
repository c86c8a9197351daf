//! Resolves the paths in the files of a crate to other files of it.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::Paths;
use crate::tidy::Tree;
use crate::tidy::sizes::is_test_file;

/// Most imports that a name is followed through: modules may import it from each other.
const IMPORTS_FOLLOWED_MAX: usize = 8;

/// The production files of a crate by the name of their module (`a::b`; the root is empty).
pub(super) struct ModuleTree<'a> {
    modules: BTreeMap<String, Module<'a>>,
}

/// Treatment of imports between a module and its ancestors and descendants.
#[derive(Clone, Copy)]
pub(super) enum Kin {
    /// Left out: a module and its parts are one subject.
    Left,
    /// Counted like others.
    Counted,
}

struct Module<'a> {
    path: &'a str,
    paths: Paths,
}

impl<'a> ModuleTree<'a> {
    /// Reads the files below `src` (which ends with `/`).
    pub(super) fn of(tree: &'a Tree, src: &str) -> ModuleTree<'a> {
        let mut modules = BTreeMap::new();
        for (path, text) in tree.below(src).filter(|(path, _)| !is_test_file(path)) {
            let path = &path[src.len()..];
            let Some(name) = module_name(path) else {
                continue;
            };
            // `lib.rs` is before `main.rs`, which no file imports.
            let module = || Module {
                path,
                paths: Paths::of(text),
            };
            modules.entry(name).or_insert_with(module);
        }
        let test_modules: Vec<String> = modules.iter().flat_map(test_modules).collect();
        modules.retain(|name, _| !test_modules.iter().any(|test| contains(test, name)));
        ModuleTree { modules }
    }

    /// The names of the modules, in the order of [`ModuleTree::paths`].
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    /// The paths of the files, below `src`.
    pub(super) fn paths(&self) -> impl Iterator<Item = &'a str> {
        self.modules.values().map(|module| module.path)
    }

    /// The other modules that a module imports.
    pub(super) fn imported(&self, name: &str, kin: Kin) -> BTreeSet<&str> {
        let paths = &self.modules[name].paths;
        let imports = paths.imports.iter().map(|import| &import.path);
        let all = imports.chain(&paths.inline);
        let imported = all.filter_map(|path| self.resolve(name, path, IMPORTS_FOLLOWED_MAX));
        let counts = |other: &&str| match kin {
            Kin::Left => !contains(name, other) && !contains(other, name),
            Kin::Counted => *other != name,
        };
        imported.filter(counts).collect()
    }

    /// Returns the module that a path in module `from` leads to, unless it leads to another crate.
    fn resolve(&self, from: &str, path: &[String], followed_max: usize) -> Option<&str> {
        let (first, rest) = path.split_first()?;
        let mut module = match first.as_str() {
            "crate" => "",
            "self" => from,
            "super" => parent(from)?,
            _ => return self.resolve_name(from, path, followed_max),
        };
        let mut rest = rest;
        while rest.first().is_some_and(|segment| segment == "super") {
            (module, rest) = (parent(module)?, &rest[1..]);
        }
        let deeper = self.resolve_name(module, rest, followed_max);
        deeper.or_else(|| self.existing(module))
    }

    /// Returns the module that a path leads to whose first name is one of module `from`.
    fn resolve_name(&self, from: &str, path: &[String], followed_max: usize) -> Option<&str> {
        let (name, rest) = path.split_first()?;
        if let Some(child) = self.existing(&join(from, name)) {
            let deeper = self.resolve_name(child, rest, followed_max);
            return deeper.or(Some(child));
        }
        let mut imports = self.modules.get(from)?.paths.imports.iter();
        let import = imports.find(|import| import.name.as_ref() == Some(name))?;
        let path = [&import.path[..], rest].concat();
        self.resolve(from, &path, followed_max.checked_sub(1)?)
    }

    /// Returns the module's name if the crate has such a file.
    fn existing(&self, module: &str) -> Option<&str> {
        let (name, _) = self.modules.get_key_value(module)?;
        Some(name)
    }
}

/// The module of a file, from its path below `src/`; `None`: it is no source file.
fn module_name(path: &str) -> Option<String> {
    let name = path.strip_suffix(".rs")?;
    let is_root = name == "lib" || name == "main";
    Some(if is_root {
        String::new()
    } else {
        name.replace('/', "::")
    })
}

fn test_modules<'a>(module: (&'a String, &'a Module<'_>)) -> impl Iterator<Item = String> + 'a {
    let (name, Module { paths, .. }) = module;
    paths.test_modules.iter().map(move |test| join(name, test))
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() {
        return name.to_owned();
    }
    format!("{module}::{name}")
}

fn parent(module: &str) -> Option<&str> {
    let above = module.rsplit_once("::").map(|(above, _)| above);
    (!module.is_empty()).then(|| above.unwrap_or_default())
}

/// Whether `inner` is `outer` or one of its descendants.
fn contains(outer: &str, inner: &str) -> bool {
    let below = inner.strip_prefix(outer);
    outer.is_empty() || below.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

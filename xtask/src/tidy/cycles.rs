//! Checks that the files of a crate do not import each other in large cycles.
//!
//! A file imports another if its production code names a path that leads to that file: to the
//! longest part of the path that is a module. The path begins with `crate::`, `super::` or
//! `self::`, or with a name that the file imports by such a path. If a module imports a name
//! itself, a path to that name leads to where the module imports it from.
//!
//! An import between a file and one of its ancestors or descendants in the module tree does not
//! count, because a module and its parts are one subject. It counts in the crates of
//! [`WITH_PARENTS`], whose parts can be read without the whole. Inline modules are not
//! distinguished from their file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use self::components::components;
use self::module_tree::{Kin, ModuleTree};
use super::{Problem, Tree};

mod components;
mod module_tree;
mod paths;

/// Files of a cycle that a reader can still take in together.
const FILES_MAX: usize = 10;

/// A crate with a cycle of more than [`FILES_MAX`] files, and how many the cycle may have.
pub(crate) struct LargerCycle {
    /// Folder below `crates/`.
    pub(crate) folder: &'static str,
    pub(crate) files: usize,
}

/// Aim for none, and lower a number when files leave the cycle. An entry that no cycle needs is a
/// problem itself.
pub(crate) const LARGER_CYCLES: &[LargerCycle] = &[];

/// Crates, by folder, in which imports between a file and its parents count as well. Aim for all.
const WITH_PARENTS: &[&str] = &["config", "engine"];

/// The imports of each crate, by its folder below `crates/`.
pub(crate) struct Cycles<'a> {
    graphs: BTreeMap<&'a str, Graph<'a>>,
    /// Graphs that have the imports between a file and its parents as well.
    with_parents: BTreeMap<&'a str, Graph<'a>>,
}

impl<'a> Cycles<'a> {
    pub(crate) fn of(tree: &'a Tree) -> Cycles<'a> {
        let sources = tree.below("crates/");
        let folders: BTreeSet<&str> = sources
            .filter_map(|(path, _)| path.split('/').nth(1))
            .collect();
        let graphs = |kin| {
            let graph = |folder: &&'a str| (*folder, Graph::of(tree, folder, kin));
            folders.iter().map(graph).collect()
        };
        Cycles {
            graphs: graphs(Kin::Left),
            with_parents: graphs(Kin::Counted),
        }
    }

    /// Checks the cycles of each crate; the largest one uses the largest of its `exceptions`.
    pub(crate) fn check(&self, exceptions: &[LargerCycle]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (folder, graph) in &self.graphs {
            let mut allowed = allowed(exceptions, folder).into_iter();
            let cycles = graph.cycles();
            for cycle in cycles.iter().filter(|cycle| cycle.len() > FILES_MAX) {
                let files_max = allowed.next().unwrap_or(FILES_MAX);
                if cycle.len() > files_max {
                    problems.push(graph.problem(cycle, files_max));
                }
            }
            problems.extend(allowed.map(|files| unneeded(folder, files)));
        }
        let with_parents = WITH_PARENTS.iter();
        for graph in with_parents.filter_map(|folder| self.with_parents.get(folder)) {
            let cycles = graph.cycles().into_iter();
            let larger = cycles.filter(|cycle| cycle.len() > FILES_MAX);
            problems.extend(larger.map(|cycle| graph.problem(&cycle, FILES_MAX)));
        }
        let unknown = exceptions
            .iter()
            .filter(|exception| !self.graphs.contains_key(exception.folder));
        problems.extend(unknown.map(|exception| unneeded(exception.folder, exception.files)));
        problems
    }

    /// Two lines with the number of files in the largest cycle of each crate: without and with the
    /// imports between a file and its parents.
    pub(crate) fn summary(&self) -> String {
        format!(
            "tidy: largest import cycle: {}\ntidy: the same with imports of parents: {}",
            largest(&self.graphs),
            largest(&self.with_parents)
        )
    }
}

/// Lists the number of files in the largest cycle of each crate, the largest number first.
fn largest(graphs: &BTreeMap<&str, Graph<'_>>) -> String {
    let largest = |graph: &Graph<'_>| graph.cycles().first().map_or(0, Vec::len);
    let mut sizes: Vec<_> = graphs
        .iter()
        .map(|(folder, graph)| (largest(graph), *folder))
        .collect();
    sizes.sort_by_key(|(files, folder)| (Reverse(*files), *folder));
    let mut parts: Vec<String> = sizes
        .iter()
        .map(|(files, folder)| format!("{folder} {files}"))
        .collect();
    if let Some(first) = parts.first_mut() {
        first.push_str(" files");
    }
    parts.join(", ")
}

/// Returns how many files the cycles of a crate may have, the largest number first.
fn allowed(exceptions: &[LargerCycle], folder: &str) -> Vec<usize> {
    let of_crate = exceptions.iter().filter(|entry| entry.folder == folder);
    let mut allowed: Vec<usize> = of_crate.map(|entry| entry.files).collect();
    allowed.sort_by_key(|files| Reverse(*files));
    allowed
}

fn unneeded(folder: &str, files: usize) -> Problem {
    let what = format!(
        "the exception of a cycle of {files} files in `{folder}` is needed no more: remove it"
    );
    Problem::new("xtask/src/tidy/cycles.rs", 1, what)
}

/// The files of a crate, and which imports which.
struct Graph<'a> {
    /// Folder of the crate, below `crates/`.
    folder: &'a str,
    /// Paths of the files, below `src/`.
    paths: Vec<&'a str>,
    /// Numbers of the files that each file imports.
    imports: Vec<Vec<usize>>,
}

/// Imports whose removal takes a file from its cycle.
struct Cut {
    /// File that imports, and file that it imports.
    imports: Vec<(usize, usize)>,
    /// Files in the largest cycle that remains.
    left: usize,
}

impl<'a> Graph<'a> {
    fn of(tree: &'a Tree, folder: &'a str, kin: Kin) -> Graph<'a> {
        let modules = ModuleTree::of(tree, &format!("crates/{folder}/src/"));
        let numbers: BTreeMap<&str, usize> = modules.names().zip(0..).collect();
        let number_all = |names: BTreeSet<&str>| names.iter().map(|name| numbers[name]).collect();
        Graph {
            folder,
            paths: modules.paths().collect(),
            imports: modules
                .names()
                .map(|name| number_all(modules.imported(name, kin)))
                .collect(),
        }
    }

    /// Returns the cycles, the largest first, with their files in order.
    fn cycles(&self) -> Vec<Vec<usize>> {
        let mut cycles = components(&self.imports);
        cycles.retain(|cycle| cycle.len() > 1);
        cycles.iter_mut().for_each(|cycle| cycle.sort_unstable());
        cycles.sort_by_key(|cycle| (Reverse(cycle.len()), cycle[0]));
        cycles
    }

    fn problem(&self, cycle: &[usize], files_max: usize) -> Problem {
        let files = cycle.iter().map(|file| self.paths[*file].to_owned());
        let mut what = format!(
            "{} files import each other in a cycle, over {files_max} ({})",
            cycle.len(),
            first_few(files)
        );
        let cuts = cycle.iter().map(|file| self.cut(cycle, *file));
        if let Some(cut) = cuts.min_by_key(|cut| (cut.left, cut.imports.len())) {
            let import = |(from, to): &(usize, usize)| {
                format!("{} -> {}", self.paths[*from], self.paths[*to])
            };
            let (count, left) = (cut.imports.len(), cut.left.max(1));
            let imports = first_few(cut.imports.iter().map(import));
            what += &format!(": to leave {left}, cut {count} ({imports})");
        }
        let first = format!("crates/{}/src/{}", self.folder, self.paths[cycle[0]]);
        Problem::new(&first, 1, what)
    }

    /// Returns the cheapest cut that takes `file` from its cycle: what it imports, or its imports
    /// by others.
    fn cut(&self, cycle: &[usize], file: usize) -> Cut {
        let is_member = |file: &usize| cycle.contains(file);
        let mut others = vec![Vec::new(); self.imports.len()];
        let (mut from_file, mut to_file) = (Vec::new(), Vec::new());
        for &from in cycle {
            for &to in self.imports[from].iter().filter(|to| is_member(to)) {
                if from == file {
                    from_file.push((from, to));
                } else if to == file {
                    to_file.push((from, to));
                } else {
                    others[from].push(to);
                }
            }
        }
        let left = components(&others).iter().map(Vec::len).max();
        let cheaper = from_file.len() <= to_file.len();
        Cut {
            imports: if cheaper { from_file } else { to_file },
            left: left.unwrap_or_default(),
        }
    }
}

/// Joins the first few of the names.
fn first_few(names: impl Iterator<Item = String>) -> String {
    const FEW: usize = 5;
    let mut few: Vec<String> = names.take(FEW + 1).collect();
    if few.len() > FEW {
        few[FEW] = "...".to_owned();
    }
    few.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    const FIRST: &str = "crates/wire/src/f0.rs:1";

    #[track_caller]
    fn found(files: &[(String, String)], exceptions: &[LargerCycle], expect: &[(&str, &str)]) {
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        assert_found(|tree| Cycles::of(tree).check(exceptions), &files, expect);
    }

    fn file(path: &str, text: impl Into<String>) -> (String, String) {
        (format!("crates/wire/src/{path}"), text.into())
    }

    /// Files `f0`, `f1` ... of which each names the next one, and the last names the first one.
    fn cycle(files: usize, naming: impl Fn(usize) -> String) -> Vec<(String, String)> {
        let text = |index: usize| naming((index + 1) % files);
        (0..files)
            .map(|index| file(&format!("f{index}.rs"), text(index)))
            .collect()
    }

    fn using(index: usize) -> String {
        format!("use crate::f{index}::A{index};\n")
    }

    fn except(folder: &'static str, files: usize) -> LargerCycle {
        LargerCycle { folder, files }
    }

    #[test]
    fn a_cycle_of_eleven_files_is_found_and_one_of_ten_is_not() {
        found(&cycle(10, using), &[], &[]);
        found(&cycle(11, using), &[], &[(FIRST, "11 files")]);
    }

    #[test]
    fn each_way_to_name_a_file_is_an_import() {
        let ways: [fn(usize) -> String; 7] = [
            |index| format!("pub use super::f{index}::{{self as g, A{index}}};\n"),
            |index| format!("use crate::{{b, f{index}::*}};\n"),
            |index| format!("fn f() {{ crate::f{index}::g() }}\n"),
            |index| format!("fn f(a: &super::f{index}::A{index}) {{}}\n"),
            |index| format!("use self::super::f{index} as g;\n"),
            |index| format!("use super::f{index} as g;\nuse g::A;\n"),
            |index| format!("use super::{{\n    f{index},\n}};\n"),
        ];
        for way in ways {
            found(&cycle(11, way), &[], &[(FIRST, "11 files")]);
        }
    }

    #[test]
    fn a_name_leads_to_the_file_that_it_is_imported_from() {
        let mut files = cycle(11, |index| format!("use super::A{index};\n"));
        let imports = (0..11).map(|index| format!("pub use self::f{index}::A as A{index};\n"));
        files.push(file("lib.rs", imports.collect::<String>()));
        found(&files, &[], &[(FIRST, "11 files")]);
        let mut files = cycle(11, |index| format!("fn f() {{ crate::b::A{index}() }}\n"));
        let imports = (0..11).map(|index| format!("pub use super::f{index}::A as A{index};\n"));
        files.push(file("b.rs", imports.collect::<String>()));
        found(&files, &[], &[(FIRST, "11 files")]);
    }

    #[test]
    fn a_path_may_begin_with_an_imported_module() {
        let mut files = cycle(11, |index| {
            format!("use crate::a;\nfn f() {{ a::f{index}::g() }}\n")
        });
        for (path, _) in &mut files {
            *path = path.replace("/f", "/a/f");
        }
        files.push(file("a.rs", ""));
        found(&files, &[], &[("crates/wire/src/a/f0.rs:1", "11 files")]);
    }

    #[test]
    fn an_import_between_a_module_and_its_parts_counts_in_some_crates_only() {
        let parts = (0..20).map(|index| file(&format!("a/f{index}.rs"), "use super::B;\n"));
        let mut files: Vec<_> = parts.collect();
        let imports = (0..20).map(|index| format!("use self::f{index}::A;\n"));
        files.push(file("a.rs", imports.collect::<String>()));
        files.push(file("a/f0/b.rs", "use crate::a::B;\nuse super::C;\n"));
        found(&files, &[], &[]);
        for (path, _) in &mut files {
            *path = path.replace("/wire/", "/config/");
        }
        let place = "crates/config/src/a.rs:1";
        found(&files, &[], &[(place, "21 files")]);
    }

    #[test]
    fn an_import_by_tests_does_not_count() {
        let inline = |index| match index {
            0 => format!("#[cfg(test)]\nmod tests {{\n    {}}}\n", using(0)),
            _ => using(index),
        };
        found(&cycle(11, inline), &[], &[]);
        let mut files = cycle(11, |index| match index {
            0 => "#[cfg(test)]\npub(crate) mod sample;\n".to_owned(),
            10 => "use crate::f10::sample::A;\n".to_owned(),
            _ => using(index),
        });
        files.push(file("f10/sample.rs", using(0)));
        found(&files, &[], &[]);
        files[10].1 = "mod tests;\n".to_owned();
        files[9].1 = "use crate::f10::tests::A;\n".to_owned();
        files.push(file("f10/tests.rs", using(0)));
        found(&files, &[], &[]);
    }

    #[test]
    fn an_exception_allows_its_number_of_files_and_no_more() {
        found(&cycle(12, using), &[except("wire", 12)], &[]);
        let more = [(FIRST, "13 files import each other in a cycle, over 12")];
        found(&cycle(13, using), &[except("wire", 12)], &more);
        found(&cycle(11, using), &[except("wire", 12)], &[]);
    }

    #[test]
    fn an_exception_that_no_cycle_needs_is_found() {
        let place = "xtask/src/tidy/cycles.rs:1";
        let exception = [except("wire", 12)];
        found(&cycle(10, using), &exception, &[(place, "no more")]);
        let exceptions = [except("wire", 12), except("lab", 12)];
        found(&cycle(12, using), &exceptions, &[(place, "`lab`")]);
        let exceptions = [except("wire", 12), except("wire", 11)];
        found(&cycle(12, using), &exceptions, &[(place, "11 files")]);
    }

    #[test]
    fn the_cut_that_leaves_the_smallest_cycle_is_named() {
        let mut files = cycle(11, using);
        files[3].1 += "use crate::f2::A2;\n";
        let cut = "to leave 1, cut 1 (f2.rs -> f3.rs)";
        found(&files, &[], &[(FIRST, cut)]);
    }

    #[test]
    fn the_summary_names_the_largest_cycles_first() {
        let tree = Tree::of(&[
            ("crates/lab/src/lib.rs", "mod a;\n"),
            ("crates/wire/src/a.rs", "use crate::b;\n"),
            ("crates/wire/src/b.rs", "use crate::a;\nuse self::c::C;\n"),
            ("crates/wire/src/b/c.rs", "use super::C;\n"),
        ]);
        let lines = "tidy: largest import cycle: wire 2 files, lab 0\n\
            tidy: the same with imports of parents: wire 3 files, lab 0";
        assert_eq!(Cycles::of(&tree).summary(), lines);
    }
}

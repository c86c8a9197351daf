//! Style as a test: every rule reads the same tree of files and returns what breaks it.

use std::fmt;
use std::process::ExitCode;

mod cycles;
mod documents;
mod edges;
mod flags;
mod names;
mod prose;
mod protocols;
mod purity;
mod registration;
mod rust;
mod sizes;
mod subjects;
mod tree;
mod words;

use cycles::{Cycles, LARGER_CYCLES};
pub(crate) use sizes::production_lines;
pub(crate) use tree::Tree;

/// A broken rule: where, what, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    file: String,
    line: usize,
    what: String,
}

impl Problem {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Problem {
        Problem {
            file: file.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Checks the repository that this program was built from.
pub(crate) fn run() -> ExitCode {
    let root = crate::repository();
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read {}: {error}", root.display());
            return ExitCode::FAILURE;
        }
    };
    println!("{}", sizes::summary(&tree));
    let cycles = Cycles::of(&tree);
    println!("{}", cycles.summary());
    let mut problems = problems(&tree, &cycles);
    problems.extend(subjects::check(root));
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("tidy: {} to put right", problems.len());
    ExitCode::FAILURE
}

fn problems(tree: &Tree, cycles: &Cycles<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    problems.extend(edges::check(tree));
    problems.extend(flags::check(tree));
    problems.extend(cycles.check(LARGER_CYCLES));
    problems.extend(names::check(tree));
    problems.extend(registration::check(tree));
    problems.extend(protocols::check(tree));
    problems.extend(purity::check(tree));
    problems.extend(words::check(tree));
    problems.extend(prose::check(tree));
    problems.extend(sizes::check(tree, sizes::EXEMPTIONS));
    problems.extend(documents::check(tree));
    problems.sort();
    problems
}

/// Asserts that `rule` finds exactly `expect` (`file:line` and a part of the message) in `files`.
#[cfg(test)]
#[track_caller]
fn assert_found(
    rule: impl Fn(&Tree) -> Vec<Problem>,
    files: &[(&str, &str)],
    expect: &[(&str, &str)],
) {
    let found: Vec<String> = rule(&Tree::of(files))
        .iter()
        .map(Problem::to_string)
        .collect();
    let fits = |line: &String, place: &str, part: &str| {
        line.starts_with(&format!("{place}: ")) && line.contains(part)
    };
    let all = expect
        .iter()
        .all(|(place, part)| found.iter().any(|line| fits(line, place, part)));
    assert!(
        all && found.len() == expect.len(),
        "expected {expect:?}\nfound {found:#?}"
    );
}

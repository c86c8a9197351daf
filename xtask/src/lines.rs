//! Counts the production lines of each crate.

use std::collections::BTreeMap;
use std::process::ExitCode;

use crate::repository;
use crate::tidy::{Tree, production_lines};

/// Line counts of a crate, without tests.
#[derive(Default)]
struct Lines {
    files: usize,
    /// Lines, including comments and blank lines.
    all: usize,
    /// Lines without comments and blank lines.
    code: usize,
}

/// Prints a table with a row for each crate, and one for their sum.
pub(crate) fn run() -> ExitCode {
    let tree = match Tree::read(repository()) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("the repository cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    };
    let crates = counted(&tree);
    println!(
        "{:<10} {:>6} {:>8} {:>8}",
        "crate", "files", "lines", "code"
    );
    let mut sum = Lines::default();
    for (name, lines) in &crates {
        row(name, lines);
        sum.files += lines.files;
        sum.all += lines.all;
        sum.code += lines.code;
    }
    row("all", &sum);
    ExitCode::SUCCESS
}

fn row(name: &str, lines: &Lines) {
    let Lines { files, all, code } = lines;
    println!("{name:<10} {files:>6} {all:>8} {code:>8}");
}

fn counted(tree: &Tree) -> BTreeMap<&str, Lines> {
    let mut crates: BTreeMap<&str, Lines> = BTreeMap::new();
    for (path, text) in tree.ending(".rs") {
        let Some((name, rest)) = crate_of(path) else {
            continue;
        };
        if !rest.starts_with("src/") {
            continue;
        }
        let Some((all, code)) = production_lines(path, text) else {
            continue;
        };
        let lines = crates.entry(name).or_default();
        lines.files += 1;
        lines.all += all;
        lines.code += code;
    }
    crates
}

/// Returns the crate of a file, and the file's path in it.
fn crate_of(path: &str) -> Option<(&str, &str)> {
    match path.strip_prefix("crates/") {
        Some(rest) => rest.split_once('/'),
        None => path.strip_prefix("xtask/").map(|rest| ("xtask", rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_comments_and_blank_lines_are_no_code() {
        let text = "//! A file.\n\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", text),
            ("crates/a/src/lib/tests.rs", "fn h() {}\n"),
            ("crates/a/tests/all.rs", "fn i() {}\n"),
        ]);
        let crates = counted(&tree);
        let lines = &crates["a"];
        assert_eq!((lines.files, lines.all, lines.code), (1, 4, 1));
    }
}

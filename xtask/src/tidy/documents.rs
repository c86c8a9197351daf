//! What the documents point at exists.

use super::{Problem, Tree};

/// The documents that name places in the code.
const MAPS: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Paths in back-ticks that begin like this are places in the code.
const PLACES: [&str; 4] = ["crates/", "fuzz/", "scripts/", "xtask/"];

/// A name of fewer words may be anything.
const WORDS_OF_A_TEST: usize = 4;

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (line, prose) in prose(text) {
            problems.extend(dead_links(tree, path, line, prose));
            problems.extend(missing_tests(tree, path, line, prose));
            if MAPS.contains(&path) {
                problems.extend(dead_places(tree, path, line, prose));
            }
        }
    }
    problems
}

/// The numbered lines that are not in a fenced block.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

fn dead_links(tree: &Tree, path: &str, number: usize, line: &str) -> Vec<Problem> {
    let targets = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let relative = targets.filter(|target| {
        let elsewhere = target.contains("://") || target.starts_with("mailto:");
        !elsewhere && !target.starts_with('#')
    });
    let dead = relative.filter(|target| {
        let file = target.split('#').next().unwrap_or_default();
        resolve(path, file).is_none_or(|file| !tree.has(&file))
    });
    let what = |target| format!("the link to `{target}` leads nowhere: correct or remove it");
    dead.map(|target| Problem::new(path, number, what(target)))
        .collect()
}

/// The path from the root that `target`, written in `document`, means; `None` if outside.
fn resolve(document: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// What stands in back-ticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// `file::a_sentence_with_underscores` is a test.
fn missing_tests(tree: &Tree, path: &str, number: usize, line: &str) -> Vec<Problem> {
    let named = quoted(line).filter_map(|name| name.split_once("::"));
    let tests = named.filter(|(_, name)| name.matches('_').count() >= WORDS_OF_A_TEST - 1);
    let missing = tests.filter(|(file, name)| {
        let mut files = tree.ending(".rs");
        let has = |(path, text): (&str, &str)| {
            path.ends_with(&format!("/{file}.rs")) && text.contains(&format!("fn {name}("))
        };
        !files.any(has)
    });
    let what = |(file, name)| format!("there is no test `{file}::{name}`: correct the document");
    missing
        .map(|test| Problem::new(path, number, what(test)))
        .collect()
}

fn dead_places(tree: &Tree, path: &str, number: usize, line: &str) -> Vec<Problem> {
    let quoted = quoted(line);
    let places = quoted.filter(|place| {
        let pattern = place.contains(['<', '*', '{', '…', ' ', '(']);
        PLACES.iter().any(|start| place.starts_with(start)) && !pattern
    });
    let dead = places.filter(|place| !tree.has(place.split("::").next().unwrap_or_default()));
    let what = |place| format!("`{place}` does not exist: correct the document");
    dead.map(|place| Problem::new(path, number, what(place)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    const CODE: (&str, &str) = ("crates/wire/src/lib.rs", "");

    #[test]
    fn what_exists_passes() {
        let map = "See `crates/wire`, `crates/wire/src/lib.rs`, `crates/policy/src/<name>.rs`,\n\
            [docs](docs/a.md#part), [here](#part), [web](https://example.org/x).\n\
            ```\n[not a link](nowhere)\n```\n";
        let page = (
            "docs/a.md",
            "[up](../ARCHITECTURE.md) [code](../crates/wire/)",
        );
        assert_found(check, &[("ARCHITECTURE.md", map), page, CODE], &[]);
    }

    #[test]
    fn a_dead_link_is_found() {
        let page = ("docs/a.md", "\n[up](ARCHITECTURE.md), [out](../../x)\n");
        let expect = [
            ("docs/a.md:2", "`ARCHITECTURE.md`"),
            ("docs/a.md:2", "`../../x`"),
        ];
        assert_found(check, &[page, ("ARCHITECTURE.md", "")], &expect);
    }

    #[test]
    fn a_test_that_is_not_there_is_found() {
        let tests = ("crates/lab/tests/mysql/pins.rs", "fn it_is_as_it_is() {}");
        let page = "`pins::it_is_as_it_is`, `pins::it_is_not_so`,\n\
            `other::it_is_as_it_is`, `policy::route`\n";
        let expect = [
            ("docs/a.md:1", "`pins::it_is_not_so`"),
            ("docs/a.md:2", "`other::it_is_as_it_is`"),
        ];
        assert_found(check, &[("docs/a.md", page), tests], &expect);
    }

    #[test]
    fn a_place_that_moved_is_found_in_the_maps_only() {
        let text = "`crates/wire/src/gone.rs`";
        let files = [("CONTRIBUTING.md", text), ("notes.md", text), CODE];
        assert_found(check, &files, &[("CONTRIBUTING.md:1", "does not exist")]);
    }
}

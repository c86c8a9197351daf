//! Checks that what the documents point at exists, and that lines and pages are short.

use super::{Problem, Tree};

/// The documents that name places in the code.
const MAPS: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Paths in back-ticks that begin like this are places in the code.
const PLACES: [&str; 4] = ["crates/", "fuzz/", "scripts/", "xtask/"];

/// Markdown is wrapped at this column.
const COLUMNS_MAX: usize = 120;

/// Documents with a maximum number of lines of their own.
const LINES_MAX: [(&str, usize); 3] = [
    ("README.md", 130),
    ("ARCHITECTURE.md", 150),
    ("CHANGELOG.md", 60),
];

/// The folder of the book's pages, and how long one may be.
const PAGES: &str = "docs/";
const PAGE_LINES_MAX: usize = 300;

/// The list of the book's pages.
const SUMMARY: &str = "docs/SUMMARY.md";

/// A name of fewer words may be anything.
const WORDS_OF_A_TEST: usize = 4;

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (line, prose) in prose(text) {
            problems.extend(dead_links(tree, path, line, prose));
            problems.extend(long_line(path, line, prose));
            problems.extend(missing_tests(tree, path, line, prose));
            if MAPS.contains(&path) {
                problems.extend(dead_places(tree, path, line, prose));
            }
        }
        problems.extend(long_page(path, text));
    }
    problems.extend(unlisted_pages(tree));
    problems
}

/// Reports a line over the limit that can be wrapped: no row of a table, and no single word.
fn long_line(path: &str, number: usize, line: &str) -> Option<Problem> {
    let text = line.trim_start();
    let is_row = text.starts_with('|');
    let text = ["- ", "* ", "> "]
        .iter()
        .find_map(|mark| text.strip_prefix(mark))
        .unwrap_or(text);
    let first_word = text.split(' ').next().unwrap_or_default().chars().count();
    let can_be_wrapped = first_word <= COLUMNS_MAX && first_word < text.chars().count();
    let what = format!("longer than {COLUMNS_MAX} columns: wrap it");
    (!is_row && can_be_wrapped && line.chars().count() > COLUMNS_MAX)
        .then(|| Problem::new(path, number, what))
}

/// Reports a document with more lines than it may have.
fn long_page(path: &str, text: &str) -> Option<Problem> {
    let own = LINES_MAX.iter().find(|(name, _)| *name == path);
    let page = path.starts_with(PAGES).then_some(PAGE_LINES_MAX);
    let max = own.map(|(_, max)| *max).or(page)?;
    let lines = text.lines().count();
    let what = format!("{lines} lines, more than {max}: shorten it, or split it");
    (lines > max).then(|| Problem::new(path, max + 1, what))
}

/// Reports the pages that the book leaves out; none where there is no book.
fn unlisted_pages(tree: &Tree) -> Vec<Problem> {
    let Some(summary) = tree.text(SUMMARY) else {
        return Vec::new();
    };
    let listed: Vec<_> = targets(summary)
        .filter_map(|target| resolve(SUMMARY, target.split('#').next()?))
        .collect();
    let pages = tree.below(PAGES).map(|(path, _)| path);
    let pages = pages.filter(|path| path.ends_with(".md") && *path != SUMMARY);
    let missing = pages.filter(|path| !listed.iter().any(|page| page == path));
    let what = format!("missing in {SUMMARY}: add it there");
    missing
        .map(|path| Problem::new(path, 1, what.clone()))
        .collect()
}

/// Returns the targets of the links in a text.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next())
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
    let relative = targets(line).filter(|target| {
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

/// Text in back-ticks.
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
    fn a_line_that_could_be_wrapped_is_found() {
        let word = "x".repeat(COLUMNS_MAX);
        let link = format!("[link](https://example.org/{word})");
        let text = format!(
            "{word}\n{word} y\nyy {word}\n- {link}\n  {link}\n| row | {word} |\n\
             ```\ncode {word}\n```\n"
        );
        let expect = [("docs/a.md:2", "120 columns"), ("docs/a.md:3", "wrap it")];
        assert_found(check, &[("docs/a.md", &text)], &expect);
    }

    #[test]
    fn a_page_that_is_too_long_is_found() {
        let [page, longer] = [PAGE_LINES_MAX, PAGE_LINES_MAX + 1].map(|n| "a\n".repeat(n));
        let readme = "a\n".repeat(131);
        let files = [
            ("docs/a.md", page.as_str()),
            ("docs/b.md", &longer),
            ("README.md", &readme),
            ("notes.md", &longer),
        ];
        let expect = [
            ("docs/b.md:301", "301 lines, more than 300"),
            ("README.md:131", "131 lines, more than 130"),
        ];
        assert_found(check, &files, &expect);
    }

    #[test]
    fn a_page_that_the_book_leaves_out_is_found() {
        let summary = ("docs/SUMMARY.md", "- [A](a.md)\n- [C](part/c.md#d)\n");
        let pages = [
            summary,
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("docs/part/c.md", ""),
            ("README.md", ""),
        ];
        let found = [("docs/b.md:1", "missing in docs/SUMMARY.md")];
        assert_found(unlisted_pages, &pages, &found);
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

//! Words that may not stay in the code, bare `allow`s, and lines that are too long.

use super::rust::{LITERAL, code, find_words, line_of};
use super::{Problem, Tree};

const COLUMNS_MAX: usize = 100;

/// Promises to do it later; split here so that this file passes its own rule.
const LATER: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

const UNFINISHED: [(&str, &str); 4] = [
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("dbg!", "remove it"),
    (
        "#[ignore",
        "a test that does not run proves nothing: make it run, or delete it",
    ),
];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    tree.ending(".rs")
        .flat_map(|(path, text)| check_file(path, text))
        .collect()
}

fn check_file(path: &str, text: &str) -> Vec<Problem> {
    let code = code(text);
    let mut problems = Vec::new();
    for word in LATER {
        problems.extend(find_words(text, word).map(|at| {
            let what = format!("`{word}`: do it now, or open an issue and say it in plain words");
            Problem::new(path, line_of(text, at), what)
        }));
    }
    for (word, instead) in UNFINISHED {
        problems.extend(
            find_words(&code, word)
                .map(|at| Problem::new(path, line_of(&code, at), format!("`{word}`: {instead}"))),
        );
    }
    problems.extend(bare_allows(&code).map(|line| {
        Problem::new(
            path,
            line,
            "a bare `allow`: use #[expect(lint, reason = \"…\")]",
        )
    }));
    problems.extend(long_lines(text, &code).map(|line| {
        Problem::new(
            path,
            line,
            format!("longer than {COLUMNS_MAX} columns: break it"),
        )
    }));
    problems
}

fn bare_allows(code: &str) -> impl Iterator<Item = usize> {
    ["#[allow(", "#![allow("]
        .into_iter()
        .flat_map(move |start| {
            let bare = code.match_indices(start).filter(|(at, _)| {
                let attribute = code[*at..].split(']').next().unwrap_or_default();
                find_words(attribute, "reason").next().is_none()
            });
            bare.map(|(at, _)| line_of(code, at))
        })
}

/// A line with an address of the web cannot be broken, nor can one inside a multi-line literal.
fn long_lines(text: &str, code: &str) -> impl Iterator<Item = usize> {
    text.lines()
        .zip(code.lines())
        .enumerate()
        .filter_map(|(index, (line, code))| {
            let unbreakable = line.contains("://") || code.starts_with(LITERAL);
            (line.chars().count() > COLUMNS_MAX && !unbreakable).then_some(index + 1)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    #[track_caller]
    fn found(text: &str, expect: &[(&str, &str)]) {
        assert_found(check, &[("a.rs", text)], expect);
    }

    #[test]
    fn finished_code_passes() {
        found(
            "// todo lists\nlet mastodon = \"dbg!\";\n#[expect(x, reason = \"y\")]\n",
            &[],
        );
        found("#[allow(unused, reason = \"only on one platform\")]\n", &[]);
    }

    #[test]
    fn each_promise_is_found() {
        for word in LATER {
            found(&format!("\n// {word}: later\n"), &[("a.rs:2", word)]);
        }
        for (word, _) in UNFINISHED {
            found(&format!("\n  {word}(\"x\")\n"), &[("a.rs:2", word)]);
        }
    }

    #[test]
    fn a_bare_allow_is_found() {
        found("\n#[allow(dead_code)]\n", &[("a.rs:2", "expect")]);
        found("#![allow(\n    dead_code\n)]\n", &[("a.rs:1", "expect")]);
    }

    #[test]
    fn a_long_line_is_found_unless_it_cannot_be_broken() {
        let long = "x".repeat(COLUMNS_MAX);
        found(&format!("{long}\n{long}x\n"), &[("a.rs:2", "columns")]);
        found(&format!("// https://{long}\n"), &[]);
        found(&format!("let a = r\"\n{long}x\n\";\n"), &[]);
    }
}

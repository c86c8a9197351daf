//! Checks names of files, and that each begins with a sentence that describes it.

use super::{Problem, Tree};

/// File names (without `.rs`) and folders that say nothing.
const EMPTY_NAMES: [&str; 6] = ["common", "helper", "helpers", "misc", "util", "utils"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    tree.ending(".rs")
        .flat_map(|(path, text)| check_file(path, text))
        .collect()
}

fn check_file(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if parts.last() == Some(&"mod") {
        let beside = path.trim_end_matches("/mod.rs");
        problems.push(Problem::new(
            path,
            1,
            format!("move it to {beside}.rs, beside its folder"),
        ));
    }
    if let Some(name) = parts.iter().find(|part| EMPTY_NAMES.contains(part)) {
        let what = format!("`{name}` says nothing: call it after what it does");
        problems.push(Problem::new(path, 1, what));
    }
    let sentence = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("//! "));
    if sentence.is_none_or(|sentence| sentence.split_whitespace().count() < 3) {
        let what = "the first line must be a `//!` sentence that says what the file is";
        problems.push(Problem::new(path, 1, what));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    const SENTENCE: &str = "//! Says what it is.\n";

    #[test]
    fn a_file_with_a_name_and_a_sentence_passes() {
        assert_found(check, &[("a/relay.rs", SENTENCE), ("a/utils.md", "")], &[]);
    }

    #[test]
    fn a_missing_sentence_is_found() {
        for text in [
            "",
            "use std::fs;\n",
            "// Says what it is.\n",
            "//! x\n",
            "\n//! Too late, now.\n",
        ] {
            assert_found(check, &[("a.rs", text)], &[("a.rs:1", "sentence")]);
        }
    }

    #[test]
    fn a_mod_rs_is_found() {
        assert_found(
            check,
            &[("a/b/mod.rs", SENTENCE)],
            &[("a/b/mod.rs:1", "a/b.rs")],
        );
    }

    #[test]
    fn an_empty_name_is_found() {
        for path in [
            "a/common.rs",
            "a/utils.rs",
            "a/helpers.rs",
            "tests/common/rig.rs",
        ] {
            assert_found(
                check,
                &[(path, SENTENCE)],
                &[(&format!("{path}:1"), "says nothing")],
            );
        }
    }
}

//! Checks the lengths of functions and files; a table has the exemptions with their reasons.

use super::rust::{Function, code, functions, inline_tests};
use super::{Problem, Tree};

const FUNCTION_LINES_MAX: usize = 70;
const PRODUCTION_LINES_MAX: usize = 500;
const INLINE_TEST_LINES_MAX: usize = 200;
const TEST_FILE_LINES_MAX: usize = 800;

/// A file (`path`) or a function (`path::name`) that may be longer, since when, and why.
pub(crate) struct Exemption {
    pub(crate) name: &'static str,
    pub(crate) date: &'static str,
    pub(crate) reason: &'static str,
}

/// Aim for none. An exemption that nothing needs any more is a problem itself.
pub(crate) const EXEMPTIONS: &[Exemption] = &[
    Exemption {
        name: "crates/proxy/src/session/postgres/from_server.rs::event",
        date: "2026-11-27",
        reason: LONGER_NAMES,
    },
    Exemption {
        name: "crates/sql/src/session_state/analysis/pins.rs",
        date: "2026-11-27",
        reason: LONGER_NAMES,
    },
    Exemption {
        name: "crates/sql/src/session_state/mysql/analysis.rs",
        date: "2026-11-27",
        reason: LONGER_NAMES,
    },
    Exemption {
        name: "crates/sql/src/session_state/mysql/session/apply.rs",
        date: "2026-11-27",
        reason: LONGER_NAMES,
    },
    Exemption {
        name: "crates/sql/src/session_state/mysql/session/apply.rs::apply",
        date: "2026-11-27",
        reason: LONGER_NAMES,
    },
];

const LONGER_NAMES: &str = "longer names made it longer; it is divided with the sessions";

pub(crate) fn check(tree: &Tree, exemptions: &[Exemption]) -> Vec<Problem> {
    let mut used = vec![false; exemptions.len()];
    let mut problems = Vec::new();
    for (name, problem) in tree
        .ending(".rs")
        .flat_map(|(path, text)| oversized(path, text))
    {
        match exemptions
            .iter()
            .position(|exemption| exemption.name == name)
        {
            Some(index) => used[index] = true,
            None => problems.push(problem),
        }
    }
    for (exemption, used) in exemptions.iter().zip(used) {
        problems.extend(check_exemption(exemption, used));
    }
    problems
}

/// One line on how long the functions of production code are.
pub(crate) fn summary(tree: &Tree) -> String {
    let mut lengths: Vec<usize> = Vec::new();
    for (_, text) in tree.ending(".rs").filter(|(path, _)| !is_test_file(path)) {
        let code = code(text);
        let production = inline_tests(&code).unwrap_or(usize::MAX);
        let functions = functions(&code).into_iter();
        lengths.extend(
            functions
                .filter(|f| f.first_line < production)
                .map(|f| f.lines()),
        );
    }
    lengths.sort_unstable();
    let quantile = |percent: usize| {
        lengths.get((lengths.len() * percent / 100).min(lengths.len().saturating_sub(1)))
    };
    let [median, ninetieth, longest] = [50, 90, 100].map(|p| quantile(p).copied().unwrap_or(0));
    let count = lengths.len();
    format!(
        "tidy: {count} functions of {median} lines (median), {ninetieth} (90th percentile), \
         {longest} (longest)"
    )
}

/// Production lines of a file, with and without comments and blank lines; `None`: it is a test's.
pub(crate) fn production_lines(path: &str, text: &str) -> Option<(usize, usize)> {
    if is_test_file(path) {
        return None;
    }
    let code = code(text);
    let production = inline_tests(&code).map_or(usize::MAX, |line| line - 1);
    let lines = code.lines().take(production);
    let is_code = |line: &&str| !line.trim().is_empty();
    Some((lines.clone().count(), lines.filter(is_code).count()))
}

pub(crate) fn is_test_file(path: &str) -> bool {
    let folder = path.starts_with("tests/") || path.contains("/tests/");
    folder || path.ends_with("/tests.rs") || path.ends_with("/laws.rs")
}

/// Returns what is too long in a file, under the name that an exemption would have.
fn oversized(path: &str, text: &str) -> Vec<(String, Problem)> {
    let code = code(text);
    let mut found = oversized_file(path, &code);
    for function in functions(&code)
        .iter()
        .filter(|f| f.lines() > FUNCTION_LINES_MAX)
    {
        let Function {
            name, first_line, ..
        } = function;
        let lines = function.lines();
        let what =
            format!("`{name}` has {lines} lines, over {FUNCTION_LINES_MAX}: give its steps names");
        found.push((
            format!("{path}::{name}"),
            Problem::new(path, *first_line, what),
        ));
    }
    found
}

fn oversized_file(path: &str, code: &str) -> Vec<(String, Problem)> {
    let lines = code.lines().count();
    let production = inline_tests(code).map_or(lines, |line| line - 1);
    let tests = lines - production;
    let too_long = |line: usize, what: String| (path.to_owned(), Problem::new(path, line, what));
    let mut found = Vec::new();
    if is_test_file(path) {
        if lines > TEST_FILE_LINES_MAX {
            let what =
                format!("{lines} lines of tests, over {TEST_FILE_LINES_MAX}: split by subject");
            found.push(too_long(1, what));
        }
        return found;
    }
    if production > PRODUCTION_LINES_MAX {
        let what = format!(
            "{production} production lines, over {PRODUCTION_LINES_MAX}: split by \
             what changes together"
        );
        found.push(too_long(1, what));
    }
    if tests > INLINE_TEST_LINES_MAX {
        let folder = path.trim_end_matches(".rs");
        let what = format!(
            "{tests} lines of inline tests, over {INLINE_TEST_LINES_MAX}: move them to \
             {folder}/tests.rs"
        );
        found.push(too_long(production + 1, what));
    }
    found
}

fn check_exemption(exemption: &Exemption, used: bool) -> Option<Problem> {
    let Exemption { name, date, reason } = exemption;
    let dated = date.len() == 10
        && date
            .bytes()
            .all(|byte| byte == b'-' || byte.is_ascii_digit());
    let what = if !used {
        format!("the exemption of `{name}` is needed no more: remove it")
    } else if !dated || reason.split_whitespace().count() < 3 {
        format!("the exemption of `{name}` needs a date (2026-01-31) and a reason")
    } else {
        return None;
    };
    Some(Problem::new("xtask/src/tidy/sizes.rs", 1, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    const EXEMPT: Exemption = Exemption {
        name: "a.rs::f",
        date: "2026-01-31",
        reason: "a table of all codes",
    };

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    x;\n".repeat(lines - 2))
    }

    #[track_caller]
    fn found(path: &str, text: &str, exemptions: &[Exemption], expect: &[(&str, &str)]) {
        assert_found(|tree| check(tree, exemptions), &[(path, text)], expect);
    }

    #[test]
    fn a_long_function_is_found() {
        found("a.rs", &function(70), &[], &[]);
        found(
            "a.rs",
            &format!("\n{}", function(71)),
            &[],
            &[("a.rs:2", "`f` has 71 lines")],
        );
    }

    #[test]
    fn a_long_file_is_found() {
        let lines = |count: usize| "x;\n".repeat(count);
        found("a.rs", &lines(500), &[], &[]);
        found(
            "a.rs",
            &lines(501),
            &[],
            &[("a.rs:1", "501 production lines")],
        );
        found("tests/a.rs", &lines(800), &[], &[]);
        found(
            "a/tests.rs",
            &lines(801),
            &[],
            &[("a/tests.rs:1", "801 lines of tests")],
        );
        let with_tests = |count| {
            format!(
                "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
                lines(500),
                lines(count)
            )
        };
        found("a.rs", &with_tests(197), &[], &[]);
        found("a.rs", &with_tests(198), &[], &[("a.rs:501", "a/tests.rs")]);
    }

    #[test]
    fn an_exemption_excuses_what_it_names_and_nothing_else() {
        found("a.rs", &function(71), &[EXEMPT], &[]);
        let other = Exemption {
            name: "b.rs::f",
            ..EXEMPT
        };
        let place = "xtask/src/tidy/sizes.rs:1";
        found(
            "a.rs",
            &function(71),
            &[other],
            &[("a.rs:1", "71"), (place, "needed no more")],
        );
    }

    #[test]
    fn an_exemption_needs_a_date_and_a_reason() {
        let place = "xtask/src/tidy/sizes.rs:1";
        let undated = Exemption {
            date: "soon",
            ..EXEMPT
        };
        found("a.rs", &function(71), &[undated], &[(place, "a date")]);
        let unreasoned = Exemption {
            reason: "big",
            ..EXEMPT
        };
        found("a.rs", &function(71), &[unreasoned], &[(place, "a reason")]);
    }

    #[test]
    fn the_summary_counts_production_functions() {
        let text = format!(
            "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
            function(9),
            function(60)
        );
        let tree = Tree::of(&[("a.rs", &text), ("a/tests.rs", &function(50))]);
        assert!(
            summary(&tree).contains("1 functions of 9 lines"),
            "{}",
            summary(&tree)
        );
    }
}

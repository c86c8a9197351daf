//! Reads what pytest prints with `-v -rfE`.

use super::verdict::{Case, Cases, Verdict};

/// Returns the verdict of each test of the files in `directory`, and the reason of each failure.
pub(super) fn cases(printed: &str, directory: &str) -> Cases {
    let mut cases = Cases::new();
    for line in printed.lines() {
        if let Some((name, why)) = reason(line, directory) {
            cases.entry(name).and_modify(|case| case.output = why);
        } else if let Some((name, verdict)) = verdict(line, directory) {
            let output = String::new();
            cases.insert(name, Case { verdict, output });
        }
    }
    cases
}

/// Words of verdicts in pytest's output.
const WORDS: [(&str, Verdict); 6] = [
    (" PASSED", Verdict::Passed),
    (" XPASS", Verdict::Passed),
    (" FAILED", Verdict::Failed),
    (" ERROR", Verdict::Failed),
    (" XFAIL", Verdict::Failed),
    (" SKIPPED", Verdict::Skipped),
];

/// Parses `pymysql/tests/test_basic.py::TestConversion::test_json SKIPPED (…) [ 3%]`; a running
/// test has no verdict yet. A parameter in a name may contain spaces.
fn verdict(line: &str, directory: &str) -> Option<(String, Verdict)> {
    let line = line.strip_prefix(directory)?;
    if !line.contains("::") {
        return None;
    }
    let found = WORDS.iter().filter_map(|(word, verdict)| {
        let end = line.find(word)?;
        Some((end, verdict.clone()))
    });
    let (end, verdict) = found
        .min_by_key(|(end, _)| *end)
        .unwrap_or((line.len(), Verdict::Missing));
    Some((line[..end].trim_end().to_owned(), verdict))
}

/// Parses `FAILED pymysql/tests/test_basic.py::TestConversion::test_json - AssertionError: …`.
fn reason(line: &str, directory: &str) -> Option<(String, String)> {
    let rest = line
        .strip_prefix("FAILED ")
        .or_else(|| line.strip_prefix("ERROR "))?;
    let (name, why) = rest.split_once(" - ")?;
    let name = name.strip_prefix(directory)?;
    Some((name.to_owned(), why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_its_verdict_and_a_failed_one_its_reason() {
        let printed = "collected 4 items\n\
            pymysql/tests/test_a.py::Test::test_one PASSED      [ 25%]\n\
            pymysql/tests/test_a.py::Test::test_two FAILED      [ 50%]\n\
            pymysql/tests/test_a.py::Test::test_not SKIPPED (…) [ 75%]\n\
            pymysql/tests/test_a.py::Test::test_it[a b] PASSED  [ 99%]\n\
            pymysql/tests/test_a.py::Test::test_stuck \n\
            === short test summary info ===\n\
            FAILED pymysql/tests/test_a.py::Test::test_two - Error: (1, 'x - y')\n";
        let cases = cases(printed, "pymysql/tests/");
        let verdict = |name: &str| &cases[&format!("test_a.py::Test::{name}")].verdict;
        assert_eq!(*verdict("test_one"), Verdict::Passed);
        assert_eq!(*verdict("test_two"), Verdict::Failed);
        assert_eq!(*verdict("test_not"), Verdict::Skipped);
        assert_eq!(*verdict("test_it[a b]"), Verdict::Passed);
        assert_eq!(*verdict("test_stuck"), Verdict::Missing);
        assert_eq!(
            cases["test_a.py::Test::test_two"].output,
            "Error: (1, 'x - y')"
        );
        assert_eq!(cases.len(), 5);
    }
}

//! Represents results of tests, and differences between two runs.

use std::collections::BTreeMap;
use std::fmt;

/// Result of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The result that the suite expects.
    Passed,
    /// A result that the suite does not expect.
    Failed,
    /// The suite skipped the test.
    Skipped,
    /// The result is unknown: the suite ended earlier, or did not reach the test.
    Missing,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
            Verdict::Missing => "no verdict",
        })
    }
}

/// One test of a run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Result of the test.
    pub verdict: Verdict,
    /// Output of the test, if it is more informative than the verdict.
    pub output: String,
}

/// All tests of a run, by name.
pub type Cases = BTreeMap<String, Case>;

/// A test with another result than directly at the server.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The test.
    pub name: String,
    /// Result directly at the server.
    pub direct: Verdict,
    /// Result through the pooler.
    pub through: Verdict,
    /// First differing lines.
    pub detail: Vec<String>,
    /// Reason of the difference, if known.
    pub reason: Option<String>,
}

/// Tests whose output is compared too, after equal verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// No test.
    None,
    /// Failed tests: another failure is a difference.
    OfFailed,
    /// Passed tests: their output is the values that were read.
    OfPassed,
}

impl Words {
    fn count_of(self, verdict: &Verdict) -> bool {
        match self {
            Words::None => false,
            Words::OfFailed => *verdict == Verdict::Failed,
            Words::OfPassed => *verdict == Verdict::Passed,
        }
    }
}

/// Returns the tests whose verdicts differ, and those with equal verdicts and different output if
/// the output is compared.
pub(super) fn differences(direct: &Cases, through: &Cases, words: Words) -> Vec<Difference> {
    let missing = Case {
        verdict: Verdict::Missing,
        output: String::new(),
    };
    let difference = |(name, own): (&String, &Case)| {
        let other = through.get(name).unwrap_or(&missing);
        let is_same = own.verdict == other.verdict;
        if is_same && !(words.count_of(&own.verdict) && own.output != other.output) {
            return None;
        }
        Some(Difference {
            name: name.clone(),
            direct: own.verdict.clone(),
            through: other.verdict.clone(),
            detail: first_difference(&own.output, &other.output),
            reason: (words == Words::OfFailed && is_left_over(own, other))
                .then(|| LEFT_OVER.to_owned()),
        })
    };
    direct.iter().filter_map(difference).collect()
}

/// Warnings after the file `guc`, which sets a setting that does not exist; RESET keeps its name.
const LEFT_OVER_LINES: [&str; 2] = [
    "WARNING:  invalid configuration parameter name \"plpgsql.extra_foo_warnings\", \
     removing it",
    "DETAIL:  \"plpgsql\" is now a reserved prefix.",
];
const LEFT_OVER: &str = "a custom setting of another session leaves its name on the server \
                         connection, and plpgsql warns about it when loaded later";

/// Returns whether such warnings are the only additional lines.
fn is_left_over(own: &Case, other: &Case) -> bool {
    let lines = |case: &Case| -> Vec<String> {
        let lines = case.output.lines();
        let kept = lines.filter(|line| !LEFT_OVER_LINES.contains(line));
        kept.map(str::to_owned).collect()
    };
    own.verdict != Verdict::Missing && !own.output.is_empty() && lines(own) == lines(other)
}

/// Maximum number of lines shown of a difference.
const LINES_MAX: usize = 12;

/// Returns the lines from the first difference: `-` for the direct run, `+` for the other.
fn first_difference(direct: &str, through: &str) -> Vec<String> {
    let (own, other): (Vec<&str>, Vec<&str>) =
        (direct.lines().collect(), through.lines().collect());
    let same = own.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let context = same.saturating_sub(4)..same;
    let part = |sign: char, lines: &[&str]| -> Vec<String> {
        let lines = lines.iter().skip(same).take(LINES_MAX / 2);
        lines.map(|line| format!("{sign}{line}")).collect()
    };
    let before = own[context].iter().map(|line| format!(" {line}"));
    before
        .chain(part('-', &own))
        .chain(part('+', &other))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(all: &[(&str, Verdict, &str)]) -> Cases {
        let case = |(name, verdict, output): &(&str, Verdict, &str)| {
            let case = Case {
                verdict: verdict.clone(),
                output: (*output).to_owned(),
            };
            ((*name).to_owned(), case)
        };
        all.iter().map(case).collect()
    }

    #[test]
    fn only_another_verdict_or_another_failure_is_a_difference() {
        use Verdict::{Failed, Passed};
        let direct = cases(&[
            ("both pass in other words", Passed, "1"),
            ("fails through", Passed, "a\nb\nc"),
            ("fails alike", Failed, "x"),
            ("fails otherwise", Failed, "x"),
            ("never came", Passed, ""),
        ]);
        let through = cases(&[
            ("both pass in other words", Passed, "2"),
            ("fails through", Failed, "a\nB\nc"),
            ("fails alike", Failed, "x"),
            ("fails otherwise", Failed, "y"),
        ]);
        let found = differences(&direct, &through, Words::OfFailed);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["fails otherwise", "fails through", "never came"]);
        assert_eq!(found[1].detail, [" a", "-b", "-c", "+B", "+c"]);
        assert_eq!(found[2].through, Verdict::Missing);
        assert!(found.iter().all(|one| one.reason.is_none()));
        assert_eq!(differences(&direct, &through, Words::None).len(), 2);
        let found = differences(&direct, &through, Words::OfPassed);
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            names,
            ["both pass in other words", "fails through", "never came"]
        );
    }

    #[test]
    fn a_warning_of_a_name_that_another_session_made_up_is_explained() {
        let [warning, detail] = LEFT_OVER_LINES;
        let direct = cases(&[("domain", Verdict::Passed, "a\nb")]);
        let output = format!("a\n{warning}\n{detail}\nb");
        let through = cases(&[("domain", Verdict::Failed, &output)]);
        assert!(
            differences(&direct, &through, Words::OfFailed)[0]
                .reason
                .is_some()
        );
        let through = cases(&[("domain", Verdict::Failed, "a\nc")]);
        assert!(
            differences(&direct, &through, Words::OfFailed)[0]
                .reason
                .is_none()
        );
    }
}

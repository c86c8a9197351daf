//! What became of each test of a suite, and where two runs of it differ.

use std::collections::BTreeMap;
use std::fmt;

/// What became of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the suite expects.
    Passed,
    /// Not as the suite expects.
    Failed,
    /// The suite itself left it out.
    Skipped,
    /// It is not known: the suite was ended before, or did not get that far.
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
    /// What became of it.
    pub verdict: Verdict,
    /// What it printed, when that may tell more than the verdict.
    pub output: String,
}

/// All tests of a run, by name.
pub type Cases = BTreeMap<String, Case>;

/// A test that ended otherwise than directly at the server.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The test.
    pub name: String,
    /// What it came to at the server.
    pub direct: Verdict,
    /// What it came to through something else.
    pub through: Verdict,
    /// The first lines that differ.
    pub detail: Vec<String>,
    /// Why that is known to be so, if it is.
    pub reason: Option<String>,
}

/// Of which tests that ended the same in both runs the words are compared too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// Of none.
    None,
    /// Of those that failed: another failure is a difference.
    OfFailed,
    /// Of those that passed: they are values that were read.
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

/// The tests whose verdicts differ and, where their words are worth comparing, those that ended the
/// same in both runs with other words.
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

/// The file `guc` gives a setting that does not exist a value; RESET leaves its name.
const LEFT_OVER_LINES: [&str; 2] = [
    "WARNING:  invalid configuration parameter name \"plpgsql.extra_foo_warnings\", \
     removing it",
    "DETAIL:  \"plpgsql\" is now a reserved prefix.",
];
const LEFT_OVER: &str = "a custom setting of another session leaves its name on the server \
                         connection, and plpgsql warns about it when loaded later";

/// Whether nothing but such a warning is more than directly.
fn is_left_over(own: &Case, other: &Case) -> bool {
    let lines = |case: &Case| -> Vec<String> {
        let lines = case.output.lines();
        let kept = lines.filter(|line| !LEFT_OVER_LINES.contains(line));
        kept.map(str::to_owned).collect()
    };
    own.verdict != Verdict::Missing && !own.output.is_empty() && lines(own) == lines(other)
}

/// How many lines of an explanation are worth reading at first.
const LINES_MAX: usize = 12;

/// The lines from the first one on that differs: of the one with `-`, of the other with `+`.
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

//! Checks the subjects of commits: `area: imperative summary`.

use std::path::Path;
use std::process::Command;

use regex::Regex;

use super::Problem;

/// The file whose first commit begins the checked range.
const THIS_FILE: &str = "xtask/src/tidy/subjects.rs";

const LENGTH_MAX: usize = 72;

/// Checks the commits since the one that added this check. Without git there is nothing to check.
pub(crate) fn check(root: &Path) -> Vec<Problem> {
    let added = git(
        root,
        &["log", "--diff-filter=A", "--format=%H", "--", THIS_FILE],
    );
    let Some(first) = added.as_deref().and_then(|log| log.lines().last()) else {
        return Vec::new();
    };
    let range = format!("{first}^..HEAD");
    let log = git(root, &["log", "--no-merges", "--format=%h %s", &range]).unwrap_or_default();
    log.lines().filter_map(check_line).collect()
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(arguments)
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks a line of the log: abbreviated hash and subject.
fn check_line(line: &str) -> Option<Problem> {
    let (hash, subject) = line.split_once(' ')?;
    let what = fault(subject)?;
    Some(Problem::new(&format!("commit {hash}"), 1, what))
}

fn fault(subject: &str) -> Option<String> {
    let form = Regex::new("^[a-z][a-z0-9_/.-]*: ([a-z`]|[A-Za-z_]*[A-Z][A-Za-z_]*[A-Z])");
    let form = form.expect("a valid pattern");
    if subject.chars().count() > LENGTH_MAX {
        return Some(format!("the subject is longer than {LENGTH_MAX} columns"));
    }
    if !form.is_match(subject) || subject.contains("; ") || subject.ends_with('.') {
        return Some("the subject is not `area: imperative summary`".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_an_area_and_a_summary() {
        for subject in [
            "proxy: wait for the pool",
            "wire/mysql: parse COM_STMT_EXECUTE",
            "docs: README names the commands",
        ] {
            assert_eq!(fault(subject), None, "{subject}");
        }
        for subject in [
            "Wait for the pool",
            "proxy: Wait for the pool",
            "proxy: wait; log the reason",
            "proxy: wait.",
        ] {
            assert!(fault(subject).is_some(), "{subject}");
        }
        let long = format!("proxy: {}", "x".repeat(LENGTH_MAX));
        assert!(check_line(&format!("abc {long}")).is_some());
    }
}

//! Parses the committed list of known differences with their reasons.

use super::verdict::Difference;

/// A known difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The suite.
    pub suite: String,
    /// The pool mode.
    pub mode: String,
    /// The test.
    pub name: String,
    /// Reason of the difference.
    pub reason: String,
}

/// Returns the entries of `known.txt`.
pub(super) fn all() -> Vec<Known> {
    parse(include_str!("known.txt"))
}

/// Sets the reason of every known difference; returns the entries that did not occur.
pub(super) fn explain(
    known: &[Known],
    suite: &str,
    mode: &str,
    differences: &mut [Difference],
) -> Vec<Known> {
    let of_run = known
        .iter()
        .filter(|one| one.suite == suite && one.mode == mode);
    let mut unseen = Vec::new();
    for one in of_run {
        match differences
            .iter_mut()
            .find(|difference| difference.name == one.name)
        {
            Some(difference) => difference.reason = Some(one.reason.clone()),
            None => unseen.push(one.clone()),
        }
    }
    unseen
}

fn parse(text: &str) -> Vec<Known> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let known = |line: &str| {
        let (place, reason) = line.split_once(": ")?;
        let mut words = place.splitn(3, ' ').map(str::to_owned);
        Some(Known {
            suite: words.next()?,
            mode: words.next()?,
            name: words.next()?,
            reason: reason.trim().to_owned(),
        })
    };
    lines.filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::verdict::Verdict;

    #[test]
    fn a_known_difference_gets_its_reason_and_one_that_does_not_show_is_told() {
        let known = parse(
            "# a comment: not one\n\
             regress transaction psql: \\watch counts connections\n\
             regress transaction guc: gone by now\n\
             regress session guc: of another mode\n",
        );
        let mut differences = [Difference {
            name: "psql".to_owned(),
            direct: Verdict::Passed,
            through: Verdict::Failed,
            detail: Vec::new(),
            reason: None,
        }];
        let unseen = explain(&known, "regress", "transaction", &mut differences);
        let reason = differences[0].reason.as_deref();
        assert_eq!(reason, Some("\\watch counts connections"));
        assert_eq!(unseen.len(), 1);
        assert_eq!(unseen[0].name, "guc");
    }

    #[test]
    fn every_line_of_the_committed_list_is_read() {
        let lines = include_str!("known.txt").lines();
        let entries = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
        assert_eq!(all().len(), entries.count());
    }
}

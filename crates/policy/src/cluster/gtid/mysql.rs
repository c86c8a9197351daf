//! Represents a MySQL set: the transactions of each source as sorted intervals without overlap.

use std::fmt;

use super::{Map, Missing, list};

/// Intervals by source UUID and tag ("" is none): ends included, sorted, not adjacent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Intervals {
    sources: Map<(String, String), Vec<(u64, u64)>>,
}

impl Intervals {
    /// Adds an interval; one that ends before it begins is empty.
    pub(super) fn add(&mut self, uuid: &str, tag: &str, first: u64, last: u64) {
        if last < first {
            return;
        }
        let source = (uuid.to_ascii_lowercase(), tag.to_ascii_lowercase());
        insert(self.sources.entry(source).or_default(), first, last);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub(super) fn merge(&mut self, other: &Intervals) {
        for (source, intervals) in &other.sources {
            let own = self.sources.entry(source.clone()).or_default();
            for &(first, last) in intervals {
                insert(own, first, last);
            }
        }
    }

    pub(super) fn contains(&self, other: &Intervals) -> bool {
        other.sources.iter().all(|(source, theirs)| {
            let own = self.of(source);
            theirs.iter().all(|&interval| covered(own, interval))
        })
    }

    pub(super) fn count_not_in(&self, other: &Intervals) -> Option<Missing> {
        let mut count: u64 = 0;
        let mut sample = None;
        for (source, own) in &self.sources {
            for (first, last) in without(own, other.of(source)) {
                count = count.saturating_add(last - first).saturating_add(1);
                sample.get_or_insert_with(|| {
                    format!("{}:{}", source_name(source), span(first, last))
                });
            }
        }
        Some(Missing {
            count,
            sample: sample?,
        })
    }

    fn of(&self, source: &(String, String)) -> &[(u64, u64)] {
        self.sources.get(source).map_or(&[], Vec::as_slice)
    }
}

/// Inserts an interval and merges it with those that it touches.
fn insert(intervals: &mut Vec<(u64, u64)>, first: u64, last: u64) {
    let from = intervals.partition_point(|have| have.1.saturating_add(1) < first);
    let to = intervals.partition_point(|have| have.0 <= last.saturating_add(1));
    let joined = match intervals.get(from..to) {
        Some([only]) => (first.min(only.0), last.max(only.1)),
        Some([lowest, .., highest]) => (first.min(lowest.0), last.max(highest.1)),
        _ => (first, last),
    };
    intervals.splice(from..to, [joined]);
}

fn covered(intervals: &[(u64, u64)], (first, last): (u64, u64)) -> bool {
    let at = intervals.partition_point(|have| have.1 < first);
    let Some(have) = intervals.get(at) else {
        return false;
    };
    have.0 <= first && last <= have.1
}

/// Returns the parts of `own` that are not in `theirs`.
fn without(own: &[(u64, u64)], theirs: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut rest = own.to_vec();
    for &(first, last) in theirs {
        rest = rest
            .into_iter()
            .flat_map(|(low, high)| {
                let before = (low, high.min(first.saturating_sub(1)));
                let after = (low.max(last.saturating_add(1)), high);
                [before, after]
            })
            .filter(|(low, high)| low <= high)
            .collect();
    }
    rest
}

fn source_name((uuid, tag): &(String, String)) -> String {
    match tag.as_str() {
        "" => uuid.clone(),
        tag => format!("{uuid}:{tag}"),
    }
}

fn span(first: u64, last: u64) -> String {
    match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    }
}

impl fmt::Display for Intervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources = self.sources.iter().map(|(source, intervals)| {
            let spans: Vec<String> = intervals
                .iter()
                .map(|&(low, high)| span(low, high))
                .collect();
            format!("{}:{}", source_name(source), spans.join(":"))
        });
        list(f, sources)
    }
}

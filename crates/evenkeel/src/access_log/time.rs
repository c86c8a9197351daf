//! Formats times of requests, most of which are in the same second as the one before.

use evenkeel_proxy::calendar::{MONTHS, civil_date};

use crate::log::rfc3339;

/// Text of the last time in each format.
#[derive(Debug, Default)]
pub(super) struct Dates {
    iso: (u64, String),
    clf: (u64, String),
}

impl Dates {
    /// Returns a Unix time as `2026-01-31T23:59:59.999Z`.
    pub(super) fn iso(&mut self, unix_ms: u64) -> &str {
        if self.iso.0 != unix_ms {
            self.iso = (unix_ms, rfc3339(unix_ms));
        }
        &self.iso.1
    }

    /// Returns a Unix time as `31/Jan/2026:23:59:59 +0000`.
    pub(super) fn clf(&mut self, unix_ms: u64) -> &str {
        let seconds = unix_ms / 1_000;
        if self.clf.0 != seconds {
            self.clf = (seconds, clf(seconds));
        }
        &self.clf.1
    }
}

fn clf(seconds: u64) -> String {
    let (year, month, day) = civil_date(seconds / 86_400);
    let second = seconds % 86_400;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let months = usize::try_from(month - 1).ok();
    let month = months.and_then(|index| MONTHS.get(index)).unwrap_or(&"");
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_calendar_in_both_formats() {
        let mut dates = Dates::default();
        for _ in 0..2 {
            assert_eq!(dates.iso(1_709_251_199_042), "2024-02-29T23:59:59.042Z");
            assert_eq!(dates.iso(1_709_251_199_043), "2024-02-29T23:59:59.043Z");
            assert_eq!(dates.clf(1_709_251_199_042), "29/Feb/2024:23:59:59 +0000");
            assert_eq!(dates.clf(1_709_251_200_000), "01/Mar/2024:00:00:00 +0000");
        }
    }
}

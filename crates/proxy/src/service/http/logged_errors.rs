//! Remembers the errors that were logged, so that each is logged once in a while.

/// Time for which an error is not logged again, in milliseconds.
const PAUSE_MS: u64 = 3_600_000;

/// Maximum number of errors within that time; others are not logged.
const ERRORS_MAX: usize = 8;

/// Errors that were logged, with the time of each in milliseconds of the clock.
#[derive(Debug, Default)]
pub(super) struct LoggedErrors(Vec<(Box<str>, u64)>);

impl LoggedErrors {
    /// Returns whether an error is to be logged now, and remembers it then. Texts that differ only
    /// in digits, such as those of a time, are one error.
    pub(super) fn is_due(&mut self, text: &str, now_ms: u64) -> bool {
        let text: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        self.0
            .retain(|(_, at_ms)| now_ms.saturating_sub(*at_ms) < PAUSE_MS);
        let is_due = self.0.len() < ERRORS_MAX && self.0.iter().all(|(known, _)| **known != *text);
        if is_due {
            self.0.push((text.into(), now_ms));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_logged_once_an_hour_whatever_its_digits() {
        let mut logged = LoggedErrors::default();
        for (text, at_ms, is_due) in [
            ("expired 5 s ago", 10, true),
            ("expired 17 s ago", 20, false),
            ("unknown issuer", 30, true),
            ("expired 18 s ago", 40, false),
            ("unknown issuer", 50, false),
            ("expired 3600 s ago", 10 + PAUSE_MS, true),
            ("unknown issuer", 10 + PAUSE_MS, false),
        ] {
            assert_eq!(logged.is_due(text, at_ms), is_due, "{text} at {at_ms}");
        }
    }

    #[test]
    fn no_more_errors_are_logged_than_the_limit() {
        let mut logged = LoggedErrors::default();
        let texts = (b'a'..=b'z').map(|letter| char::from(letter).to_string());
        let due = texts.filter(|text| logged.is_due(text, 0)).count();
        assert_eq!(due, ERRORS_MAX);
        assert!(logged.is_due("z", PAUSE_MS));
    }
}

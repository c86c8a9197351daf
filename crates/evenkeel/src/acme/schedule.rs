//! Decides when the certificate of a name is ordered.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Delay after the first failure, in seconds. With it, five attempts fail within the first hour:
/// the limit of Let's Encrypt for failed verifications of a name.
const RETRY_S_MIN: u64 = 120;

/// Longest delay after a failure, in seconds.
const RETRY_S_MAX: u64 = 6 * 3_600;

/// Part of the lifetime over which renewals are spread: a fiftieth.
const SPREAD: u64 = 50;

/// Attempts for a name since its last certificate, as stored on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attempts {
    /// Failed attempts.
    pub(super) failures: u32,
    /// Earliest time of the next attempt, in seconds of Unix time.
    pub(super) next_s: u64,
    /// Reason of the last failure.
    pub(super) error: Option<String>,
    /// True if the certificate was revoked, and is replaced before it is due.
    #[serde(default)]
    pub(super) is_revoked: bool,
}

impl Attempts {
    /// Returns the state after another failure.
    pub(super) fn failed(&self, now_s: u64, error: String) -> Attempts {
        let failures = self.failures.saturating_add(1);
        Attempts {
            failures,
            next_s: now_s + retry_s(failures),
            error: Some(error),
            is_revoked: self.is_revoked,
        }
    }

    /// Returns the state after the certificate was revoked: the next order is due.
    pub(super) fn revoked() -> Attempts {
        Attempts {
            is_revoked: true,
            ..Attempts::default()
        }
    }

    /// Returns the state after a new certificate of this lifetime. Even if it seems to be due for
    /// renewal, because a clock is wrong, it is used for a third of its lifetime.
    pub(super) fn succeeded(now_s: u64, life_s: u64) -> Attempts {
        Attempts {
            next_s: now_s + life_s / 3,
            ..Attempts::default()
        }
    }

    /// Returns the time at which the certificate is to be ordered, in seconds of Unix time.
    /// `renew_s` is the time at which it is to be renewed; `None`: there is none.
    pub(super) fn due_s(&self, renew_s: Option<u64>) -> u64 {
        match renew_s {
            Some(_) if self.is_revoked => self.next_s,
            Some(renew_s) => renew_s.max(self.next_s),
            // It was removed.
            None if self.failures == 0 => 0,
            None => self.next_s,
        }
    }
}

/// Returns the delay after this number of failures in a row, in seconds.
fn retry_s(failures: u32) -> u64 {
    let doublings = failures.saturating_sub(1).min(16);
    (RETRY_S_MIN << doublings).min(RETRY_S_MAX)
}

/// Returns when a certificate is to be renewed, in seconds of Unix time: after two thirds of its
/// lifetime, or up to a fiftieth of it earlier. Its hash decides, so that certificates of one hour
/// are not all renewed in one hour, and a restart changes nothing.
pub(super) fn renew_s(validity: &RangeInclusive<u64>, hash: &[u8; 32]) -> u64 {
    let life_s = validity.end().saturating_sub(*validity.start());
    let random = u64::from(u16::from_be_bytes([hash[0], hash[1]]));
    let earlier_s = (life_s / SPREAD).saturating_mul(random) >> 16;
    let two_thirds_s = life_s.saturating_mul(2) / 3;
    (validity.start() + two_thirds_s).saturating_sub(earlier_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;

    #[test]
    fn delays_double_up_to_six_hours() {
        let mut attempts = Attempts::default();
        let mut delays = Vec::new();
        for _ in 0..10 {
            attempts = attempts.failed(1_000, "no route".to_owned());
            delays.push(attempts.next_s - 1_000);
        }
        let doubled = [120, 240, 480, 960, 1_920, 3_840, 7_680, 15_360];
        assert_eq!(delays, [&doubled[..], &[21_600, 21_600]].concat());
        attempts.failures = u32::MAX;
        assert_eq!(attempts.failed(0, String::new()).next_s, 21_600);
    }

    #[test]
    fn five_attempts_at_most_fail_within_an_hour() {
        let (mut now_s, mut attempts) = (0, Attempts::default());
        while now_s < 3_600 {
            attempts = attempts.failed(now_s, String::new());
            now_s = attempts.next_s;
        }
        assert_eq!(attempts.failures, 5);
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life_or_little_earlier() {
        let validity = 1_000..=1_000 + 90 * DAY_S;
        let latest = 1_000 + 60 * DAY_S;
        assert_eq!(renew_s(&validity, &[0; 32]), latest);
        let earliest = renew_s(&validity, &[0xff; 32]);
        let spread = latest - earliest;
        assert!((DAY_S..=2 * DAY_S).contains(&spread), "{spread}");
        assert_eq!(renew_s(&(10..=10), &[0xff; 32]), 10);
    }

    #[test]
    fn a_failure_delays_a_renewal_and_the_first_order() {
        let none = Attempts::default();
        assert_eq!(none.due_s(None), 0);
        assert_eq!(none.due_s(Some(500)), 500);
        let failed = none.failed(600, String::new());
        assert_eq!(failed.due_s(None), 720);
        assert_eq!(failed.due_s(Some(500)), 720);
        assert_eq!(failed.due_s(Some(900)), 900);
    }

    #[test]
    fn a_revoked_certificate_is_replaced_soon_and_after_failures() {
        let revoked = Attempts::revoked();
        assert_eq!(revoked.due_s(Some(5_000)), 0);
        let failed = revoked.failed(600, String::new());
        assert_eq!(failed.due_s(Some(5_000)), 720);
        assert_eq!(Attempts::succeeded(700, 300).due_s(Some(900)), 900);
        let stored = r#"{"failures":0,"next_s":7,"error":null}"#;
        let stored: Attempts = serde_json::from_str(stored).unwrap();
        assert!(!stored.is_revoked, "a file of an earlier version");
    }

    #[test]
    fn a_new_certificate_is_used_for_a_third_of_its_life_whatever_the_clock_says() {
        let new = Attempts::succeeded(1_000, 300);
        assert_eq!(new.due_s(Some(500)), 1_100);
        assert_eq!(new.due_s(Some(1_200)), 1_200);
        assert_eq!(new.due_s(None), 0, "removed by the operator");
    }
}

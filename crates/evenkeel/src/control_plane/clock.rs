//! Converts between the data plane's clock and Unix time.

use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_engine::clock::now_ms;

/// Returns the current time in milliseconds since the Unix epoch.
pub(super) fn now_unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a time of the monotonic clock to milliseconds since the Unix epoch.
pub(super) fn unix_ms(at_ms: u64) -> u64 {
    now_unix_ms().saturating_sub(now_ms().saturating_sub(at_ms))
}

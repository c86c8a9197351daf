//! The data plane's clock: monotonic, counted from before the start of the process.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What a former process told us of the past is younger than this, a year.
const PAST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Microseconds since a year before the start of the process.
pub fn now_us() -> u64 {
    u64::try_from((PAST + START.elapsed()).as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds since a year before the start of the process.
pub fn now_ms() -> u64 {
    now_us() / 1_000
}

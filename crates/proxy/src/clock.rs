//! The data plane's clock: monotonic, counted from the start of the process.

use std::sync::LazyLock;
use std::time::Instant;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Microseconds since the start of the process.
pub fn now_us() -> u64 {
    u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds since the start of the process.
pub fn now_ms() -> u64 {
    now_us() / 1_000
}

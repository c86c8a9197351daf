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

/// Processor time that the calling thread has used, in microseconds (clock_gettime(2)).
pub(crate) fn thread_cpu_us() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[expect(unsafe_code, reason = "the thread's clock has no safe form in std")]
    // SAFETY: it writes one timespec, and gets one.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if result != 0 {
        return 0;
    }
    let micros = time.tv_sec * 1_000_000 + time.tv_nsec / 1_000;
    u64::try_from(micros).unwrap_or(0)
}

//! The data plane's clock: monotonic, counted from before the start of the machine.
//!
//! Sessions ask it several times a query, so that it is read without what std's `Instant` does for
//! clocks of other systems.

/// What a former process told us of the past is younger than this, a year.
const PAST_US: u64 = 365 * 24 * 3_600 * 1_000_000;

/// Microseconds since a year before the start of the machine.
pub fn now_us() -> u64 {
    PAST_US + read_us(libc::CLOCK_MONOTONIC)
}

/// Milliseconds since a year before the start of the machine.
pub fn now_ms() -> u64 {
    now_us() / 1_000
}

/// Processor time that the calling thread has used, in microseconds.
pub(crate) fn thread_cpu_us() -> u64 {
    read_us(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// One of the system's clocks (clock_gettime(2)); zero if it has none such.
fn read_us(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[expect(unsafe_code, reason = "std has not all clocks, and not this cheaply")]
    // SAFETY: it writes one timespec, and gets one.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result != 0 {
        return 0;
    }
    let micros = time.tv_sec * 1_000_000 + time.tv_nsec / 1_000;
    u64::try_from(micros).unwrap_or(0)
}

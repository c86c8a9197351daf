//! Reads the data plane's clock: monotonic, starting a year before the start of the machine.
//!
//! Sessions read it several times per query. It therefore avoids the conversions of std's `Instant`
//! for clocks of other systems.

/// Maximum age of a predecessor's reports about the past: one year.
const PAST_US: u64 = 365 * 24 * 3_600 * 1_000_000;

/// Returns the microseconds since one year before the start of the machine.
pub fn now_us() -> u64 {
    PAST_US + read_us(libc::CLOCK_MONOTONIC)
}

/// Returns the milliseconds since one year before the start of the machine.
pub fn now_ms() -> u64 {
    now_us() / 1_000
}

/// Returns the processor time of the calling thread, in microseconds.
pub(crate) fn thread_cpu_us() -> u64 {
    read_us(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Reads a clock of the system (clock_gettime(2)); zero if the system does not have it.
fn read_us(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[expect(unsafe_code, reason = "std has not all clocks, and not this cheaply")]
    // SAFETY: the call writes one timespec, and receives a pointer to one.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if result != 0 {
        return 0;
    }
    let micros = time.tv_sec * 1_000_000 + time.tv_nsec / 1_000;
    u64::try_from(micros).unwrap_or(0)
}

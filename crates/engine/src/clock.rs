//! Reads the data plane's clock: monotonic, starting a year before the start of the machine.
//!
//! Sessions read it several times per query. It therefore avoids the conversions of std's `Instant`
//! for clocks of other systems.

use rustix::time::{ClockId, clock_gettime};

/// Maximum age of a predecessor's reports about the past: one year.
const PAST_US: u64 = 365 * 24 * 3_600 * 1_000_000;

/// Returns the microseconds since one year before the start of the machine.
pub fn now_us() -> u64 {
    #[cfg(any(test, feature = "scripted"))]
    if let Some(stopped_us) = scripted::STOPPED_US.get() {
        return stopped_us;
    }
    PAST_US + read_us(ClockId::Monotonic)
}

/// Returns the milliseconds since one year before the start of the machine.
pub fn now_ms() -> u64 {
    now_us() / 1_000
}

/// Returns the processor time of the calling thread, in microseconds.
pub fn thread_cpu_us() -> u64 {
    read_us(ClockId::ThreadCPUTime)
}

/// Reads a clock of the system (clock_gettime(2)).
fn read_us(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000).unwrap_or(0)
}

#[cfg(any(test, feature = "scripted"))]
pub(crate) use scripted::{advance, go, stop};

#[cfg(any(test, feature = "scripted"))]
mod scripted {
    //! Stops the clock of a thread for a test.

    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        pub(super) static STOPPED_US: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Stops the clock.
    pub(crate) fn stop() {
        STOPPED_US.set(Some(super::now_us()));
    }

    /// Moves a stopped clock.
    pub(crate) fn advance(by: Duration) {
        let by_us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        STOPPED_US.set(STOPPED_US.get().map(|now_us| now_us + by_us));
    }

    /// Lets the clock run again.
    pub(crate) fn go() {
        STOPPED_US.set(None);
    }
}

//! Decides how many events a worker waits for.
//!
//! Events of many active sessions arrive at intervals of some microseconds. A worker that wakes
//! for each of them spends more processor time on waking, on switching tasks, and on waking peers
//! one by one than on the sessions' data. It therefore waits for several events, for a short time.
//! While few sessions are active, it never does: each event would wait for the time limit.

use std::cell::Cell;
use std::time::Duration;

use crate::clock;

/// Period over which active sockets are counted. A query under load takes some milliseconds.
const PERIOD_US: u64 = 8_000;

/// Number of active sockets from which on a worker waits for several events. With fewer, there are
/// not enough events within the wait.
const ACTIVE_MIN: u32 = 24;

/// Active sockets per event to wait for. A session has two sockets and at most one event at a time,
/// so that half of the sessions are waited for.
const ACTIVE_PER_EVENT: u32 = 4;

/// Maximum number of events to wait for.
const EVENTS_MAX: u32 = 32;

/// Maximum wait for several events.
const WAIT: Duration = Duration::from_micros(300);

/// Number of the period in which a socket last had an event; zero: none.
pub(crate) type ActivePeriod = Cell<u32>;

/// Number of sockets of one worker that are active.
pub(crate) struct Batching {
    period: Cell<u32>,
    period_began_us: Cell<u64>,
    /// Sockets that have had an event in this period.
    active: Cell<u32>,
    /// Sockets that had an event in the period before this.
    active_before: Cell<u32>,
}

impl Batching {
    pub(crate) fn new() -> Self {
        Self {
            period: Cell::new(1),
            period_began_us: Cell::new(0),
            active: Cell::new(0),
            active_before: Cell::new(0),
        }
    }

    /// Records an event of a socket.
    pub(crate) fn record(&self, socket: &ActivePeriod) {
        if socket.replace(self.period.get()) != self.period.get() {
            self.active.set(self.active.get() + 1);
        }
    }

    /// Records the end of a socket. Otherwise a few clients that connect for each request would
    /// count as many, and a worker would wait for events that no client causes.
    pub(crate) fn forget(&self, socket: &ActivePeriod) {
        if socket.take() == self.period.get() {
            self.active.set(self.active.get().saturating_sub(1));
        }
    }

    /// Returns the number of events to wait for, and the limit of the wait.
    pub(crate) fn next_wait(&self, timeout: Option<Duration>) -> (usize, Option<Duration>) {
        self.change_period(clock::now_us());
        let active = self.active_before.get();
        if active < ACTIVE_MIN {
            return (1, timeout);
        }
        let events = (active / ACTIVE_PER_EVENT).min(EVENTS_MAX);
        let limit = timeout.map_or(WAIT, |timeout| timeout.min(WAIT));
        (events as usize, Some(limit))
    }

    fn change_period(&self, now_us: u64) {
        let age_us = now_us.saturating_sub(self.period_began_us.get());
        if age_us < PERIOD_US {
            return;
        }
        let is_idle = age_us >= 2 * PERIOD_US;
        let active = self.active.replace(0);
        self.active_before.set(if is_idle { 0 } else { active });
        // A socket that was last active 2^32 periods ago counts as active: one event too many.
        self.period.set(self.period.get().wrapping_add(1));
        self.period_began_us.set(now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(1));

    /// Runs a period in which this many sockets have two events each.
    fn period(batching: &Batching, sockets: &[ActivePeriod]) {
        clock::advance(Duration::from_micros(PERIOD_US));
        batching.next_wait(None);
        for socket in sockets.iter().chain(sockets) {
            batching.record(socket);
        }
    }

    /// Returns what a worker waits for after a period with this many active sockets.
    fn wait_after(sockets: usize) -> (usize, Option<Duration>) {
        clock::stop();
        let batching = Batching::new();
        let sockets = vec![ActivePeriod::default(); sockets];
        period(&batching, &sockets);
        period(&batching, &sockets);
        clock::advance(Duration::from_micros(PERIOD_US));
        batching.next_wait(LONG)
    }

    #[test]
    fn few_active_sockets_are_served_at_each_event() {
        assert_eq!(wait_after(0), (1, LONG));
        assert_eq!(wait_after(23), (1, LONG));
    }

    #[test]
    fn many_active_sockets_are_served_several_at_once() {
        assert_eq!(wait_after(24), (6, Some(WAIT)));
        assert_eq!(wait_after(84), (21, Some(WAIT)));
        assert_eq!(wait_after(1000), (32, Some(WAIT)));
    }

    #[test]
    fn sockets_that_have_ended_do_not_count() {
        clock::stop();
        let batching = Batching::new();
        for _ in 0..2 {
            let sockets = vec![ActivePeriod::default(); 100];
            period(&batching, &sockets);
            sockets[5..]
                .iter()
                .for_each(|socket| batching.forget(socket));
        }
        clock::advance(Duration::from_micros(PERIOD_US));
        assert_eq!(batching.next_wait(LONG), (1, LONG));
    }

    #[test]
    fn a_timer_ends_the_wait_for_several_events() {
        clock::stop();
        let batching = Batching::new();
        let sockets = vec![ActivePeriod::default(); 64];
        period(&batching, &sockets);
        period(&batching, &sockets);
        let soon = Some(Duration::from_micros(20));
        assert_eq!(batching.next_wait(soon), (16, soon));
    }

    #[test]
    fn sockets_that_were_active_long_ago_do_not_count() {
        clock::stop();
        let batching = Batching::new();
        let sockets = vec![ActivePeriod::default(); 64];
        period(&batching, &sockets);
        clock::advance(Duration::from_secs(1));
        assert_eq!(batching.next_wait(LONG), (1, LONG));
    }
}

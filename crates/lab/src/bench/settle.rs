//! Waits between two runs, so that requests queued by an overload do not burden the next target.
//! Servers answer requests even if their clients have disconnected.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::topology::Topology;
use crate::procfs;

/// Limit for the servers to finish queued requests.
const LIMIT: Duration = Duration::from_secs(10);

/// Limit for web servers, which queue nothing and are restarted sooner.
const WEB_LIMIT: Duration = Duration::from_secs(1);

const WINDOW: Duration = Duration::from_millis(100);
const BUSY_PERCENT: u128 = 20;

/// Waits until the servers are idle.
pub(crate) fn settle(topology: &Topology) -> Result<()> {
    let pids = topology.pids();
    let used_us = || procfs::cpu_us(&pids);
    match topology.keeps_nothing() {
        true if !become_idle(WEB_LIMIT, used_us) => topology.start_again(),
        true => Ok(()),
        false => {
            become_idle(LIMIT, used_us);
            Ok(())
        }
    }
}

/// Returns whether the servers became idle within `limit`.
fn become_idle(limit: Duration, used_us: impl Fn() -> u64) -> bool {
    let since = Instant::now();
    while since.elapsed() < limit {
        let before_us = used_us();
        sleep(WINDOW);
        let busy_us = used_us().saturating_sub(before_us);
        if u128::from(busy_us) * 100 < WINDOW.as_micros() * BUSY_PERCENT {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Processor time that grows by `step_us` with each call, up to `until_us`.
    fn growing(step_us: u64, until_us: u64) -> impl Fn() -> u64 {
        let used_us = Cell::new(0);
        move || {
            used_us.set((used_us.get() + step_us).min(until_us));
            used_us.get()
        }
    }

    #[test]
    fn servers_are_waited_for_until_they_are_idle_and_no_longer_than_the_limit() {
        assert!(become_idle(LIMIT, growing(1_000, u64::MAX)), "hardly busy");
        assert!(
            become_idle(LIMIT, growing(90_000, 250_000)),
            "busy at first"
        );
        assert!(!become_idle(3 * WINDOW, growing(90_000, u64::MAX)));
    }
}

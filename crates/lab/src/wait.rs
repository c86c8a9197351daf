//! Waits for a condition, with a deadline and a description.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Limits of the pause between two polls, which is an eighth of the time waited by then. Most polls
/// start a program: many of them would take the processor from the server that they wait for.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Polls `ready` until it returns a value; after `limit` the error says that `what` did not happen.
pub fn eventually<T>(
    limit: Duration,
    what: &str,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        let waited = began.elapsed();
        if waited >= limit {
            bail!("{what}: not within {} ms", limit.as_millis());
        }
        sleep((waited / 8).clamp(PAUSE_MIN, PAUSE_MAX));
    }
}

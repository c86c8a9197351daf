//! Waits for a condition, with a deadline and a description.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const POLL: Duration = Duration::from_millis(10);

/// Polls `ready` until it returns a value; after `limit` the error says that `what` did not happen.
pub fn eventually<T>(
    limit: Duration,
    what: &str,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("{what}: not within {} ms", limit.as_millis());
        }
        sleep(POLL);
    }
}

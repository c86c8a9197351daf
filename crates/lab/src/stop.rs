//! Ctrl-C and SIGTERM: noticed between two steps, so that everything is put away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether the user has asked for the end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on the first of these signals only sets the flag.
    pub fn on_signals() -> Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The second one ends the process at once; what it started then goes with it.
            signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Stop(flag))
    }

    /// Whether it was.
    pub fn is_asked_for(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once the end was asked for.
    pub fn check(&self) -> Result<()> {
        if self.is_asked_for() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Waits until it is.
    pub fn wait(&self) {
        while !self.is_asked_for() {
            sleep(Duration::from_millis(50));
        }
    }
}

//! Handles Ctrl-C and SIGTERM between two steps, so that everything is cleaned up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Flag that is set when the user has stopped the run.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Installs handlers: the first of these signals only sets the flag.
    pub fn on_signals() -> Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The second signal ends the process immediately, and with it its children.
            signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Stop(flag))
    }

    /// Returns whether the user has stopped the run.
    pub fn is_asked_for(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns an error after the user has stopped the run.
    pub fn check(&self) -> Result<()> {
        if self.is_asked_for() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Waits until the user stops the run.
    pub fn wait(&self) {
        while !self.is_asked_for() {
            sleep(Duration::from_millis(50));
        }
    }
}

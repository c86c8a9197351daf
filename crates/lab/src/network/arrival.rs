//! Observes when an address arrives in a namespace.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::within;

/// Interval of the checks, which is the maximum delay.
const POLL: Duration = Duration::from_millis(1);

/// A background thread that waits for the address.
pub(crate) struct Arrival {
    seen: Receiver<SystemTime>,
    is_over: Arc<AtomicBool>,
}

impl Arrival {
    pub(crate) fn watch(namespace: PathBuf, address: Ipv4Addr) -> Arrival {
        let (report, seen) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        thread::spawn(move || watch(&namespace, address, &over, &report));
        Arrival { seen, is_over }
    }

    pub(crate) fn wait(&self, limit: Duration) -> Result<SystemTime> {
        let seen = self.seen.recv_timeout(limit);
        seen.with_context(|| format!("the address did not come within {} s", limit.as_secs()))
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Returns whether the namespace has the address.
pub(crate) fn has_address(namespace: &Path, address: Ipv4Addr) -> bool {
    within(namespace, || Ok(is_own(address))).unwrap_or(false)
}

/// Returns whether the address is local: the kernel rejects sockets on other addresses.
fn is_own(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn watch(namespace: &Path, address: Ipv4Addr, over: &AtomicBool, report: &Sender<SystemTime>) {
    let _ = within(namespace, || {
        while !over.load(Ordering::Relaxed) {
            if is_own(address) {
                let _ = report.send(SystemTime::now());
                return Ok(());
            }
            thread::sleep(POLL);
        }
        Ok(())
    });
}

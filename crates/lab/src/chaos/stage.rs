//! State shared by all participants: address, deadline, observations.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::client::Client;
use super::failure::Failure;
use super::observations::Observations;
use super::seed::ChaosRng;

/// State shared by all threads.
pub(super) struct TestBed {
    pub(super) address: SocketAddr,
    /// Limit for any answer; longer than writes may wait for a new primary.
    pub(super) answer_timeout: Duration,
    pub(super) seed: u64,
    pub(super) observations: Observations,
    end: AtomicBool,
}

impl TestBed {
    pub(super) fn new(address: SocketAddr, answer_timeout: Duration, seed: u64) -> TestBed {
        TestBed {
            address,
            answer_timeout,
            seed,
            observations: Observations::default(),
            end: AtomicBool::new(false),
        }
    }

    pub(super) fn connect<C: Client>(&self, name: &str) -> Result<C, Failure> {
        C::connect(self.address, name, self.answer_timeout)
    }

    pub(super) fn rng(&self, participant: u64) -> ChaosRng {
        ChaosRng::new(self.seed, participant)
    }

    pub(super) fn is_running(&self) -> bool {
        !self.end.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

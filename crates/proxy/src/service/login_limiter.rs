//! Limits concurrent logins, in total and per client address, so that unauthenticated clients
//! cannot exhaust `max_connections`. Clients over the limit wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use evenkeel_engine::panics::lock;
use evenkeel_engine::timers;

use super::fair_semaphore::{FairSemaphore, Permit};

/// Number of known addresses from which unused ones are removed.
const ADDRESSES_MAX: usize = 1_024;

/// Maximum number of concurrent logins at servers that only prove a client's password. They are in
/// addition to the connections of the pools.
const PROOFS_MAX: u32 = 32;

/// Limits of concurrent logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginLimits {
    /// Limit in total.
    pub total: u32,
    /// Limit per address; clients of Unix sockets have none.
    pub per_address: u32,
}

/// Counts clients that are logging in.
#[derive(Debug)]
pub(crate) struct LoginLimiter {
    limits: LoginLimits,
    all: Arc<FairSemaphore>,
    addresses: Mutex<HashMap<IpAddr, Weak<FairSemaphore>>>,
    proofs: Arc<FairSemaphore>,
}

/// A permit for a login at a server that proves a password, released on drop.
pub(crate) struct ProofPermit(#[expect(dead_code, reason = "held until it is dropped")] Permit);

/// A permit for a login, released on drop.
pub(crate) struct LoginPermit {
    _total: Permit,
    _per_address: Option<Permit>,
}

impl Default for LoginLimits {
    fn default() -> Self {
        LoginLimits {
            total: 1_000,
            per_address: 100,
        }
    }
}

impl LoginLimiter {
    pub(crate) fn new(limits: LoginLimits) -> Self {
        LoginLimiter {
            limits,
            all: Arc::new(FairSemaphore::new(limits.total)),
            addresses: Mutex::default(),
            proofs: Arc::new(FairSemaphore::new(PROOFS_MAX)),
        }
    }

    pub(crate) fn limits(&self) -> LoginLimits {
        self.limits
    }

    /// Acquires a permit within a login's time limit, and returns it with the remaining time.
    /// `None`: no permit became free in time.
    pub(crate) async fn enter_within(
        &self,
        limit: Duration,
        address: Option<IpAddr>,
    ) -> Option<(LoginPermit, Duration)> {
        let began = Instant::now();
        let entering = timers::timeout(limit, self.enter(address));
        let permit = entering.await.ok()?;
        // The permit may have become free in the moment in which the limit passed.
        let left = limit.checked_sub(began.elapsed())?;
        Some((permit, left))
    }

    /// Waits for a permit to prove a password at a server, within the limit of the login.
    pub(crate) async fn acquire_proof(&self) -> ProofPermit {
        ProofPermit(Arc::clone(&self.proofs).acquire().await)
    }

    /// Waits for a permit, first come, first served. The permit of the address is acquired first,
    /// so that a client with many connections delays only itself.
    async fn enter(&self, address: Option<IpAddr>) -> LoginPermit {
        let per_address = match address {
            Some(address) => Some(self.semaphore_of(address).acquire().await),
            None => None,
        };
        LoginPermit {
            _total: Arc::clone(&self.all).acquire().await,
            _per_address: per_address,
        }
    }

    fn semaphore_of(&self, address: IpAddr) -> Arc<FairSemaphore> {
        let mut addresses = lock(&self.addresses);
        if let Some(known) = addresses.get(&address).and_then(Weak::upgrade) {
            return known;
        }
        if addresses.len() >= ADDRESSES_MAX {
            addresses.retain(|_, permits| permits.strong_count() > 0);
        }
        let permits = Arc::new(FairSemaphore::new(self.limits.per_address));
        addresses.insert(address, Arc::downgrade(&permits));
        permits
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Returns a permit if the client would not have to wait.
    fn try_enter(login_limiter: &LoginLimiter, address: Option<[u8; 4]>) -> Option<LoginPermit> {
        let entering = pin!(login_limiter.enter(address.map(IpAddr::from)));
        match entering.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_address_does_not_take_the_places_of_all() {
        let (own, other) = (Some([10, 0, 0, 1]), Some([10, 0, 0, 2]));
        let login_limiter = LoginLimiter::new(LoginLimits {
            total: 4,
            per_address: 2,
        });
        let first = try_enter(&login_limiter, own);
        let held = [
            try_enter(&login_limiter, own),
            try_enter(&login_limiter, other),
        ];
        assert!(first.is_some() && held.iter().all(Option::is_some));
        assert!(try_enter(&login_limiter, own).is_none());
        let last = try_enter(&login_limiter, None);
        assert!(last.is_some() && try_enter(&login_limiter, other).is_none());
        drop(first);
        assert!(try_enter(&login_limiter, other).is_some());
    }

    /// TO SEE THIS RED: let a permit count that became free after the limit.
    #[test]
    fn a_permit_that_becomes_free_too_late_is_none() {
        let login_limiter = LoginLimiter::new(LoginLimits {
            total: 1,
            per_address: 1,
        });
        let held = try_enter(&login_limiter, None);
        let mut waiting = pin!(login_limiter.enter_within(Duration::from_millis(20), None));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(context).is_pending());
        std::thread::sleep(Duration::from_millis(30));
        drop(held);
        assert!(matches!(waiting.poll(context), Poll::Ready(None)));
    }

    #[test]
    fn addresses_are_forgotten_when_nobody_comes_from_them() {
        let login_limiter = LoginLimiter::new(LoginLimits::default());
        let stays = try_enter(&login_limiter, Some([192, 0, 2, 1]));
        for number in 0..5_000_u32 {
            let _gone = try_enter(&login_limiter, Some(number.to_be_bytes()));
        }
        assert!(stays.is_some());
        assert!(login_limiter.addresses.lock().unwrap().len() <= ADDRESSES_MAX);
        let known = login_limiter.semaphore_of(IpAddr::from([192, 0, 2, 1]));
        assert_eq!(known.free(), 99);
    }
}

//! Limits the rate of password attempts, which cost CPU time, so that guessing is impractical.
//!
//! Each address, and each user over all addresses, has a burst limit and a rate. A successful login
//! is refunded.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::Duration;

use evenkeel_engine::panics::lock;
use evenkeel_engine::{clock, timers};

/// Maximum number of remembered addresses and users.
const KNOWN_MAX: usize = 10_000;

/// Interval at which a delayed attempt is retried.
const TURN: Duration = Duration::from_millis(50);

/// Rate limit: one attempt per `each_ms`, with bursts of up to `at_once`.
struct Limit {
    each_ms: u64,
    at_once: u64,
}

const OF_ADDRESS: Limit = Limit {
    each_ms: 100,
    at_once: 20,
};

const OF_USER: Limit = Limit {
    each_ms: 50,
    at_once: 40,
};

/// Time, per address and user, at which all attempts so far would be done at the permitted rate.
#[derive(Debug, Default)]
pub(crate) struct PasswordRateLimit {
    due_ms: Mutex<HashMap<RateLimitKey, u64>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RateLimitKey {
    /// Address, or the /64 network of an IPv6 address, since one customer has a whole network.
    Address(IpAddr),
    User(Box<str>),
}

impl PasswordRateLimit {
    /// Waits until an attempt is permitted and charges for it. The login's time limit bounds the
    /// wait.
    pub(in crate::session) async fn wait(&self, address: Option<IpAddr>, user: &str) {
        while !self.charge(address, user, clock::now_ms()) {
            timers::sleep(TURN).await;
        }
    }

    /// Charges for an attempt. Returns false if none is permitted now.
    pub(in crate::session) fn charge(
        &self,
        address: Option<IpAddr>,
        user: &str,
        now_ms: u64,
    ) -> bool {
        let mut due_ms = lock(&self.due_ms);
        if due_ms.len() >= KNOWN_MAX {
            due_ms.retain(|_, due_ms| *due_ms > now_ms);
        }
        let parties = parties(address, user);
        let may = |(whom, limit): &(RateLimitKey, Limit)| {
            let due_ms = due_ms.get(whom).copied().unwrap_or_default();
            due_ms.saturating_sub(now_ms) < limit.each_ms * limit.at_once
        };
        if due_ms.len() >= KNOWN_MAX || !parties.iter().all(may) {
            return false;
        }
        for (whom, limit) in parties {
            let due_ms = due_ms.entry(whom).or_default();
            *due_ms = now_ms.max(*due_ms) + limit.each_ms;
        }
        true
    }

    /// Refunds an attempt with the right password.
    pub(in crate::session) fn refund(&self, address: Option<IpAddr>, user: &str) {
        let mut due_ms = lock(&self.due_ms);
        for (whom, limit) in parties(address, user) {
            if let Some(due_ms) = due_ms.get_mut(&whom) {
                *due_ms = due_ms.saturating_sub(limit.each_ms);
            }
        }
    }
}

fn parties(address: Option<IpAddr>, user: &str) -> Vec<(RateLimitKey, Limit)> {
    let address = address.map(|address| match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        v4 => v4,
    });
    let address = address.map(|address| (RateLimitKey::Address(address), OF_ADDRESS));
    let user = (RateLimitKey::User(user.into()), OF_USER);
    address.into_iter().chain([user]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn an_address_tries_some_at_once_and_then_few() {
        let rate_limit = PasswordRateLimit::default();
        let tries = |now_ms| {
            let all = (0..100)
                .filter(|number| rate_limit.charge(address(1), &format!("u{number}"), now_ms));
            all.count()
        };
        assert_eq!(tries(1_000), 20);
        assert_eq!(tries(1_000), 0);
        assert_eq!(tries(2_000), 10);
        assert!(rate_limit.charge(address(2), "u", 2_000), "others may");
    }

    #[test]
    fn many_addresses_together_try_one_user_as_slowly() {
        let rate_limit = PasswordRateLimit::default();
        let all = (0..100).filter(|last| rate_limit.charge(address(*last), "app", 1_000));
        assert_eq!(all.count(), 40);
        assert!(rate_limit.charge(address(1), "other", 1_000));
    }

    #[test]
    fn right_passwords_cost_nothing() {
        let rate_limit = PasswordRateLimit::default();
        for _ in 0..1_000 {
            assert!(rate_limit.charge(address(1), "app", 1_000));
            rate_limit.refund(address(1), "app");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten() {
        let rate_limit = PasswordRateLimit::default();
        for number in 0..20_000 {
            rate_limit.charge(None, &format!("u{number}"), 1_000);
        }
        assert_eq!(rate_limit.due_ms.lock().unwrap().len(), KNOWN_MAX);
        assert!(rate_limit.charge(None, "app", 2_000));
    }
}

//! Limits the requests of each client over time, in a table of fixed size.
//!
//! A client is an IPv4 address or an IPv6 network of 64 bits, of which one host has all addresses.
//! Each has a token bucket, kept as the time at which it will be full again (the generic cell rate
//! algorithm, ITU-T I.371).

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::keyed_hash::HashKey;

/// Buckets in a set; a client's bucket is in the one set that its hash selects.
const WAYS: usize = 8;

/// Attempts to change a bucket that other workers change concurrently; then the request is
/// admitted.
const ATTEMPTS_MAX: u32 = 8;

/// Bits of a bucket's time, in microseconds: it wraps after 50 days. The other bits are the tag of
/// its client.
const TIME_BITS: u32 = 42;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Number that separates these hashes from others with the same key.
const PURPOSE: u64 = u64::from_le_bytes(*b"rate-001");

/// Limit for the requests of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests in a period, at least 1. A client that was idle for a period may send them all
    /// within a moment.
    pub requests: u32,
    /// Length of the period, in milliseconds; 1 to a day.
    pub period_ms: u64,
}

/// Decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The request is within the limit, and counted.
    Admitted,
    /// The request is beyond the limit, and not counted.
    Limited {
        /// Time until the client's next request is admitted, in milliseconds, at least 1.
        retry_after_ms: u64,
    },
}

/// Buckets of clients, shared by all workers without a lock.
///
/// A table that is too small for its clients admits too many requests, never too few: the bucket
/// that is nearest to full is replaced. Two clients share a bucket with a chance of 1 in 500,000.
#[derive(Debug)]
pub struct RateTable {
    key: HashKey,
    sets: Box<[Set]>,
    /// Time in which a bucket gains one request.
    step_us: u64,
    /// Time in which an empty bucket becomes full.
    full_us: u64,
}

/// Buckets in one cache line. Zero is a bucket that was never used.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

impl RateTable {
    /// Creates a table of at most `bytes_max`, but at least 64 bytes; a client takes 8 bytes. The
    /// key must be secret, so that clients cannot choose whose bucket they replace.
    pub fn new(limit: RateLimit, bytes_max: usize, key: HashKey) -> RateTable {
        let sets = (bytes_max / size_of::<Set>()).max(1);
        let period_us = limit.period_ms.clamp(1, 86_400_000) * 1_000;
        let requests = u64::from(limit.requests.max(1));
        let step_us = (period_us / requests).max(1);
        RateTable {
            key,
            sets: (0..sets).map(|_| Set::default()).collect(),
            step_us,
            full_us: step_us * requests,
        }
    }

    /// Counts a request of a client, if it is within the limit.
    pub fn admit(&self, client: IpAddr, now_us: u64) -> Admission {
        let (set, tag) = self.place(client);
        for _ in 0..ATTEMPTS_MAX {
            let (bucket, old) = self.bucket_of(set, tag, now_us);
            let is_own = old >> TIME_BITS == tag;
            let wait_us = if is_own { self.wait_us(old, now_us) } else { 0 };
            if wait_us + self.step_us > self.full_us {
                let excess_us = wait_us + self.step_us - self.full_us;
                return Admission::Limited {
                    retry_after_ms: excess_us.div_ceil(1_000),
                };
            }
            let full_at_us = now_us.wrapping_add(wait_us + self.step_us);
            let new = tag << TIME_BITS | full_at_us & TIME_MASK;
            if bucket.compare_exchange(old, new, Relaxed, Relaxed).is_ok() {
                break;
            }
        }
        Admission::Admitted
    }

    /// Returns whether the client's next request is beyond the limit, and counts nothing.
    pub fn is_limited(&self, client: IpAddr, now_us: u64) -> bool {
        let (set, tag) = self.place(client);
        let (_, content) = self.bucket_of(set, tag, now_us);
        let is_own = content >> TIME_BITS == tag;
        is_own && self.wait_us(content, now_us) + self.step_us > self.full_us
    }

    /// Returns the set of a client, and its tag, which is not zero.
    fn place(&self, client: IpAddr) -> (&Set, u64) {
        let words = match client.to_canonical() {
            IpAddr::V4(address) => [PURPOSE, 4, u64::from(address.to_bits())],
            IpAddr::V6(address) => [PURPOSE, 6, (address.to_bits() >> 64) as u64],
        };
        let hash = self.key.hash(&words);
        let set = (hash as u64 % self.sets.len() as u64) as usize;
        let tag = (hash >> 64) as u64 >> TIME_BITS;
        (&self.sets[set], tag.max(1))
    }

    /// Returns the client's bucket, or else the one to replace, with its content.
    fn bucket_of<'a>(&self, set: &'a Set, tag: u64, now_us: u64) -> (&'a AtomicU64, u64) {
        let contents = set.0.iter().map(|bucket| (bucket, bucket.load(Relaxed)));
        let order = |(_, content): &(&AtomicU64, u64)| match content >> TIME_BITS == tag {
            true => None,
            false => Some(self.wait_us(*content, now_us)),
        };
        let bucket = contents.min_by_key(order);
        bucket.expect("a set has buckets")
    }

    /// Returns the time until a bucket is full. A time that is farther away is one of the past.
    fn wait_us(&self, content: u64, now_us: u64) -> u64 {
        let wait_us = content.wrapping_sub(now_us) & TIME_MASK;
        if content == 0 || wait_us > self.full_us {
            0
        } else {
            wait_us
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn table(requests: u32, period_ms: u64, bytes_max: usize) -> RateTable {
        let limit = RateLimit {
            requests,
            period_ms,
        };
        RateTable::new(limit, bytes_max, HashKey::new([5; 16]))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn admitted(table: &RateTable, client: &str, now_us: u64) -> u32 {
        let admit = |_| table.admit(address(client), now_us) == Admission::Admitted;
        (0..1_000).map(admit).map(u32::from).sum()
    }

    #[test]
    fn a_client_may_send_a_periods_requests_and_then_evenly() {
        let table = table(10, 1_000, 4_096);
        // A start far from zero, and one at which the time wraps.
        for start_us in [7, TIME_MASK - SECOND_US / 2, 3 << TIME_BITS] {
            let client = "192.0.2.1";
            assert!(!table.is_limited(address(client), start_us));
            assert_eq!(admitted(&table, client, start_us), 10);
            assert!(table.is_limited(address(client), start_us + 99_999));
            assert!(!table.is_limited(address("192.0.2.2"), start_us + 99_999));
            assert_eq!(admitted(&table, client, start_us + 99_999), 0);
            assert!(!table.is_limited(address(client), start_us + 100_000));
            assert_eq!(admitted(&table, client, start_us + 100_000), 1);
            assert_eq!(admitted(&table, client, start_us + 450_000), 3);
            assert_eq!(admitted(&table, client, start_us + 60 * SECOND_US), 10);
        }
    }

    #[test]
    fn a_refusal_states_the_exact_wait() {
        let table = table(3, 60_000, 4_096);
        let client = address("192.0.2.1");
        assert_eq!(admitted(&table, "192.0.2.1", SECOND_US), 3);
        let expect = Admission::Limited {
            retry_after_ms: 20_000,
        };
        assert_eq!(table.admit(client, SECOND_US), expect);
        let now_us = SECOND_US + 19_999_001;
        let expect = Admission::Limited { retry_after_ms: 1 };
        assert_eq!(table.admit(client, now_us), expect);
        assert_eq!(table.admit(client, now_us + 999), Admission::Admitted);
    }

    #[test]
    fn a_client_is_an_address_of_ipv4_or_a_network_of_ipv6() {
        let table = table(5, 1_000, 1 << 16);
        for (first, same, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            ("2001:db8:0:1::1", "2001:db8:0:1:ffff::", "2001:db8:0:2::1"),
        ] {
            assert_eq!(admitted(&table, first, 9), 5);
            assert_eq!(admitted(&table, same, 9), 0);
            assert_eq!(admitted(&table, other, 9), 5);
        }
    }

    #[test]
    fn a_full_table_limits_no_client_for_the_requests_of_others() {
        let table = table(2, 1_000, 64);
        for client in 0..10_000_u32 {
            let client = IpAddr::from(client.to_be_bytes());
            assert_eq!(table.admit(client, 1), Admission::Admitted, "{client}");
        }
    }

    /// The other clients have one request each, and fill the set only together.
    #[test]
    fn the_bucket_that_is_nearest_to_full_is_replaced() {
        let table = table(100, 1_000, 64);
        assert_eq!(admitted(&table, "198.51.100.1", 1), 100);
        for client in 0..100_u32 {
            table.admit(IpAddr::from(client.to_be_bytes()), 1);
        }
        assert_eq!(
            admitted(&table, "198.51.100.1", 1),
            0,
            "the busy client stays limited"
        );
    }

    #[test]
    fn the_table_has_the_size_that_was_asked_for() {
        assert_eq!(size_of::<Set>(), 64);
        for (bytes_max, sets) in [(0, 1), (64, 1), (127, 1), (128, 2), (1 << 20, 1 << 14)] {
            assert_eq!(table(1, 1, bytes_max).sets.len(), sets);
        }
    }

    #[test]
    fn extreme_limits_do_not_overflow() {
        for requests in [0, 1, u32::MAX] {
            for period_ms in [0, 1, u64::MAX] {
                let table = table(requests, period_ms, 64);
                assert_eq!(table.admit(address("::1"), u64::MAX), Admission::Admitted);
            }
        }
    }

    #[test]
    fn concurrent_workers_admit_no_more_than_the_limit() {
        let table = table(1_000, 86_400_000, 64);
        let admitted: usize = std::thread::scope(|scope| {
            let worker = || {
                let admit = |_: &u32| table.admit(address("::1"), 5) == Admission::Admitted;
                (0..1_000_u32).filter(admit).count()
            };
            // The first request makes the bucket, so that two workers do not both make one.
            let first = usize::from(table.admit(address("::1"), 5) == Admission::Admitted);
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
            let counts = workers.into_iter().map(|one| one.join().expect("no panic"));
            counts.sum::<usize>() + first
        });
        // A request that loses each of its attempts is admitted without being counted.
        assert!((1_000..=1_010).contains(&admitted), "{admitted}");
    }
}

//! Counters of the data plane; other modules render them.

pub mod work;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use work::WorkCounters;

/// Counter of rare events (once per connection or less), shared by all workers.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds `n`: events of this process, or events that another process has counted.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Returns the count so far, which never decreases.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Bytes moved by one worker, on a cache line that only this worker writes.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Traffic {
    from_clients: AtomicU64,
    to_clients: AtomicU64,
}

impl Traffic {
    // A plain load and store is enough (and cheaper than an atomic add): there is one writer.
    pub(crate) fn add_from_client(&self, bytes: u64) {
        self.from_clients
            .store(self.from_clients.load(Relaxed) + bytes, Relaxed);
    }

    pub(crate) fn add_to_client(&self, bytes: u64) {
        self.to_clients
            .store(self.to_clients.load(Relaxed) + bytes, Relaxed);
    }
}

/// Bytes in both directions, counted per worker and summed when read.
#[derive(Debug)]
pub struct Bytes {
    workers: Box<[Traffic]>,
    /// Bytes moved by other processes; only the control plane writes them.
    elsewhere: Traffic,
}

impl Bytes {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers).map(|_| Traffic::default()).collect(),
            elsewhere: Traffic::default(),
        }
    }

    pub(crate) fn of(&self, worker: usize) -> &Traffic {
        &self.workers[worker]
    }

    /// Adds the bytes that another process has moved.
    pub fn add_counted(&self, from_clients: u64, to_clients: u64) {
        self.elsewhere.add_from_client(from_clients);
        self.elsewhere.add_to_client(to_clients);
    }

    /// Returns the bytes received from clients.
    pub fn from_clients(&self) -> u64 {
        self.all().map(|t| t.from_clients.load(Relaxed)).sum()
    }

    /// Returns the bytes sent to clients.
    pub fn to_clients(&self) -> u64 {
        self.all().map(|t| t.to_clients.load(Relaxed)).sum()
    }

    fn all(&self) -> impl Iterator<Item = &Traffic> {
        self.workers.iter().chain([&self.elsewhere])
    }
}

/// Histogram with fixed upper limits. A value above the last limit is counted in an additional,
/// unlimited slot.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self {
            bounds,
            counts,
            sum: AtomicU64::new(0),
        }
    }

    pub(crate) fn observe(&self, value: u64) {
        let slot = self.bounds.partition_point(|bound| *bound < value);
        self.counts[slot].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Adds values that another process has counted; ignored if the number of slots differs.
    pub fn add_counted(&self, counts: &[u64], sum: u64) {
        if counts.len() != self.counts.len() {
            return;
        }
        for (slot, more) in self.counts.iter().zip(counts) {
            slot.fetch_add(*more, Relaxed);
        }
        self.sum.fetch_add(sum, Relaxed);
    }

    /// Returns the inclusive upper limits, without the unlimited last slot.
    pub fn bounds(&self) -> &'static [u64] {
        self.bounds
    }

    /// Returns the number of values per slot (not cumulative); there is one slot more than limits.
    pub fn counts(&self) -> Vec<u64> {
        self.counts
            .iter()
            .map(|count| count.load(Relaxed))
            .collect()
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }
}

/// Limits of connect times in microseconds: from tens on loopback to seconds for a distant, failing
/// host.
const CONNECT_US: &[u64] = &[
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000,
];

/// Limits of session durations in milliseconds: from a single request to a pooled connection of
/// days.
const SESSION_MS: &[u64] = &[
    1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 300_000, 1_800_000, 3_600_000,
    21_600_000, 86_400_000,
];

/// Counters of one service.
#[derive(Debug)]
pub struct ServiceCounters {
    /// Clients accepted, including those rejected later.
    pub sessions: SharedCounter,
    /// Clients rejected because `max_connections` was reached.
    pub over_limit: SharedCounter,
    /// Clients rejected because the queue was full.
    pub queue_full: SharedCounter,
    /// Clients rejected because they waited `queue.wait_ms` without success.
    pub queue_timeout: SharedCounter,
    /// Clients rejected because no server was up.
    pub no_server: SharedCounter,
    /// Clients rejected because every connect failed.
    pub connect_failed: SharedCounter,
    /// Connects retried on another server.
    pub retries: SharedCounter,
    /// Clients terminated because of a bad, missing or forbidden PROXY header.
    pub proxy_header: SharedCounter,
    /// Clients closed because no route matched and the service has no servers, or because their
    /// ClientHello did not arrive in time.
    pub unrouted: SharedCounter,
    /// Clients refused after too many floods of HTTP/2 frames from their address.
    pub flooding: SharedCounter,
    /// Failed connects to its servers.
    pub connect_errors: SharedCounter,
    /// Sessions ended by a client's reset.
    pub reset_by_client: SharedCounter,
    /// Sessions ended by a server's reset.
    pub reset_by_server: SharedCounter,
    /// Sessions ended by an idle timeout.
    pub idle_timeout: SharedCounter,
    /// Sessions terminated: server down, drain limit, service removed.
    pub cut: SharedCounter,
    /// Time to connect to a server, microseconds.
    pub connect_us: Histogram,
    /// Duration of finished sessions, milliseconds.
    pub session_ms: Histogram,
    /// Bytes moved.
    pub bytes: Bytes,
}

impl ServiceCounters {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            sessions: SharedCounter::default(),
            over_limit: SharedCounter::default(),
            queue_full: SharedCounter::default(),
            queue_timeout: SharedCounter::default(),
            no_server: SharedCounter::default(),
            connect_failed: SharedCounter::default(),
            retries: SharedCounter::default(),
            proxy_header: SharedCounter::default(),
            unrouted: SharedCounter::default(),
            flooding: SharedCounter::default(),
            connect_errors: SharedCounter::default(),
            reset_by_client: SharedCounter::default(),
            reset_by_server: SharedCounter::default(),
            idle_timeout: SharedCounter::default(),
            cut: SharedCounter::default(),
            connect_us: Histogram::new(CONNECT_US),
            session_ms: Histogram::new(SESSION_MS),
            bytes: Bytes::new(workers),
        }
    }

    /// Returns every counter with its name, for transfer to another process. The exhaustive pattern
    /// ensures that no counter is forgotten.
    pub fn tallies(&self) -> Vec<(&'static str, &SharedCounter)> {
        let Self {
            sessions,
            over_limit,
            queue_full,
            queue_timeout,
            no_server,
            connect_failed,
            retries,
            proxy_header,
            unrouted,
            flooding,
            connect_errors,
            reset_by_client,
            reset_by_server,
            idle_timeout,
            cut,
            connect_us: _,
            session_ms: _,
            bytes: _,
        } = self;
        vec![
            ("sessions", sessions),
            ("over_limit", over_limit),
            ("queue_full", queue_full),
            ("queue_timeout", queue_timeout),
            ("no_server", no_server),
            ("connect_failed", connect_failed),
            ("retries", retries),
            ("proxy_header", proxy_header),
            ("unrouted", unrouted),
            ("flooding", flooding),
            ("connect_errors", connect_errors),
            ("reset_by_client", reset_by_client),
            ("reset_by_server", reset_by_server),
            ("idle_timeout", idle_timeout),
            ("cut", cut),
        ]
    }

    /// Returns every histogram with its name.
    pub fn histograms(&self) -> [(&'static str, &Histogram); 2] {
        [
            ("connect_us", &self.connect_us),
            ("session_ms", &self.session_ms),
        ]
    }
}

/// Counters of one server, over all services that list it.
#[derive(Debug)]
pub struct ServerCounters {
    /// Sessions that acquired a connection to the server.
    pub sessions: SharedCounter,
    /// Sessions in which the server has sent a byte.
    pub served: SharedCounter,
    /// Connects that failed.
    pub connect_errors: SharedCounter,
    /// Connections that the server closed before it had sent a byte.
    pub early_closes: SharedCounter,
    /// Sessions that the server reset.
    pub resets: SharedCounter,
    /// Bytes moved.
    pub bytes: Bytes,
    work: Box<[WorkCounters]>,
}

impl ServerCounters {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            work: (0..workers).map(|_| WorkCounters::default()).collect(),
            sessions: SharedCounter::default(),
            served: SharedCounter::default(),
            connect_errors: SharedCounter::default(),
            early_closes: SharedCounter::default(),
            resets: SharedCounter::default(),
            bytes: Bytes::new(workers),
        }
    }

    /// Returns the counters of each worker's statements on this server, for services with a
    /// database protocol.
    pub fn work(&self) -> &[WorkCounters] {
        &self.work
    }

    /// Returns every counter with its name, for transfer to another process.
    pub fn tallies(&self) -> Vec<(&'static str, &SharedCounter)> {
        let Self {
            sessions,
            served,
            connect_errors,
            early_closes,
            resets,
            bytes: _,
            work: _,
        } = self;
        vec![
            ("sessions", sessions),
            ("served", served),
            ("connect_errors", connect_errors),
            ("early_closes", early_closes),
            ("resets", resets),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_to_that_bound() {
        let histogram = Histogram::new(&[10, 100]);
        for value in [1, 10, 11, 100, 101] {
            histogram.observe(value);
        }
        assert_eq!(histogram.counts(), [2, 2, 1]);
        assert_eq!(histogram.sum(), 223);
    }
}

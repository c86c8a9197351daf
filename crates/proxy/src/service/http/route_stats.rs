//! Counts the requests of each route. Their number is bounded by the routes of the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::counters::Histogram;
use crate::counters::work::{LocalCounter, TIMES_US};

/// Statistics of the routes of one name.
#[derive(Debug)]
pub struct RouteStats {
    /// Name of the route.
    pub name: String,
    /// One of each worker, and a last one for other processes, which the control plane writes.
    counters: Box<[RouteCounters]>,
    /// Number of copies of requests in progress, of all workers.
    copies: AtomicU32,
}

/// Counters of a route that one thread writes.
#[derive(Debug)]
#[repr(align(64))]
pub struct RouteCounters {
    /// Responses by the first digit of the status, from 1 to 5, those of Evenkeel included.
    pub responses: [LocalCounter; 5],
    /// Time from the end of the request head to the end of the response, in microseconds.
    pub request_us: Histogram,
    /// Copies of requests: answered, failed and dropped ones.
    pub copies: [LocalCounter; 3],
}

/// Outcome of the copy of a request for a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyOutcome {
    /// The response was received completely.
    Answered,
    /// No complete response was received within the limits.
    Failed,
    /// The copy was not begun: too many were in progress, the service of the mirror was removed, or
    /// the changes of the mirror could not be made.
    Dropped,
}

/// Copy of a request in progress, which counts until it is dropped.
pub(crate) struct CopySlot(Arc<RouteStats>);

impl RouteStats {
    /// Creates the statistics; `count` is the number of counters.
    pub(super) fn new(name: &str, count: usize) -> Self {
        let counters = || RouteCounters {
            responses: Default::default(),
            request_us: Histogram::new(TIMES_US),
            copies: Default::default(),
        };
        Self {
            name: name.to_owned(),
            counters: (0..count).map(|_| counters()).collect(),
            copies: AtomicU32::new(0),
        }
    }

    /// Returns the counters of each worker, and those of other processes.
    pub fn counters(&self) -> &[RouteCounters] {
        &self.counters
    }

    /// Adds the numbers that another process has counted, by name. Only the control plane may call
    /// it.
    pub fn add_counted(&self, count_of: impl Fn(&str) -> u64) {
        let counters = self.counters.last().map(RouteCounters::tallies);
        for (name, tally) in counters.into_iter().flatten() {
            tally.add(count_of(name));
        }
    }

    /// Adds the histogram that another process has counted under this name.
    pub fn add_histogram(&self, name: &str, counts: &[u64], sum: u64) {
        let histograms = self.counters.last().map(RouteCounters::histograms);
        let mut histograms = histograms.into_iter().flatten();
        if let Some((_, histogram)) = histograms.find(|(known, _)| *known == name) {
            histogram.add_counted(counts, sum);
        }
    }

    /// Counts a request that was answered, at the worker of this index.
    pub(crate) fn count(&self, worker: usize, status: u16, request_us: u64) {
        let counters = &self.counters[worker];
        let class = usize::from(status / 100).clamp(1, 5);
        counters.responses[class - 1].add(1);
        counters.request_us.observe(request_us);
    }

    /// Counts the outcome of a copy, at the worker of this index.
    pub(crate) fn count_copy(&self, worker: usize, outcome: CopyOutcome) {
        self.counters[worker].copies[outcome as usize].add(1);
    }

    /// Begins a copy. `None`: this number of copies is in progress.
    pub(crate) fn begin_copy(self: &Arc<Self>, in_flight_max: u32) -> Option<CopySlot> {
        let next = |count: u32| count.checked_add(1).filter(|next| *next <= in_flight_max);
        let begun = self.copies.fetch_update(Relaxed, Relaxed, next);
        begun.ok().map(|_| CopySlot(Arc::clone(self)))
    }
}

impl CopySlot {
    /// Returns the statistics in which the copy counts.
    pub(crate) fn stats(&self) -> &RouteStats {
        &self.0
    }
}

impl Drop for CopySlot {
    fn drop(&mut self) {
        self.0.copies.fetch_sub(1, Relaxed);
    }
}

impl RouteCounters {
    /// Returns every counter with its name. The exhaustive pattern ensures that none is forgotten.
    pub fn tallies(&self) -> [(&'static str, &LocalCounter); 8] {
        let Self {
            responses: [informational, successful, redirects, of_client, of_server],
            request_us: _,
            copies: [answered, failed, dropped],
        } = self;
        [
            ("1xx", informational),
            ("2xx", successful),
            ("3xx", redirects),
            ("4xx", of_client),
            ("5xx", of_server),
            ("copies_answered", answered),
            ("copies_failed", failed),
            ("copies_dropped", dropped),
        ]
    }

    /// Returns every histogram with its name.
    pub fn histograms(&self) -> [(&'static str, &Histogram); 1] {
        [("request_us", &self.request_us)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_in_progress_are_bounded_and_count_until_they_are_dropped() {
        let stats = Arc::new(RouteStats::new("all", 1));
        let first = stats.begin_copy(2).expect("a first copy");
        let second = stats.begin_copy(2);
        assert!(second.is_some() && stats.begin_copy(2).is_none());
        drop(first);
        assert!(stats.begin_copy(2).is_some() && stats.begin_copy(1).is_none());
    }
}

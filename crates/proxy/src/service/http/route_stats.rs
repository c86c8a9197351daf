//! Counts the requests of each route. Their number is bounded by the routes of the configuration.

use crate::counters::Histogram;
use crate::counters::work::{LocalCounter, TIMES_US};

/// Statistics of the routes of one name.
#[derive(Debug)]
pub struct RouteStats {
    /// Name of the route.
    pub name: String,
    /// One of each worker.
    workers: Box<[RouteCounters]>,
}

/// Statistics of a route at one worker, which alone writes them.
#[derive(Debug)]
#[repr(align(64))]
pub struct RouteCounters {
    /// Responses by the first digit of the status, from 1 to 5, those of Evenkeel included.
    pub responses: [LocalCounter; 5],
    /// Time from the end of the request head to the end of the response, in microseconds.
    pub request_us: Histogram,
}

impl RouteStats {
    pub(super) fn new(name: &str, workers: usize) -> Self {
        let counters = || RouteCounters {
            responses: Default::default(),
            request_us: Histogram::new(TIMES_US),
        };
        Self {
            name: name.to_owned(),
            workers: (0..workers).map(|_| counters()).collect(),
        }
    }

    /// Returns the counters of each worker.
    pub fn workers(&self) -> &[RouteCounters] {
        &self.workers
    }

    /// Counts a request that was answered, at the worker of this index.
    pub(crate) fn count(&self, worker: usize, status: u16, request_us: u64) {
        let counters = &self.workers[worker];
        let class = usize::from(status / 100).clamp(1, 5);
        counters.responses[class - 1].add(1);
        counters.request_us.observe(request_us);
    }
}

//! Counts the requests of each route. Their number is bounded by the routes of the configuration.

use crate::counters::Histogram;
use crate::counters::work::{LocalCounter, TIMES_US};

/// Statistics of the routes of one name.
#[derive(Debug)]
pub struct RouteStats {
    /// Name of the route.
    pub name: String,
    /// One of each worker, and a last one for other processes, which the control plane writes.
    counters: Box<[RouteCounters]>,
}

/// Counters of a route that one thread writes.
#[derive(Debug)]
#[repr(align(64))]
pub struct RouteCounters {
    /// Responses by the first digit of the status, from 1 to 5, those of Evenkeel included.
    pub responses: [LocalCounter; 5],
    /// Time from the end of the request head to the end of the response, in microseconds.
    pub request_us: Histogram,
}

impl RouteStats {
    /// Creates the statistics; `count` is the number of counters.
    pub(super) fn new(name: &str, count: usize) -> Self {
        let counters = || RouteCounters {
            responses: Default::default(),
            request_us: Histogram::new(TIMES_US),
        };
        Self {
            name: name.to_owned(),
            counters: (0..count).map(|_| counters()).collect(),
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
}

impl RouteCounters {
    /// Returns every counter with its name. The exhaustive pattern ensures that none is forgotten.
    pub fn tallies(&self) -> [(&'static str, &LocalCounter); 5] {
        let Self {
            responses: [informational, successful, redirects, of_client, of_server],
            request_us: _,
        } = self;
        [
            ("1xx", informational),
            ("2xx", successful),
            ("3xx", redirects),
            ("4xx", of_client),
            ("5xx", of_server),
        ]
    }

    /// Returns every histogram with its name.
    pub fn histograms(&self) -> [(&'static str, &Histogram); 1] {
        [("request_us", &self.request_us)]
    }
}

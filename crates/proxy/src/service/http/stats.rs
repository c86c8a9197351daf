//! Counts the requests of one HTTP service at one worker.

use crate::counters::Histogram;
use crate::counters::work::{LocalCounter, TIMES_US};

/// Statistics of one service at one worker, which alone writes them.
#[derive(Debug)]
#[repr(align(64))]
pub struct HttpStats {
    /// Responses by the first digit of the status, from 1 to 5, those of Evenkeel included.
    pub responses: [LocalCounter; 5],
    /// Responses that Evenkeel made itself: errors and redirects.
    pub own_responses: LocalCounter,
    /// Requests sent to another server, or to the same one again, after a failure.
    pub retries: LocalCounter,
    /// Requests that were refused because they violate the protocol or a limit.
    pub refused: LocalCounter,
    /// Requests whose client disconnected before the response was complete.
    pub aborted: LocalCounter,
    /// Connections that became tunnels: WebSockets.
    pub tunnels: LocalCounter,
    /// Time from the end of the request head to the end of the response, in microseconds.
    pub request_us: Histogram,
    /// Time from the send of the request head to the first byte of the response, in microseconds.
    pub first_byte_us: Histogram,
}

impl Default for HttpStats {
    fn default() -> Self {
        Self {
            responses: Default::default(),
            own_responses: LocalCounter::default(),
            retries: LocalCounter::default(),
            refused: LocalCounter::default(),
            aborted: LocalCounter::default(),
            tunnels: LocalCounter::default(),
            request_us: Histogram::new(TIMES_US),
            first_byte_us: Histogram::new(TIMES_US),
        }
    }
}

impl HttpStats {
    /// Returns every counter with its name. The exhaustive pattern ensures that none is forgotten.
    pub fn tallies(&self) -> [(&'static str, &LocalCounter); 10] {
        let Self {
            responses: [informational, successful, redirects, of_client, of_server],
            own_responses,
            retries,
            refused,
            aborted,
            tunnels,
            request_us: _,
            first_byte_us: _,
        } = self;
        [
            ("http_1xx", informational),
            ("http_2xx", successful),
            ("http_3xx", redirects),
            ("http_4xx", of_client),
            ("http_5xx", of_server),
            ("http_own_responses", own_responses),
            ("http_retries", retries),
            ("http_refused", refused),
            ("http_aborted", aborted),
            ("http_tunnels", tunnels),
        ]
    }

    /// Returns every histogram with its name.
    pub fn histograms(&self) -> [(&'static str, &Histogram); 2] {
        [
            ("http_request_us", &self.request_us),
            ("http_first_byte_us", &self.first_byte_us),
        ]
    }

    /// Counts a response by its status.
    pub(crate) fn count_response(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5);
        self.responses[class - 1].add(1);
    }
}

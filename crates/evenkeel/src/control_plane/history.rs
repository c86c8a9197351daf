//! Records the last minute, one point per second, with rates computed from counters.

use std::collections::VecDeque;

use evenkeel_proxy::{Server, Service};

use super::ControlPlane;
use crate::status::{HistoryPoint, Rates};

/// Number of points in a minute.
const POINTS_MAX: usize = 60;

/// Counters at one moment.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Totals {
    pub(super) sessions: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) current: u64,
    pub(super) requests: u64,
}

impl Totals {
    pub(super) fn of_service(service: &Service) -> Self {
        let counters = &service.counters;
        Self {
            sessions: counters.sessions.get(),
            bytes_in: counters.bytes.from_clients(),
            bytes_out: counters.bytes.to_clients(),
            current: u64::from(service.active_everywhere()),
            requests: service.http().map_or(0, |http| http.requests()),
        }
    }

    pub(super) fn of_server(server: &Server) -> Self {
        Self {
            sessions: server.counters.sessions.get(),
            bytes_in: server.counters.bytes.from_clients(),
            bytes_out: server.counters.bytes.to_clients(),
            current: u64::from(server.load.active_everywhere()),
            requests: 0,
        }
    }
}

/// Points of a service or a server of the last minute.
#[derive(Debug, Default)]
pub(super) struct History {
    points: VecDeque<HistoryPoint>,
    last: Totals,
    rates: Rates,
}

impl History {
    /// Continues the history of another process. `now` holds the totals so far, so that the next
    /// rates do not include them.
    pub(super) fn resume(&mut self, points: Vec<HistoryPoint>, now: Totals) {
        self.points = points.into();
        self.last = now;
    }

    fn sample(&mut self, now: Totals) {
        let rates = Rates {
            sessions: now.sessions.saturating_sub(self.last.sessions),
            bytes_in: now.bytes_in.saturating_sub(self.last.bytes_in),
            bytes_out: now.bytes_out.saturating_sub(self.last.bytes_out),
            requests: now.requests.saturating_sub(self.last.requests),
        };
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(HistoryPoint {
            sessions_per_s: rates.sessions,
            bytes_per_s: rates.bytes_in + rates.bytes_out,
            current: now.current,
            requests_per_s: rates.requests,
        });
        self.last = now;
        self.rates = rates;
    }

    pub(super) fn points(&self) -> Vec<HistoryPoint> {
        self.points.iter().cloned().collect()
    }

    pub(super) fn rates(&self) -> Rates {
        self.rates.clone()
    }
}

impl ControlPlane {
    pub(super) fn sample(&mut self) {
        for service in &mut self.services {
            let totals = Totals::of_service(&service.service);
            service.history.sample(totals);
        }
        for (server, history) in self.servers.histories_mut() {
            history.sample(Totals::of_server(server));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_kept_and_rates_are_differences() {
        let mut history = History::default();
        for second in 1..=70 {
            history.sample(Totals {
                sessions: second * 10,
                requests: second * 30,
                ..Totals::default()
            });
        }
        assert_eq!(history.points().len(), POINTS_MAX);
        assert_eq!(history.rates().sessions, 10);
        assert_eq!(history.rates().requests, 30);
        assert_eq!(history.points()[59].requests_per_s, 30);
    }
}

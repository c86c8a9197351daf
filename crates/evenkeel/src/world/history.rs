//! The last minute, a point a second: rates from counters that only grow.

use std::collections::VecDeque;

use super::World;
use crate::status::{HistoryPoint, Rates};

/// A minute of points.
const POINTS_MAX: usize = 60;

/// Counters at one moment.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Totals {
    pub(super) sessions: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) current: u64,
}

/// The last minute of a service or a server.
#[derive(Debug, Default)]
pub(super) struct History {
    points: VecDeque<HistoryPoint>,
    last: Totals,
    rates: Rates,
}

impl History {
    fn sample(&mut self, now: Totals) {
        let rates = Rates {
            sessions: now.sessions.saturating_sub(self.last.sessions),
            bytes_in: now.bytes_in.saturating_sub(self.last.bytes_in),
            bytes_out: now.bytes_out.saturating_sub(self.last.bytes_out),
        };
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(HistoryPoint {
            sessions_per_s: rates.sessions,
            bytes_per_s: rates.bytes_in + rates.bytes_out,
            current: now.current,
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

impl World {
    pub(super) fn sample(&mut self) {
        for service in &mut self.services {
            let counters = &service.service.counters;
            service.history.sample(Totals {
                sessions: counters.sessions.get(),
                bytes_in: counters.bytes.from_clients(),
                bytes_out: counters.bytes.to_clients(),
                current: u64::from(service.service.active()),
            });
        }
        for state in self.servers.values_mut() {
            let server = &state.server;
            state.history.sample(Totals {
                sessions: server.counters.sessions.get(),
                bytes_in: server.counters.bytes.from_clients(),
                bytes_out: server.counters.bytes.to_clients(),
                current: u64::from(server.load.active()),
            });
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
                ..Totals::default()
            });
        }
        assert_eq!(history.points().len(), POINTS_MAX);
        assert_eq!(history.rates().sessions, 10);
    }
}

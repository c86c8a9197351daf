//! Computes the average rates of each database over the last full minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::status::{ControlHandle, Status, StatusSelection};

/// PgBouncer's `stats_period`.
const PERIOD: Duration = Duration::from_secs(60);

/// Counters of all users of one database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DatabaseCounters {
    pub(super) transactions: u64,
    pub(super) queries: u64,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) busy_us: u64,
}

impl DatabaseCounters {
    /// Returns the values in the order of the columns of SHOW STATS.
    pub(super) fn columns(self) -> [u64; 5] {
        [
            self.transactions,
            self.queries,
            self.received,
            self.sent,
            self.busy_us,
        ]
    }

    fn add(&mut self, other: DatabaseCounters) {
        self.transactions += other.transactions;
        self.queries += other.queries;
        self.received += other.received;
        self.sent += other.sent;
        self.busy_us += other.busy_us;
    }

    /// Returns the increase since `before`. A counter that decreased was reset; its increase counts
    /// as zero.
    fn since(self, before: DatabaseCounters) -> DatabaseCounters {
        DatabaseCounters {
            transactions: self.transactions.saturating_sub(before.transactions),
            queries: self.queries.saturating_sub(before.queries),
            received: self.received.saturating_sub(before.received),
            sent: self.sent.saturating_sub(before.sent),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
        }
    }
}

/// Counters by database, over all services.
pub(super) type ByDatabase = BTreeMap<String, DatabaseCounters>;

/// Increase of the counters in the last full period.
#[derive(Default)]
pub(super) struct Averages(Mutex<ByDatabase>);

/// Rates of one database per second, and the mean duration of its queries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DatabaseRates {
    pub(super) transactions: u64,
    pub(super) queries: u64,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) mean_query_us: u64,
}

impl DatabaseRates {
    /// Returns the values in the order of the columns of SHOW STATS.
    pub(super) fn columns(self) -> [u64; 5] {
        [
            self.transactions,
            self.queries,
            self.received,
            self.sent,
            self.mean_query_us,
        ]
    }
}

impl Averages {
    /// Returns the averages of one database per second, and the mean duration of a query in
    /// microseconds.
    pub(super) fn of(&self, database: &str) -> DatabaseRates {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.get(database).copied().unwrap_or_default();
        let seconds = PERIOD.as_secs();
        DatabaseRates {
            transactions: last.transactions / seconds,
            queries: last.queries / seconds,
            received: last.received / seconds,
            sent: last.sent / seconds,
            mean_query_us: last.busy_us.checked_div(last.queries).unwrap_or(0),
        }
    }

    fn set(&self, all: ByDatabase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Returns the current counters of all databases.
pub(super) fn totals(status: &Status) -> ByDatabase {
    let mut all = ByDatabase::new();
    let pooled = status
        .services
        .iter()
        .filter_map(|one| one.database.as_ref());
    for usage in pooled.flat_map(|pooled| &pooled.users) {
        let sum = all.entry(usage.database.clone()).or_default();
        sum.add(DatabaseCounters {
            transactions: usage.transactions_total,
            queries: usage.work.queries_total,
            received: usage.from_clients,
            sent: usage.to_clients,
            busy_us: usage.work.busy_us_total,
        });
    }
    all
}

/// Updates the averages once per period, until the process ends.
pub(super) async fn keep(averages: Arc<Averages>, control: ControlHandle) {
    let mut before: Option<ByDatabase> = None;
    let selection = StatusSelection::without_servers();
    while let Ok(status) = control.status(selection.clone()).await {
        let now = totals(&status);
        if let Some(before) = &before {
            let since = now.iter().map(|(name, totals)| {
                let then = before.get(name).copied().unwrap_or_default();
                (name.clone(), totals.since(then))
            });
            averages.set(since.collect());
        }
        before = Some(now);
        tokio::time::sleep(PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_of_a_second_and_a_query() {
        let averages = Averages::default();
        let totals = DatabaseCounters {
            transactions: 60,
            queries: 120,
            received: 6_000,
            sent: 12_000,
            busy_us: 240,
        };
        averages.set([("shop".to_owned(), totals)].into());
        let expect = DatabaseRates {
            transactions: 1,
            queries: 2,
            received: 100,
            sent: 200,
            mean_query_us: 2,
        };
        assert_eq!(averages.of("shop"), expect);
        assert_eq!(averages.of("other"), DatabaseRates::default());
    }
}

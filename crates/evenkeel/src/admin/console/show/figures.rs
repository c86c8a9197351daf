//! Builds the statistics by user, server and statement.

use super::{PooledService, Row, before, text};
use crate::admin::console::Console;
use crate::admin::console::error::ConsoleError;
use crate::status::{DigestStatus, UsageStatus, WorkStatus};

/// Returns the statistics of each user in each database.
pub(super) fn users(one: &PooledService<'_>) -> Vec<Row> {
    let row = |usage: &UsageStatus| {
        let mut row = vec![
            text(&one.service.name),
            text(&usage.user),
            text(&usage.database),
            text(usage.transactions_total),
        ];
        row.extend(counts(&usage.work));
        row.extend(times(&usage.work));
        row.extend([usage.from_clients, usage.to_clients].map(text));
        row
    };
    one.database.users.iter().map(row).collect()
}

/// Returns the statistics of each server of a service.
pub(super) fn servers(one: &PooledService<'_>) -> Vec<Row> {
    let row = |(name, work): (&String, &WorkStatus)| {
        let mut row = vec![text(&one.service.name), text(name)];
        row.extend(counts(work));
        row.extend(times(work));
        row
    };
    let servers = one.service.servers.iter();
    let known = servers.filter_map(|server| Some((&server.name, server.work.as_ref()?)));
    known.map(row).collect()
}

/// Returns the statistics of each statement.
pub(super) async fn digests(
    pooled: &[PooledService<'_>],
    console: &Console,
) -> Result<Vec<Row>, ConsoleError> {
    let mut rows = Vec::new();
    for PooledService { service, .. } in pooled {
        // A service that has been removed meanwhile has no statements.
        let digests = console.control.digests(&service.name).await?;
        let digests = digests.unwrap_or_default();
        rows.extend(digests.iter().map(|one| digest(&service.name, one)));
    }
    Ok(rows)
}

fn digest(service: &str, one: &DigestStatus) -> Row {
    let [queries, rest @ ..] = counts(&one.work);
    let on_replicas = text(one.on_replicas_total);
    let mut row = vec![text(service), text(&one.digest), queries, on_replicas];
    row.extend(rest);
    row.extend(times(&one.work));
    row.extend([one.first_seen_unix_ms, one.last_seen_unix_ms].map(|at_ms| before(at_ms, 0)));
    row.push(text(&one.statement));
    row
}

fn counts(work: &WorkStatus) -> [Option<String>; 4] {
    [
        work.queries_total,
        work.errors_total,
        work.rows_sent_total,
        work.rows_affected_total,
    ]
    .map(text)
}

fn times(work: &WorkStatus) -> [Option<String>; 3] {
    [work.busy_us_total, work.mean_us(), work.p95_us].map(text)
}

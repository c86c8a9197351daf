//! Formats pools and clients of a service as tables for a terminal.

use super::{aligned, bytes};
use crate::status::{
    ClientStatus, Connections, DatabaseStatus, DigestStatus, PinCauseStatus, PoolStatus,
    RuleStatus, UsageStatus, WorkStatus,
};

/// Number of pinning statements that `evenkeel status` shows.
const PIN_CAUSES_SHOWN: usize = 3;

/// Returns the output of `evenkeel pools`.
pub(in crate::cli) fn rendered(status: &DatabaseStatus) -> String {
    let mut lines = summary(status);
    let head = [
        "DATABASE",
        "USER",
        "SERVER",
        "CONNECTIONS",
        "IDLE",
        "OPENING",
        "WAITING",
        "LONGEST",
    ];
    lines.extend(table(head, status.pools.iter().map(pool_row)));
    let head = [
        "DATABASE",
        "USER",
        "TRANSACTIONS",
        "QUERIES",
        "ERRORS",
        "ROWS",
        "CHANGED",
        "BUSY",
        "P95",
        "RECEIVED",
        "SENT",
    ];
    lines.push(String::new());
    lines.extend(table(head, status.users.iter().map(usage_row)));
    lines.join("\n")
}

/// Returns the lines for a service with pools in the output of `evenkeel status`.
pub(super) fn summary(status: &DatabaseStatus) -> Vec<String> {
    let clients = status.clients.iter().filter(|one| one.count > 0);
    let clients: Vec<_> = clients
        .map(|one| format!("{} {}", one.count, one.what))
        .collect();
    let sum = |of: fn(&PoolStatus) -> u64| status.pools.iter().map(of).sum::<u64>();
    let mut lines = vec![
        format!(
            "  {} mode, {} server connections, {} idle; clients: {}",
            status.pool_mode,
            sum(|pool| pool.connections),
            sum(|pool| pool.idle),
            if clients.is_empty() {
                "none".to_owned()
            } else {
                clients.join(", ")
            }
        ),
        format!(
            "  {} queries ({} on replicas, {} retried), {} transactions ({} lost), {} wait \
             timeouts, {} failed logins",
            status.queries_total,
            status.on_replicas_total,
            status.retried_total,
            status.transactions_total,
            status.lost_transactions_total,
            status.wait_timeouts_total,
            status.failed_logins_total
        ),
    ];
    if !status.pins.is_empty() {
        let pins = status.pins.iter();
        let pins: Vec<_> = pins
            .map(|pin| format!("{} by {}", pin.count, pin.what))
            .collect();
        lines.push(format!("  pinned clients: {}", pins.join(", ")));
        let causes = status.pin_causes.iter().take(PIN_CAUSES_SHOWN);
        lines.extend(causes.map(|cause| format!("  pinned by {}", cause_line(cause))));
    }
    let problems = status.problems.iter();
    lines.extend(problems.map(|problem| format!("  problem: {problem}")));
    if !status.rules.is_empty() {
        let rules = status.rules.iter();
        let rules: Vec<_> = rules.map(rule).collect();
        lines.push(format!("  rules: {}", rules.join(", ")));
    }
    if status.all_paused {
        lines.push("  PAUSED: all databases".to_owned());
    } else if !status.paused.is_empty() {
        lines.push(format!("  PAUSED: {}", status.paused.join(", ")));
    }
    lines
}

fn cause_line(cause: &PinCauseStatus) -> String {
    let times = cause.pinned_total.unwrap_or_default();
    format!("{}: {}, {times} times", cause.text(), cause.described())
}

fn rule(rule: &RuleStatus) -> String {
    let not = if rule.active { "" } else { " (inactive)" };
    format!("{}{not} matched {} times", rule.name, rule.hits_total)
}

/// Returns the output of `evenkeel clients`.
pub(in crate::cli) fn clients(connections: &Connections) -> String {
    let head = [
        "ID",
        "USER",
        "DATABASE",
        "FROM",
        "APPLICATION",
        "STATE",
        "FOR",
        "AGE",
        "SERVER",
        "PID",
        "PINS",
        "PINNING STATEMENT",
    ];
    let mut lines = table(head, connections.clients.iter().map(client_row));
    let head = ["", "USER", "DATABASE", "SERVER", "PID", "AGE"];
    if !connections.idle.is_empty() {
        lines.push(String::new());
        let rows = connections.idle.iter().map(|one| {
            [
                "idle connection".to_owned(),
                one.user.clone(),
                one.database.clone(),
                one.server.clone(),
                number(one.server_pid),
                span(one.age_ms),
            ]
        });
        lines.extend(table(head, rows));
    }
    lines.join("\n")
}

fn pool_row(pool: &PoolStatus) -> [String; 8] {
    [
        pool.database.clone(),
        pool.user.clone(),
        pool.server.clone(),
        pool.connections.to_string(),
        pool.idle.to_string(),
        pool.opening.to_string(),
        pool.waiting.to_string(),
        span(pool.longest_wait_ms),
    ]
}

fn usage_row(usage: &UsageStatus) -> [String; 11] {
    let [queries, errors, rows, changed, busy, p95] = work_cells(&usage.work);
    [
        usage.database.clone(),
        usage.user.clone(),
        usage.transactions_total.to_string(),
        queries,
        errors,
        rows,
        changed,
        busy,
        p95,
        bytes(usage.from_clients),
        bytes(usage.to_clients),
    ]
}

fn work_cells(work: &WorkStatus) -> [String; 6] {
    [
        work.queries_total.to_string(),
        work.errors_total.to_string(),
        work.rows_sent_total.to_string(),
        work.rows_affected_total.to_string(),
        span(work.busy_us_total / 1_000),
        micros(work.p95_us),
    ]
}

/// Returns the output of `evenkeel digests`.
pub(in crate::cli) fn digests(digests: &[DigestStatus]) -> String {
    let head = [
        "DIGEST",
        "QUERIES",
        "ERRORS",
        "ROWS",
        "CHANGED",
        "BUSY",
        "P95",
        "ON REPLICAS",
        "STATEMENT",
    ];
    let row = |one: &DigestStatus| {
        let [queries, errors, rows, changed, busy, p95] = work_cells(&one.work);
        [
            one.digest.clone(),
            queries,
            errors,
            rows,
            changed,
            busy,
            p95,
            one.on_replicas_total.to_string(),
            one.statement.clone(),
        ]
    };
    table(head, digests.iter().map(row)).join("\n")
}

fn client_row(client: &ClientStatus) -> [String; 12] {
    [
        client.id.to_string(),
        client.user.clone(),
        client.database.clone(),
        client.peer.clone(),
        client.application.clone(),
        client.state.clone(),
        span(client.state_for_ms),
        span(client.age_ms),
        client.server.clone().unwrap_or_default(),
        number(client.server_pid),
        client.pin_names(),
        client
            .pinned_by
            .first()
            .map_or("", PinCauseStatus::text)
            .to_owned(),
    ]
}

pub(super) fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Vec<String> {
    let mut all = vec![head.map(str::to_owned)];
    all.extend(rows);
    aligned(&all)
}

fn number(number: Option<u32>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

fn micros(us: u64) -> String {
    match us {
        0..10_000 => format!("{us} us"),
        _ => span(us / 1_000),
    }
}

/// Formats a duration with more precision for short ones.
fn span(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{ms} ms"),
        10_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

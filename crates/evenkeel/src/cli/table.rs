//! Formats the status as a table for a terminal.

pub(super) mod http;
pub(super) mod pools;

use crate::status::{
    ClusterStatus, RoleName, RoleStatus, ServerState, ServerStatus, ServiceStatus, Status, age,
};

/// Returns the whole status as text.
pub(super) fn rendered(status: &Status) -> String {
    let mut lines = Vec::new();
    head(status, &mut lines);
    for cluster in &status.clusters {
        lines.push(String::new());
        cluster_lines(cluster, status.now_unix_ms, &mut lines);
    }
    for service in &status.services {
        lines.push(String::new());
        service_lines(service, status.now_unix_ms, &mut lines);
    }
    differences(status, &mut lines);
    lines.join("\n")
}

fn head(status: &Status, lines: &mut Vec<String>) {
    let engine = &status.engine;
    let up = ago(status.started_at_unix_ms, status.now_unix_ms);
    let workers = engine.workers.len();
    let reason = match engine.io_reason.as_str() {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    lines.push(format!(
        "evenkeel {}, pid {}, up {up}",
        status.version, status.pid
    ));
    lines.push(format!("engine   {}{reason}, {workers} workers", engine.io));
    for old in &status.upgrade {
        let left_s = old.left_ms / 1_000;
        let oldest = old.oldest_session_ms.map_or(String::new(), |oldest_ms| {
            format!(" (oldest {})", age(oldest_ms))
        });
        lines.push(format!(
            "upgrade  pid {} is draining, sessions left: {}{oldest}, terminated in {left_s} s",
            old.draining_pid, old.sessions_left
        ));
    }
    let loaded = ago(status.config.loaded_at_unix_ms, status.now_unix_ms);
    lines.push(match &status.config.path {
        Some(path) => format!("config   {path}, loaded {loaded} ago"),
        None => "config   from the command line".to_owned(),
    });
    for problem in &status.config.problems {
        let line = problem
            .line
            .map_or(String::new(), |line| format!("line {line}: "));
        lines.push(format!(
            "         {}: {line}{}",
            problem.severity, problem.message
        ));
    }
}

fn cluster_lines(cluster: &ClusterStatus, now_unix_ms: u64, lines: &mut Vec<String>) {
    let services = cluster.services.join(", ");
    let since = ago(cluster.since_unix_ms, now_unix_ms);
    let primary = match &cluster.primary {
        Some(primary) => format!("primary {primary}"),
        None => "no primary".to_owned(),
    };
    let named = match &cluster.operator_override {
        Some(named) => format!("; operator's override: {named}"),
        None => String::new(),
    };
    lines.push(format!(
        "cluster of {services}: {primary}, for {since}{named}"
    ));
    let problems = cluster.problems.iter();
    lines.extend(problems.map(|problem| format!("  problem: {problem}")));
}

fn service_lines(service: &ServiceStatus, now_unix_ms: u64, lines: &mut Vec<String>) {
    let ServiceStatus {
        name,
        protocol,
        balance,
        sessions,
        queue,
        rates,
        ..
    } = service;
    let reason = in_words(&service.reason);
    let since = ago(service.since_unix_ms, now_unix_ms);
    let listen = match service.listen.as_slice() {
        [] => String::from("reached by routes"),
        listen => format!("listens on {}", listen.join(", ")),
    };
    let role = match service.role.as_str() {
        "" | "any" => String::new(),
        role => format!(", role {role}"),
    };
    let cluster = match &service.cluster {
        Some(cluster) => format!(", cluster {cluster}"),
        None => String::new(),
    };
    lines.push(format!(
        "service {name}: {}{reason}, for {since}",
        service.state.name()
    ));
    lines.push(format!("  {listen}, {protocol}, {balance}{role}{cluster}"));
    lines.push(format!(
        "  sessions {} of {}, {} total, {} refused; queue {} of {}",
        sessions.current,
        sessions.limit,
        sessions.total,
        sessions.refused,
        queue.current,
        queue.limit
    ));
    lines.push(format!(
        "  last second: {} new sessions, {} from clients, {} to clients",
        rates.sessions,
        bytes(rates.bytes_in),
        bytes(rates.bytes_out)
    ));
    if let Some(pooled) = &service.database {
        lines.extend(pools::summary(pooled));
    }
    if let Some(http) = &service.http {
        lines.extend(http::summary(http, rates));
    }
    if service.server_counts.omitted > 0 {
        lines.push(server_counts(service));
        if service.servers.is_empty() {
            return;
        }
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(
        service
            .servers
            .iter()
            .map(|server| server_row(server, now_unix_ms)),
    );
    lines.extend(aligned(&rows));
}

/// Returns the line that stands for the servers that are not listed.
fn server_counts(service: &ServiceStatus) -> String {
    let counts = &service.server_counts;
    let states = [
        (counts.up, ServerState::Up),
        (counts.down, ServerState::Down),
        (counts.starting, ServerState::Starting),
        (counts.draining, ServerState::Draining),
    ];
    let states = states.iter().filter(|(number, _)| *number > 0);
    let states: Vec<_> = states
        .map(|(number, state)| format!("{number} {}", state.name()))
        .collect();
    format!(
        "  servers: {} ({}); {} not listed here, see `evenkeel status --service {}`",
        counts.total,
        states.join(", "),
        counts.omitted,
        service.name
    )
}

const HEAD: [&str; 9] = [
    "SERVER", "ADDRESS", "STATE", "SINCE", "WEIGHT", "SESSIONS", "TOTAL", "ERRORS", "WHY",
];

fn server_row(server: &ServerStatus, now_unix_ms: u64) -> [String; 9] {
    let errors = &server.errors;
    let mut state = server.state.name().to_owned();
    if let Some(role) = &server.role {
        state.push_str(&format!(", {}", role_words(role)));
    }
    if server.backup {
        state.push_str(", backup");
    }
    let sessions = match server.sessions.limit {
        Some(limit) => format!("{} of {limit}", server.sessions.current),
        None => server.sessions.current.to_string(),
    };
    let why = match (&server.monitor_problem, server.reason.as_str()) {
        (Some(problem), "") => problem.clone(),
        (Some(problem), reason) => format!("{reason}; monitor: {problem}"),
        (None, reason) => reason.to_owned(),
    };
    let why = match &server.unused_reason {
        Some(unused) if server.state == ServerState::Up => format!("not used here: {unused}"),
        _ => why,
    };
    [
        server.name.clone(),
        if server.address == server.name {
            "=".to_owned()
        } else {
            server.address.clone()
        },
        state,
        ago(server.since_unix_ms, now_unix_ms),
        weight(server),
        sessions,
        server.sessions.total.to_string(),
        (errors.connect + errors.early_close + errors.reset).to_string(),
        why,
    ]
}

fn role_words(role: &RoleStatus) -> String {
    match (role.role, role.lag_ms) {
        (RoleName::Replica, Some(0)) => "replica".to_owned(),
        (RoleName::Replica, Some(lag_ms)) => format!("replica, lag {lag_ms} ms"),
        (RoleName::Replica, None) => "replica, lag unknown".to_owned(),
        (RoleName::Unknown, _) => "role unknown".to_owned(),
        (other, _) => other.name().to_owned(),
    }
}

fn weight(server: &ServerStatus) -> String {
    // During slow start the weight in force is lower than the configured weight.
    if server.weight_effective < f64::from(server.weight) && server.weight_effective > 0.0 {
        return format!("{:.1} of {}", server.weight_effective, server.weight);
    }
    server.weight.to_string()
}

fn differences(status: &Status, lines: &mut Vec<String>) {
    let mut found = Vec::new();
    for service in &status.services {
        for server in &service.servers {
            if let Some(difference) = &server.config_override {
                found.push(format!("  {}/{}: {difference}", service.name, server.name));
            }
        }
    }
    if !found.is_empty() {
        lines.push(String::new());
        lines.push("differences from the config file:".to_owned());
        lines.extend(found);
    }
}

/// Returns the rows as lines, with columns as wide as the widest cell. The last column is not
/// padded.
fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; N]| {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn in_words(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(" ({reason})")
    }
}

/// Returns the time since a moment in its two largest units.
fn ago(then_unix_ms: u64, now_unix_ms: u64) -> String {
    if then_unix_ms == 0 {
        return "-".to_owned();
    }
    age(now_unix_ms.saturating_sub(then_unix_ms))
}

fn bytes(count: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1_000.0 && unit + 1 < units.len() {
        value /= 1_000.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests;

//! Tests of the status table.

use super::{ago, bytes, rendered};
use crate::status::{
    EngineStatus, ServerCounts, ServerState, ServerStatus, ServiceState, ServiceStatus, Status,
};

fn sample() -> Status {
    let server = |name: &str, state, differs: Option<&str>| ServerStatus {
        name: name.to_owned(),
        address: "10.0.0.1:3306".to_owned(),
        state,
        weight: 2,
        weight_effective: 2.0,
        since_unix_ms: 1_000_000,
        config_override: differs.map(str::to_owned),
        ..ServerStatus::default()
    };
    let mut down = server("db2-with-a-long-name", ServerState::Down, None);
    down.reason = "3 probes failed: connection refused".to_owned();
    down.weight_effective = 0.4;
    let service = ServiceStatus {
        name: "orders".to_owned(),
        state: ServiceState::Degraded,
        reason: "1 of 2 servers is down".to_owned(),
        since_unix_ms: 1_000_000,
        servers: vec![
            server("db1", ServerState::Up, Some("weight 2, in the file 1")),
            down,
        ],
        ..ServiceStatus::default()
    };
    Status {
        version: "1.0.0".to_owned(),
        started_at_unix_ms: 940_000,
        now_unix_ms: 1_005_000,
        engine: EngineStatus {
            io: "epoll".to_owned(),
            ..EngineStatus::default()
        },
        services: vec![service],
        ..Status::default()
    }
}

#[test]
fn the_table_shows_state_reason_age_and_difference() {
    let text = rendered(&sample());
    for part in [
        "up 1 min 5 s",
        "service orders: degraded (1 of 2 servers is down), for 5 s",
        "0.4 of 2",
        "3 probes failed: connection refused",
        "differences from the config file:\n  orders/db1: weight 2, in the file 1",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn columns_begin_at_the_same_place_in_every_row() {
    let text = rendered(&sample());
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("10.0.0.1:3306"))
        .collect();
    let head = text
        .lines()
        .find(|line| line.contains("ADDRESS"))
        .expect("a head");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row.find("10.0.0.1"), head.find("ADDRESS"), "{text}");
    }
}

#[test]
fn times_and_sizes_are_short() {
    assert_eq!(ago(0, 5), "-");
    assert_eq!(ago(10_000, 9_000), "0 s");
    assert_eq!(ago(1, 3_600_001), "1 h 0 min");
    assert_eq!(ago(1, 90_000_001), "1 d 1 h");
    assert_eq!(bytes(999), "999 B");
    assert_eq!(bytes(1_000), "1.0 kB");
    assert_eq!(bytes(2_500_000_000_000_000), "2500.0 TB");
}

#[test]
fn servers_that_are_not_listed_are_counted() {
    let mut status = sample();
    let service = &mut status.services[0];
    service.servers.remove(0);
    service.server_counts = ServerCounts {
        total: 10_000,
        up: 9_999,
        down: 1,
        omitted: 9_999,
        ..ServerCounts::default()
    };
    let text = rendered(&status);
    let line = "  servers: 10000 (9999 up, 1 down); 9999 not listed here, see `evenkeel status \
                --service orders`\n  SERVER";
    assert!(text.contains(line), "{text}");
    status.services[0].servers.clear();
    let text = rendered(&status);
    assert!(!text.contains("SERVER"), "{text}");
}

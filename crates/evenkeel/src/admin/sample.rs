//! Provides a status with a value in every field, for tests.

use crate::status::*;

/// Returns three services: one of databases with a server down, one of HTTP, and one with an
/// unusual name that is down.
pub(crate) fn status() -> Status {
    Status {
        version: "0.1.0".into(),
        pid: 4711,
        started_at_unix_ms: 1_767_225_600_000,
        now_unix_ms: 1_767_229_200_000,
        engine: EngineStatus {
            io: "io_uring".into(),
            io_reason: "supported by the kernel".into(),
            workers: vec![WorkerStatus { sessions: 5 }, WorkerStatus { sessions: 4 }],
            requests_not_logged_total: 8,
        },
        upgrade: vec![UpgradeStatus {
            draining_pid: 4001,
            sessions_left: 42,
            oldest_session_ms: Some(182_000),
            left_ms: 28_500,
        }],
        config: ConfigStatus {
            path: Some("/etc/evenkeel.toml".into()),
            loaded_at_unix_ms: 1_767_225_600_000,
            problems: Vec::new(),
        },
        services: vec![orders(), web(), awkward()],
        clusters: vec![ClusterStatus {
            services: vec!["orders".into()],
            primary: Some("db1".into()),
            since_unix_ms: 1_767_226_000_000,
            operator_override: Some("db1".into()),
            problems: vec!["db3 belongs to another cluster".into()],
        }],
        acme: Some(AcmeStatus {
            is_owner: true,
            certificates: vec![CertificateStatus {
                name: "shop.example".into(),
                expires_at_unix_ms: Some(1_775_001_600_000),
                next_order_at_unix_ms: 1_772_409_600_000,
                failures: 2,
                error: Some("no response within 30 s".into()),
            }],
        }),
        events: vec![event()],
    }
}

/// Returns the change that made db1 the primary.
pub(crate) fn event() -> TimelineEvent {
    TimelineEvent {
        id: 3,
        at_unix_ms: 1_767_226_000_000,
        kind: EventKind::Primary,
        severity: Severity::Warning,
        server: Some("db1".into()),
        service: Some("orders".into()),
        what: "db1 is the primary, replacing db2".into(),
        cause: "db2 is down".into(),
        sessions_terminated: Some(12),
        queued: 4,
    }
}

/// Returns two clients and an idle connection.
pub(crate) fn connections() -> Connections {
    Connections {
        service: "orders".into(),
        clients: vec![
            ClientStatus {
                id: 7,
                user: "ann".into(),
                database: "shop".into(),
                peer: "10.1.2.3:40000".into(),
                application: "shop-web".into(),
                state: "active".into(),
                age_ms: 60_000,
                state_for_ms: 1_500,
                server: Some("db1".into()),
                server_pid: Some(4711),
                pins: vec!["LISTEN".into()],
                pinned_by: vec![PinCauseStatus {
                    reason: "LISTEN".into(),
                    statement: "listen orders".into(),
                    ..PinCauseStatus::default()
                }],
                from_client: 100,
                to_client: 2_000,
            },
            ClientStatus {
                id: 8,
                user: "bob".into(),
                database: "shop".into(),
                peer: "unix".into(),
                state: "waiting".into(),
                age_ms: 20_000,
                state_for_ms: 2_500,
                ..ClientStatus::default()
            },
        ],
        idle: vec![IdleStatus {
            user: "ann".into(),
            database: "shop".into(),
            server: "db2".into(),
            server_pid: Some(4712),
            age_ms: 5_000,
        }],
    }
}

/// Returns the work of user ann in database shop, most of it by one statement.
fn work() -> WorkStatus {
    WorkStatus {
        queries_total: 1_000,
        errors_total: 3,
        rows_sent_total: 5_000,
        rows_affected_total: 70,
        busy_us_total: 2_000_000,
        p95_us: 4_500,
    }
}

/// Returns one statement, and the total of those that exceeded the capacity.
pub(crate) fn digests() -> Vec<DigestStatus> {
    let digest = |digest: &str, statement: &str, queries_total| DigestStatus {
        digest: digest.to_owned(),
        statement: statement.to_owned(),
        work: WorkStatus {
            queries_total,
            ..work()
        },
        on_replicas_total: 600,
        first_seen_unix_ms: 1_767_226_000_000,
        last_seen_unix_ms: 1_767_229_199_000,
    };
    vec![
        digest("00c0ffee00c0ffee", "select a from t where id = ?", 900),
        digest("other", "", 100),
    ]
}

/// Returns the status of a PostgreSQL service.
fn pooled() -> DatabaseStatus {
    let count = |what: &str, count| CountStatus {
        what: what.to_owned(),
        count,
    };
    let histogram = |value: u64| Histogram {
        bounds: vec![50, 100],
        counts: vec![1, 0, 1],
        sum: value,
        count: 2,
    };
    DatabaseStatus {
        pool_mode: "transaction".into(),
        pool_size: 20,
        pool_min_idle: 1,
        pools: vec![PoolStatus {
            user: "ann".into(),
            database: "shop".into(),
            server: "db1".into(),
            connections: 5,
            idle: 3,
            opening: 1,
            waiting: 2,
            longest_wait_ms: 2_500,
        }],
        users: vec![UsageStatus {
            user: "ann".into(),
            database: "shop".into(),
            work: work(),
            transactions_total: 400,
            from_clients: 50_000,
            to_clients: 600_000,
        }],
        digests: digests(),
        digests_max: 1_000,
        clients: vec![count("idle", 4), count("active", 1)],
        pins: vec![count("LISTEN", 1)],
        pin_causes: vec![PinCauseStatus {
            reason: "LISTEN".into(),
            statement: "listen orders".into(),
            pinned_total: Some(1),
            ..PinCauseStatus::default()
        }],
        problems: vec!["the account sees no triggers of the schema 'shop'".into()],
        rules: vec![RuleStatus {
            name: "reports".into(),
            active: true,
            action: "to db3, within 60000 ms".into(),
            hits_total: 7,
        }],
        all_paused: false,
        paused: vec!["old".into()],
        waiting_for_primary: 3,
        queries_total: 1_000,
        transactions_total: 400,
        on_replicas_total: 600,
        retried_total: 5,
        wait_timeouts_total: 4,
        lost_transactions_total: 2,
        failed_logins_total: 6,
        wait_us: histogram(300),
        query_us: histogram(400),
        transaction_us: histogram(500),
    }
}

fn server_counts() -> ServerCounts {
    ServerCounts {
        total: 3,
        up: 2,
        down: 1,
        ..ServerCounts::default()
    }
}

fn orders() -> ServiceStatus {
    ServiceStatus {
        name: "orders".into(),
        cluster: Some("db".into()),
        protocol: "postgres".into(),
        listen: vec!["0.0.0.0:3306".into(), "unix:/run/orders.sock".into()],
        balance: "least-connections".into(),
        role: "primary".into(),
        state: ServiceState::Degraded,
        reason: "1 of 3 servers is down".into(),
        since_unix_ms: 1_767_229_100_000,
        sessions: ServiceSessions {
            current: 9,
            limit: 10_000,
            total: 123_456,
            refused: 7,
        },
        queue: QueueStatus {
            current: 2,
            limit: 1_000,
            wait_ms_limit: 5_000,
            timed_out_total: 3,
        },
        bytes: Bytes {
            from_clients: 1_234_567,
            to_clients: 987_654_321,
        },
        errors: ServiceErrors {
            connect: 4,
            no_server: 11,
            queue_full: 12,
            queue_timeout: 13,
            limit: 14,
            proxy_header: 15,
            unrouted: 19,
            flooding: 23,
            reset_by_client: 5,
            reset_by_server: 16,
            idle_timeout: 17,
            terminated: 18,
        },
        rates: Rates {
            sessions: 12,
            bytes_in: 2_048,
            bytes_out: 1_048_576,
            requests: 0,
        },
        retries_total: 4,
        connect_us: Histogram {
            bounds: vec![100, 1_000, 10_000],
            counts: vec![5, 3, 1, 1],
            sum: 60_000,
            count: 10,
        },
        session_ms: Histogram {
            bounds: vec![10, 1_000],
            counts: vec![1, 2, 4],
            sum: 90_000,
            count: 7,
        },
        history: history(),
        servers: vec![db1(), db2(), db3()],
        server_counts: server_counts(),
        database: Some(pooled()),
        http: None,
    }
}

fn request_times(sum: u64) -> Histogram {
    Histogram {
        bounds: vec![500, 1_000],
        counts: vec![90, 20, 5],
        sum,
        count: 115,
    }
}

fn route() -> HttpRouteStatus {
    HttpRouteStatus {
        route: "shop.example/api/".into(),
        requests_total: 115,
        responses: vec![CountStatus {
            what: "2xx".into(),
            count: 115,
        }],
        request_us: request_times(60_000),
        copies: ["answered", "failed", "dropped"].map(copies).into(),
    }
}

fn copies(what: &str) -> CountStatus {
    CountStatus {
        what: what.into(),
        count: what.len() as u64,
    }
}

fn web() -> ServiceStatus {
    let responses = [
        ("1xx", 1),
        ("2xx", 100),
        ("3xx", 0),
        ("4xx", 10),
        ("5xx", 4),
    ];
    ServiceStatus {
        name: "web".into(),
        protocol: "http".into(),
        listen: vec!["0.0.0.0:80".into()],
        balance: "least-connections".into(),
        role: "any".into(),
        state: ServiceState::Up,
        since_unix_ms: 1_767_229_000_000,
        rates: Rates {
            requests: 1_500,
            ..Rates::default()
        },
        history: history(),
        http: Some(HttpStatus {
            requests_total: 115,
            responses: responses
                .map(|(what, count)| CountStatus {
                    what: what.to_owned(),
                    count,
                })
                .to_vec(),
            own_responses_total: 6,
            retried_total: 3,
            refused_total: 5,
            aborted_total: 2,
            tunnels_total: 1,
            pools: vec![HttpPoolStatus {
                server: "web1".into(),
                requests: 7,
                connections: 9,
                idle: 2,
                opening: 1,
                waiting: 2,
                longest_wait_ms: 40,
            }],
            all_pools: HttpPoolStatus {
                requests: 7,
                connections: 9,
                idle: 2,
                opening: 1,
                waiting: 2,
                longest_wait_ms: 40,
                ..HttpPoolStatus::default()
            },
            routes: vec![route()],
            request_us: request_times(80_000),
            first_byte_us: request_times(70_000),
        }),
        servers: vec![ServerStatus {
            name: "web1".into(),
            address: "10.0.0.5:8080".into(),
            weight: 1,
            state: ServerState::Up,
            ..ServerStatus::default()
        }],
        ..ServiceStatus::default()
    }
}

fn history() -> Vec<HistoryPoint> {
    let point = |second: u64| HistoryPoint {
        sessions_per_s: 10 + second % 7,
        bytes_per_s: 1_000_000 + 40_000 * (second % 11),
        current: 9,
        requests_per_s: 1_400 + 20 * (second % 9),
    };
    (0..60).map(point).collect()
}

fn db1() -> ServerStatus {
    ServerStatus {
        name: "db1".into(),
        address: "db1.internal:3306".into(),
        resolved: vec!["10.0.0.1:3306".into()],
        weight: 2,
        weight_effective: 1.5,
        file_weight: 1,
        state: ServerState::Up,
        reason: "2 probes in a row succeeded".into(),
        since_unix_ms: 1_767_226_000_000,
        last_probe: Some(LastProbe {
            ok: true,
            took_us: 812,
            at_unix_ms: 1_767_229_199_500,
            message: "11.8.3-MariaDB".into(),
        }),
        role: Some(RoleStatus {
            role: RoleName::Primary,
            since_unix_ms: 1_767_226_000_000,
            ..RoleStatus::default()
        }),
        sessions: ServerSessions {
            current: 9,
            limit: Some(200),
            total: 100_000,
        },
        bytes: Bytes {
            from_clients: 1_000_000,
            to_clients: 900_000_000,
        },
        work: Some(work()),
        latency_us: Some(640),
        history: history(),
        config_override: Some("weight 2 set by operator, 1 in the file".into()),
        ..ServerStatus::default()
    }
}

fn db2() -> ServerStatus {
    ServerStatus {
        name: "db2:3306".into(),
        address: "db2:3306".into(),
        weight: 1,
        file_weight: 1,
        state: ServerState::Down,
        reason: "3 probes failed: connection refused".into(),
        since_unix_ms: 1_767_229_100_000,
        last_probe: Some(LastProbe {
            ok: false,
            took_us: 90,
            at_unix_ms: 1_767_229_199_000,
            message: "connection refused".into(),
        }),
        errors: ServerErrors {
            connect: 4,
            early_close: 1,
            reset: 2,
        },
        ..ServerStatus::default()
    }
}

fn db3() -> ServerStatus {
    ServerStatus {
        name: "db3".into(),
        address: "unix:/run/mysqld/mysqld.sock".into(),
        weight: 1,
        weight_effective: 1.0,
        file_weight: 1,
        backup: true,
        state: ServerState::Draining,
        reason: "drained by operator".into(),
        since_unix_ms: 1_767_229_000_000,
        role: Some(RoleStatus {
            role: RoleName::Replica,
            reason: "replicates from db1".into(),
            lag_ms: Some(1_250),
            lag_bytes: Some(16_384),
            since_unix_ms: 1_767_229_000_000,
        }),
        unused_reason: Some("server is a replica".into()),
        monitor_problem: Some("access denied for 'monitor'@'10.0.0.9'".into()),
        config_override: Some("drained by operator".into()),
        ..ServerStatus::default()
    }
}

fn awkward() -> ServiceStatus {
    ServiceStatus {
        name: "a \"quoted\" \\ name\nwith <b>markup</b>".into(),
        protocol: "tcp".into(),
        reason: "no server available".into(),
        servers: vec![ServerStatus {
            name: "cache/1".into(),
            address: "[fd00::1]:6379".into(),
            ..ServerStatus::default()
        }],
        ..ServiceStatus::default()
    }
}

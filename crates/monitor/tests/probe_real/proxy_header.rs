//! Tests probes of servers that HAProxy serves to peers with a PROXY header only.

use std::{process::Command, time::Duration};

use evenkeel_monitor::probe::{
    HttpProbe, MysqlProbe, Observation, Outcome, PostgresProbe, Probe, Target, TcpProbe, Tls,
};
use evenkeel_monitor::{RoleMonitor, WatchError};
use evenkeel_wire::SqlProtocol;
use evenkeel_wire::proxy_header::ProxyVersion;

use crate::asking::{account, ask, target};
use crate::rig::{PATIENCE, Server, free_port, program, until};
use crate::{http, mysql, postgres};

/// Time limit without a header, for which HAProxy waits.
const LIMIT: Duration = Duration::from_millis(500);

/// Starts HAProxy in front of a port of this machine.
fn in_front_of(port: u16) -> Server {
    let server = Server::start(libc::SIGKILL, |dir, own| {
        let config = format!(
            "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 20s\n  \
             timeout server 20s\nlisten front\n  bind 127.0.0.1:{own} accept-proxy\n  \
             server only 127.0.0.1:{port}\n"
        );
        let path = dir.join("haproxy.cfg");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new(program("haproxy", &[], "haproxy"));
        command.arg("-db").arg("-f").arg(path);
        command
    });
    server.until("HAProxy listens", || {
        ask(
            Probe::Tcp(TcpProbe),
            None,
            Tls::Off,
            &target(&server),
            PATIENCE,
        )
        .outcome
            == Outcome::Passed
    });
    server
}

fn limit(proxy_header: Option<ProxyVersion>) -> Duration {
    proxy_header.map_or(LIMIT, |_| PATIENCE)
}

/// Checks that a probe of a server passes with both versions of the header, and not without one.
fn check(port: u16, probe: &Probe, tls: &Tls) {
    let front = in_front_of(port);
    let probed = |proxy_header| -> Observation {
        let target = Target {
            proxy_header,
            ..target(&front)
        };
        let account = Some(account("monitor", "secret"));
        ask(
            probe.clone(),
            account,
            tls.clone(),
            &target,
            limit(proxy_header),
        )
    };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let observation = probed(Some(version));
        let outcome = &observation.outcome;
        assert_eq!(*outcome, Outcome::Passed, "{version:?} {probe:?} {tls:?}");
    }
    let outcome = probed(None).outcome;
    assert!(
        matches!(outcome, Outcome::Failed(_)),
        "{probe:?} {outcome:?}"
    );
}

#[test]
fn an_http_and_a_tls_probe_begin_with_the_header() {
    let tls_port = free_port();
    let server = http::start(tls_port);
    let get = Probe::Http(HttpProbe {
        path: "/ok".to_owned(),
        host: None,
        status: Vec::new(),
        body: None,
    });
    check(server.port, &get, &Tls::Off);
    check(tls_port, &get, &Tls::Encrypt(None));
    check(tls_port, &Probe::Tcp(TcpProbe), &Tls::Encrypt(None));
}

#[test]
fn a_mysql_probe_begins_with_the_header() {
    let server = mysql::shared();
    let query = "SELECT 1".to_owned();
    let probe = Probe::Mysql(MysqlProbe {
        query,
        ..Default::default()
    });
    check(server.port, &probe, &Tls::Off);
    check(server.port, &probe, &Tls::Encrypt(None));
}

#[test]
fn a_postgres_probe_begins_with_the_header() {
    let server = postgres::shared();
    let query = "SELECT 1".to_owned();
    let probe = Probe::Postgres(PostgresProbe {
        query,
        ..Default::default()
    });
    check(server.port, &probe, &Tls::Off);
    check(server.port, &probe, &Tls::Encrypt(None));
}

#[test]
fn role_queries_of_mysql_begin_with_the_header_and_leave_no_relay() {
    let server = mysql::shared();
    let front = in_front_of(server.port);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let asked = |proxy_header| {
        let target = Target {
            proxy_header,
            ..target(&front)
        };
        let account = account("monitor", "secret");
        let mut monitor =
            RoleMonitor::new(SqlProtocol::Mysql, account, Tls::Off, None, || 0).unwrap();
        runtime.block_on(async {
            let first = monitor.ask(&target, false, limit(proxy_header)).await;
            let kept = monitor.ask(&target, false, limit(proxy_header)).await;
            monitor.goodbye().await;
            [first, kept]
        })
    };
    for answer in asked(Some(ProxyVersion::V2)) {
        // The account lacks a privilege: the server has answered.
        assert!(!matches!(answer, Err(WatchError::Away(_))), "{answer:?}");
    }
    for answer in asked(None) {
        assert!(matches!(answer, Err(WatchError::Away(_))), "{answer:?}");
    }
    until("the relay ends with its connection", || {
        runtime.block_on(tokio::task::yield_now());
        runtime.metrics().num_alive_tasks() == 0
    });
}

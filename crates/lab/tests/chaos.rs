//! Runs the chaos test for some seconds: no row is lost, stale or another session's, and nothing is
//! stuck.
//!
//! `make chaos` runs for ten minutes. TO SEE THIS RED: release a server connection to the pool
//! after its client has disconnected in the middle of a transaction.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use evenkeel_lab::chaos::{Ended, Options, run};
use evenkeel_lab::{ClusterKind, PoolMode, PoolerKind};

#[test]
fn nothing_goes_wrong_when_clients_and_servers_are_killed_frozen_and_promoted_under_io_uring() {
    faultless(&short(PoolerKind::IoUring));
}

#[test]
fn nothing_goes_wrong_when_clients_and_servers_are_killed_frozen_and_promoted_under_epoll() {
    let options = Options {
        seed: 2,
        ..short(PoolerKind::Epoll)
    };
    faultless(&options);
}

#[test]
fn sessions_that_keep_their_server_connection_go_wrong_as_little() {
    let options = Options {
        seconds: 10,
        seed: 3,
        mode: PoolMode::Session,
        // Each of them holds a server connection while it is connected.
        writers: 6,
        readers: 3,
        cruel: 4,
        ..short(PoolerKind::IoUring)
    };
    faultless(&options);
}

#[test]
fn nothing_goes_wrong_before_mariadb_servers_that_replicate_asynchronously() {
    faultless(&of(ClusterKind::Mariadb, PoolerKind::IoUring));
}

#[test]
fn nothing_goes_wrong_before_mysql_servers_that_replicate_asynchronously() {
    faultless(&of(ClusterKind::Mysql, PoolerKind::Epoll));
}

#[test]
fn nothing_goes_wrong_before_a_galera_cluster() {
    faultless(&of(ClusterKind::Galera, PoolerKind::Epoll));
}

#[test]
fn nothing_goes_wrong_before_a_group_that_elects_its_primary() {
    faultless(&of(ClusterKind::GroupReplication, PoolerKind::IoUring));
}

fn of(cluster: ClusterKind, pooler: PoolerKind) -> Options {
    Options {
        seconds: 12,
        cluster,
        ..short(pooler)
    }
}

fn short(pooler: PoolerKind) -> Options {
    Options {
        seconds: 20,
        calm_ms: 800,
        pooler,
        writers: 12,
        readers: 4,
        cruel: 4,
        ..Options::default()
    }
}

/// Runs the test without time limits, which need a quiet machine: `make chaos` checks them too.
fn faultless(options: &Options) {
    if let Some(why) = options.cluster.missing() {
        println!("skipped: {why}");
        return;
    }
    let played = run(options).or_else(|why| {
        assert!(!why.is::<Ended>(), "{why:#}");
        // Servers that did not return are no finding about Evenkeel: the test is repeated.
        println!("once more, since the servers failed: {why:#}");
        run(options)
    });
    let report = played.unwrap().unwrap();
    println!("{report}");
    let [acknowledged, ..] = report.writes;
    assert!(acknowledged > 100, "{report}");
    assert!(report.is_faultless(), "{report}");
    let changes = report.outages.iter().filter(|outage| outage.is_change);
    assert!(changes.count() >= 1, "{report}");
}

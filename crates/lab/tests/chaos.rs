//! Twenty seconds of everything at once: no row is lost, stale or another's, nothing is stuck.
//!
//! `make chaos` goes on for ten minutes. TO SEE THIS RED: give a server connection back to the pool
//! when its client has left in the middle of a transaction.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use evenkeel_lab::chaos::{Options, run};
use evenkeel_lab::{PoolMode, PoolerKind};

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
        // Each of them has a server connection for as long as it is there.
        writers: 6,
        readers: 3,
        cruel: 4,
        ..short(PoolerKind::IoUring)
    };
    faultless(&options);
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

/// Times are for a quiet machine: `make chaos` judges them too.
fn faultless(options: &Options) {
    let report = run(options).unwrap().unwrap();
    println!("{report}");
    let [acknowledged, ..] = report.writes;
    assert!(acknowledged > 100, "{report}");
    assert!(report.is_faultless(), "{report}");
    let changes = report.outages.iter().filter(|outage| outage.is_change);
    assert!(changes.count() >= 1, "{report}");
}

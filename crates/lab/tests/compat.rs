//! Runs a short part of other projects' tests, with the same result through Evenkeel as directly.
//!
//! `make compat` runs all of them. TO SEE THIS RED: do not let a SET follow its client.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use evenkeel_lab::compat::{Options, Suite, run};
use evenkeel_lab::{PoolMode, PoolerKind};

#[test]
fn a_dozen_regression_files_end_as_at_the_server_in_transaction_and_session_mode() {
    let options = Options {
        suite: vec![Suite::Regress],
        pooler: vec![PoolerKind::IoUring],
        mode: vec![PoolMode::Transaction, PoolMode::Session],
        ..short()
    };
    explained(Suite::Regress, &options);
}

#[test]
fn the_regression_files_end_as_at_the_server_without_io_uring_and_with_reads_on_a_replica() {
    let options = Options {
        suite: vec![Suite::Regress],
        pooler: vec![PoolerKind::Epoll],
        mode: vec![PoolMode::Transaction],
        reads: true,
        ..short()
    };
    explained(Suite::Regress, &options);
}

#[test]
fn pgbench_does_what_it_does_at_the_server_in_all_of_its_modes() {
    let options = Options {
        suite: vec![Suite::Pgbench],
        pooler: vec![PoolerKind::IoUring, PoolerKind::Epoll],
        mode: vec![PoolMode::Transaction],
        ..short()
    };
    explained(Suite::Pgbench, &options);
}

#[test]
fn clients_of_mysql_in_python_find_what_they_find_at_the_server() {
    explained(
        Suite::Pymysql,
        &of_clients(Suite::Pymysql, PoolerKind::IoUring),
    );
}

#[test]
fn clients_of_mysql_in_c_find_what_they_find_at_the_server() {
    let options = of_clients(Suite::ConnectorC, PoolerKind::Epoll);
    explained(Suite::ConnectorC, &options);
}

#[test]
fn what_sysbench_writes_with_a_seed_is_what_it_writes_at_the_server() {
    let options = of_clients(Suite::Sysbench, PoolerKind::IoUring);
    explained(Suite::Sysbench, &options);
}

#[test]
fn drivers_of_postgres_do_what_they_do_at_the_server_and_are_served_while_others_are_idle() {
    let suite = Suite::DriversPostgres;
    explained(suite, &of_clients(suite, PoolerKind::IoUring));
}

#[test]
fn drivers_of_mysql_do_what_they_do_at_the_server_and_are_served_while_others_are_idle() {
    let suite = Suite::DriversMysql;
    explained(suite, &of_clients(suite, PoolerKind::Epoll));
}

fn of_clients(suite: Suite, pooler: PoolerKind) -> Options {
    Options {
        suite: vec![suite],
        pooler: vec![pooler],
        mode: vec![PoolMode::Transaction],
        ..short()
    }
}

fn short() -> Options {
    Options {
        short: true,
        ..Options::default()
    }
}

/// Runs a suite; prints a message and skips it if this machine cannot run it.
fn explained(suite: Suite, options: &Options) {
    if let Some(why) = suite.missing(options) {
        println!("skipped: {why}");
        return;
    }
    let comparisons = run(options).unwrap();
    assert!(!comparisons.is_empty());
    for comparison in comparisons {
        assert!(comparison.passed > 0, "{comparison}");
        assert!(comparison.is_explained(), "{comparison}");
        println!("{comparison}");
    }
}

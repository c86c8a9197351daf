//! Tests of replicas that lag, freeze, stop, die and rejoin, while reads continue.

use std::time::Duration;

use evenkeel_lab::{ClusterKind, ReadProbe, Server};

use crate::harness::service;
use crate::test_bed::{TestBed, assert_all_read};

/// Both kinds run concurrently, as the tests mostly wait.
#[test]
fn replicas_of_mariadb_and_postgres_leave_and_come_back_and_no_read_fails() {
    std::thread::scope(|scope| {
        for kind in [ClusterKind::Mariadb, ClusterKind::Postgres] {
            scope.spawn(move || comings_and_goings(kind));
        }
    });
}

fn comings_and_goings(kind: ClusterKind) {
    let bed = TestBed::set_with(kind, "lag_ms_max = 900").unwrap();
    // A lag shows only while a client writes.
    let (writer, reader) = (bed.writer(), bed.reader());
    let [_, one, other] = &bed.scenario.servers[..] else {
        panic!("three servers")
    };
    leaves_and_returns(
        &bed,
        &reader,
        one,
        || one.lag(Duration::from_secs(3)).unwrap(),
        || one.lag(Duration::ZERO).unwrap(),
    );
    leaves_and_returns(
        &bed,
        &reader,
        other,
        || other.stop_replication().unwrap(),
        || other.start_replication().unwrap(),
    );
    bed.wait_writes(&writer);
    assert_all_read(reader);
    let reader = bed.reader();
    leaves_and_returns(
        &bed,
        &reader,
        one,
        || one.kill().unwrap(),
        || one.start().unwrap(),
    );
    let log = writer.finish();
    assert!(log.verify(bed.server(0)).unwrap().is_faultless());
    // A read that was at the replica when it died may fail.
    let readings = reader.finish();
    let failed = readings.iter().filter(|one| one.outcome.is_err()).count();
    assert!(failed <= 1, "{failed} of {}", readings.len());
}

#[test]
fn a_frozen_replica_of_mariadb_costs_no_read() {
    let bed = TestBed::set_up(ClusterKind::Mariadb).unwrap();
    let reader = bed.reader();
    let replica = bed.server(1);
    bed.wait_read_by(&reader, replica);
    leaves_and_returns(
        &bed,
        &reader,
        replica,
        || replica.freeze().unwrap(),
        || replica.thaw().unwrap(),
    );
    let readings = reader.finish();
    let failed: Vec<_> = readings.iter().filter(|one| one.outcome.is_err()).collect();
    assert!(failed.len() <= 1, "{failed:#?}");
}

#[test]
fn the_primary_serves_reads_only_while_no_replica_can_and_only_if_told_to() {
    let bed = TestBed::set_with(ClusterKind::Mariadb, "fallback = \"primary\"").unwrap();
    let reader = bed.reader();
    let [primary, one, other] = &bed.scenario.servers[..] else {
        panic!("three servers")
    };
    bed.wait_read_by(&reader, one);
    bed.wait_read_by(&reader, other);
    bed.wait_not_read_by(&reader, primary);
    one.stop_replication().unwrap();
    other.stop_replication().unwrap();
    bed.wait_read_by(&reader, primary);
    bed.wait_not_read_by(&reader, one);
    let reads = service(&bed.balancer.status().unwrap(), "reads");
    assert_eq!(reads["state"], "degraded", "{reads:#}");
    one.start_replication().unwrap();
    bed.wait_read_by(&reader, one);
    bed.wait_not_read_by(&reader, primary);
    assert_all_read(reader);
}

fn leaves_and_returns(
    bed: &TestBed,
    reader: &ReadProbe,
    replica: &Server,
    hurt: impl Fn(),
    heal: impl Fn(),
) {
    bed.wait_read_by(reader, replica);
    hurt();
    bed.wait_not_read_by(reader, replica);
    bed.wait("a reason", || bed.listed("reads", replica)["reason"] != "");
    heal();
    bed.wait_read_by(reader, replica);
    bed.wait_whole();
}

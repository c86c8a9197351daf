//! What runs in the rivals' root file system: MySQL, PostgreSQL 18, other balancers.
//!
//! Where that is missing (`cargo xtask rivals` makes it, as root) each test says so and passes.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use std::time::Duration;

use evenkeel_lab::{GroupOptions, Lab, MysqlOptions, PostgresOptions, procfs, rootfs};

const LIMIT: Duration = Duration::from_secs(60);

/// Whether the test is to be skipped; says so.
fn skipped() -> bool {
    let missing = rootfs::missing();
    if let Some(why) = &missing {
        println!("skipped: {why}");
    }
    missing.is_some()
}

#[test]
fn a_row_written_on_the_mysql_primary_is_on_the_replica_and_either_may_be_hurt() {
    if skipped() {
        return;
    }
    let lab = Lab::new("test-mysql").unwrap();
    let options = MysqlOptions {
        replicas: 1,
        sbtest_rows: Some(100),
        ..Default::default()
    };
    let cluster = lab.mysql(options).unwrap();
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    assert!(primary.sql("SELECT @@version").unwrap().starts_with("9."));
    let count = "SELECT COUNT(*) FROM sbtest.sbtest4";
    assert_eq!(replica.sql(count).unwrap(), "100");
    assert_eq!(replica.sql("SELECT @@super_read_only").unwrap(), "1");

    let pids = replica.pids();
    replica.freeze().unwrap();
    replica.thaw().unwrap();
    replica.kill().unwrap();
    assert!(!pids.iter().any(|pid| procfs::is_alive(*pid)));
    primary
        .sql("CREATE TABLE sbtest.t (id INT PRIMARY KEY); INSERT INTO sbtest.t VALUES (1)")
        .unwrap();
    replica.start().unwrap();
    cluster.wait_caught_up().unwrap();
    assert_eq!(replica.sql("SELECT id FROM sbtest.t").unwrap(), "1");
    assert_eq!(replica.sql("SELECT @@super_read_only").unwrap(), "1");
}

#[test]
fn postgres_18_streams_to_its_replica() {
    if skipped() {
        return;
    }
    let lab = Lab::new("test-postgres-18").unwrap();
    let options = PostgresOptions {
        replicas: 1,
        version: Some(18),
        ..Default::default()
    };
    let cluster = lab.postgres(options).unwrap();
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    let version = primary.sql("SHOW server_version_num").unwrap();
    assert!(version.starts_with("18"), "{version}");
    primary
        .sql("CREATE TABLE t (id int); INSERT INTO t VALUES (7)")
        .unwrap();
    cluster.wait_caught_up().unwrap();
    assert_eq!(replica.sql("SELECT id FROM t").unwrap(), "7");
}

#[test]
fn a_group_elects_another_primary_and_a_killed_member_rejoins() {
    if skipped() {
        return;
    }
    let lab = Lab::new("test-group").unwrap();
    let group = lab.group_replication(GroupOptions::default()).unwrap();
    let first = group.primary().unwrap();
    assert_eq!(first.name, "group-1");
    first
        .sql("CREATE TABLE sbtest.t (id INT PRIMARY KEY); INSERT INTO sbtest.t VALUES (1)")
        .unwrap();
    first.kill().unwrap();
    let second = group.wait_primary(LIMIT).unwrap();
    assert_ne!(second.name, first.name);
    second.sql("INSERT INTO sbtest.t VALUES (2)").unwrap();
    first.start().unwrap();
    group.wait_caught_up().unwrap();
    assert_eq!(first.sql("SELECT MAX(id) FROM sbtest.t").unwrap(), "2");
    assert_eq!(group.primaries().len(), 1);

    group.make_primary(&first).unwrap();
    assert_eq!(group.primary().unwrap().name, first.name);
    group
        .members
        .iter()
        .for_each(|member| member.kill().unwrap());
    first.start().unwrap();
    second.start().unwrap();
    first.sql("INSERT INTO sbtest.t VALUES (3)").unwrap();
    group.wait_caught_up().unwrap();
    assert_eq!(second.sql("SELECT MAX(id) FROM sbtest.t").unwrap(), "3");
}

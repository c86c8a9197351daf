//! Tests of the programs in the rivals' root file system: MySQL, PostgreSQL 18, other balancers.
//!
//! If it is missing (`cargo xtask rivals` creates it, as root), each test prints that and passes.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use std::fs;
use std::net::SocketAddr;

use evenkeel_lab::{
    Balancer, Driver, GroupOptions, Haproxy, Lab, MysqlCluster, MysqlOptions, MysqlRouter, Odyssey,
    Pgbouncer, Pgpool, PostgresOptions, Server, Service, Sysbench, procfs, rootfs,
};
use harness::{LIMIT, loopback, wait_state, wait_until};

#[path = "harness/harness.rs"]
mod harness;

const ROWS: u32 = 100;

#[test]
fn a_row_written_on_the_mysql_primary_is_on_the_replica_and_rivals_answer_in_front() {
    let Some((_lab, cluster)) = mysql("test-mysql") else {
        return;
    };
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    assert!(primary.sql("SELECT @@version").unwrap().starts_with("9."));
    let count = "SELECT COUNT(*) FROM sbtest.sbtest4";
    assert_eq!(replica.sql(count).unwrap(), ROWS.to_string());

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

    let servers = [primary.address, replica.address];
    answers("haproxy", Driver::Mysql, |listen| {
        Haproxy::newest_tcp(&servers, listen)
    });
    answers("mysqlrouter", Driver::Mysql, |listen| {
        MysqlRouter::start(&servers, listen)
    });
}

#[test]
fn mysql_changes_its_primary_planned_and_after_a_death_and_what_diverged_is_given_up() {
    let Some((lab, cluster)) = mysql("test-mysql-promotion") else {
        return;
    };
    let (old, new) = (&cluster.primary, &cluster.replicas[0]);
    old.sql("CREATE TABLE sbtest.t (id INT PRIMARY KEY); INSERT INTO sbtest.t VALUES (1)")
        .unwrap();
    let planned = lab.promote(new).unwrap();
    assert!(planned.demoted_at.unwrap() <= planned.writable_at);
    assert_eq!(planned.followers, std::slice::from_ref(&old.name));
    new.sql("INSERT INTO sbtest.t VALUES (2)").unwrap();
    old.wait_for(new, LIMIT).unwrap();
    assert_eq!(old.sql("SELECT MAX(id) FROM sbtest.t").unwrap(), "2");
    assert!(old.sql("INSERT INTO sbtest.t VALUES (3)").is_err());

    new.kill().unwrap();
    assert_eq!(lab.fail_over(old).unwrap().primary, old.name);
    old.sql("INSERT INTO sbtest.t VALUES (4)").unwrap();
    new.start().unwrap();
    new.sql("INSERT INTO sbtest.t VALUES (5)").unwrap();
    lab.rejoin(new).unwrap();
    new.wait_for(old, LIMIT).unwrap();
    let ids = "SELECT GROUP_CONCAT(id ORDER BY id) FROM sbtest.t";
    assert_eq!(new.sql(ids).unwrap(), "1,2,4");
    assert_eq!(new.sql("SELECT @@super_read_only").unwrap(), "1");
}

#[test]
fn the_mysql_probe_logs_in_with_caching_sha2_password_in_plaintext_and_over_tls() {
    let Some((_lab, cluster)) = mysql("test-mysql-probe") else {
        return;
    };
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    primary
        .sql(
            "CREATE USER monitor_tls@127.0.0.1 IDENTIFIED BY 'monitor' REQUIRE SSL; \
             CREATE USER stranger@127.0.0.1 IDENTIFIED BY 'another password'",
        )
        .unwrap();
    cluster.wait_caught_up().unwrap();
    let plugins = "SELECT DISTINCT plugin FROM mysql.user WHERE user IN ('monitor', 'monitor_tls')";
    assert_eq!(primary.sql(plugins).unwrap(), "caching_sha2_password");

    let service = |name: &str, server, user: &str, mode: &str| {
        let toml = Service::new(name, loopback(), "mysql", std::slice::from_ref(server)).toml();
        let toml = toml.replace("user = \"monitor\"", &format!("user = \"{user}\""));
        format!("{toml}[service.server_tls]\nmode = \"{mode}\"\n")
    };
    let config = [
        service("plain", primary, "monitor", "off"),
        service("encrypted", replica, "monitor_tls", "encrypt"),
    ];
    let balancer = Balancer::start(&config.concat()).unwrap();
    wait_until(&balancer, "both monitors logged in", || {
        logins(primary, "monitor") > 1 && logins(replica, "monitor_tls") > 1
    });
    // A restarted server has lost its password cache, so the next login needs the full exchange.
    primary.kill().unwrap();
    wait_state(&balancer, &format!("plain/{}", primary.name), "down");
    primary.start().unwrap();
    wait_until(&balancer, "the monitor logged in again", || {
        logins(primary, "monitor") > 1
    });
    let log = balancer.log();
    assert!(!log.contains("refused the monitor account"), "{log}");

    let refused = [
        service("wrong", primary, "stranger", "off"),
        service("untold", replica, "monitor_tls", "off"),
    ];
    let balancer = Balancer::start(&refused.concat()).unwrap();
    for account in ["stranger", "monitor_tls"] {
        let refusal = format!("refused the monitor account '{account}'");
        wait_until(&balancer, &refusal, || balancer.log().contains(&refusal));
    }
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
    for member in &group.members {
        member.kill().unwrap();
    }
    first.start().unwrap();
    second.start().unwrap();
    first.sql("INSERT INTO sbtest.t VALUES (3)").unwrap();
    group.wait_caught_up().unwrap();
    assert_eq!(second.sql("SELECT MAX(id) FROM sbtest.t").unwrap(), "3");
}

#[test]
fn postgres_18_streams_to_its_replica_and_rivals_answer_in_front() {
    if skipped() {
        return;
    }
    let lab = Lab::new("test-postgres-18").unwrap();
    let options = PostgresOptions {
        replicas: 1,
        sbtest_rows: Some(ROWS),
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

    let servers = [primary.address, replica.address];
    answers("pgbouncer", Driver::Pgsql, |listen| {
        Pgbouncer::start(primary.address, listen)
    });
    answers("odyssey", Driver::Pgsql, |listen| {
        Odyssey::start(&servers, listen)
    });
    answers("pgpool", Driver::Pgsql, |listen| {
        let pgpool = Pgpool::start(&servers, listen)?;
        if let Some(pgpool) = &pgpool {
            assert!(!makes_shared_memory_here(&pgpool.pids()));
        }
        Ok(pgpool)
    });
}

/// Returns whether the root file system is missing, and prints it.
fn skipped() -> bool {
    let missing = rootfs::missing();
    if let Some(why) = &missing {
        println!("skipped: {why}");
    }
    missing.is_some()
}

/// Starts a primary and a replica; returns `None` if that is impossible here.
fn mysql(name: &str) -> Option<(Lab, MysqlCluster)> {
    if skipped() {
        return None;
    }
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return None;
    }
    let lab = Lab::new(name).unwrap();
    let options = MysqlOptions {
        replicas: 1,
        sbtest_rows: Some(ROWS),
        ..Default::default()
    };
    let cluster = lab.mysql(options).unwrap();
    Some((lab, cluster))
}

/// Returns whether one of these processes created System V shared memory that would outlive a kill.
fn makes_shared_memory_here(pids: &[u32]) -> bool {
    let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let mut creators = segments
        .lines()
        .filter_map(|line| line.split_whitespace().nth(4)?.parse().ok());
    creators.any(|creator| pids.contains(&creator))
}

/// Returns the number of logins of this account since the server started; rejected logins do not
/// count.
fn logins(server: &Server, user: &str) -> u32 {
    let count = format!(
        "SELECT COALESCE(SUM(total_connections), 0) FROM performance_schema.accounts \
         WHERE user = '{user}'"
    );
    server.sql(&count).unwrap().parse().unwrap()
}

/// Starts a rival, runs queries through it, and stops it.
fn answers<R>(name: &str, driver: Driver, start: impl Fn(SocketAddr) -> anyhow::Result<Option<R>>) {
    let listen = loopback();
    let Some(_rival) = start(listen).unwrap() else {
        println!("skipped: {name} is not installed");
        return;
    };
    let run = Sysbench {
        threads: 2,
        seconds: 1,
        rows: ROWS,
        ..Sysbench::new(driver, listen)
    };
    let report = run.run().unwrap();
    assert!(report.queries > 10, "{name}: {report:?}");
}

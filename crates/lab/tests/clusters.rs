//! Tests of clusters with real servers: changes of primary, rejoins, network partitions, rows.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use std::env;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use evenkeel_lab::{
    Driver, GaleraOptions, Lab, MariadbOptions, PostgresOptions, RingOptions, Role, Server,
    WriteProbe, WriteProbeOptions, eventually, own_uid,
};

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_galera_cluster_takes_writes_on_any_node_and_killed_nodes_rejoin() {
    let lab = Lab::new("test-galera").unwrap();
    let cluster = lab.galera(GaleraOptions::default()).unwrap();
    let [first, second, third] = &cluster.nodes[..] else {
        panic!("three nodes")
    };
    first
        .sql("CREATE TABLE sbtest.t (id INT PRIMARY KEY); INSERT INTO sbtest.t VALUES (1)")
        .unwrap();
    third.kill().unwrap();
    second.sql("INSERT INTO sbtest.t VALUES (2)").unwrap();
    third.start().unwrap();
    cluster.wait_size(3).unwrap();
    third.sql("INSERT INTO sbtest.t VALUES (3)").unwrap();
    cluster.wait_synced().unwrap();
    for node in &cluster.nodes {
        assert_eq!(ids(node, "sbtest.t"), "1 2 3", "{node:?}");
    }

    // All die, and the last one has more transactions than the others.
    first.kill().unwrap();
    cluster.wait_size(2).unwrap();
    second.stop().unwrap();
    cluster.wait_size(1).unwrap();
    third.sql("INSERT INTO sbtest.t VALUES (4)").unwrap();
    third.kill().unwrap();
    std::thread::scope(|scope| {
        cluster
            .nodes
            .iter()
            .map(|node| scope.spawn(|| node.start().unwrap()))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    cluster.wait_size(3).unwrap();
    cluster.wait_synced().unwrap();
    for node in &cluster.nodes {
        assert_eq!(ids(node, "sbtest.t"), "1 2 3 4", "{node:?}");
    }
    assert!(lab.promote(first).is_err(), "all nodes take writes already");
}

#[test]
fn what_is_written_on_any_server_of_a_ring_goes_round() {
    let lab = Lab::new("test-ring").unwrap();
    let ring = lab.ring(RingOptions::default()).unwrap();
    ring.nodes[0]
        .sql("CREATE TABLE sbtest.t (id INT PRIMARY KEY)")
        .unwrap();
    ring.wait_caught_up().unwrap();
    for (number, node) in (1..).zip(&ring.nodes) {
        node.sql(&format!("INSERT INTO sbtest.t VALUES ({number})"))
            .unwrap();
    }
    ring.nodes[1].kill().unwrap();
    ring.nodes[0]
        .sql("INSERT INTO sbtest.t VALUES (4)")
        .unwrap();
    ring.nodes[1].start().unwrap();
    ring.wait_caught_up().unwrap();
    for node in &ring.nodes {
        assert_eq!(ids(node, "sbtest.t"), "1 2 3 4", "{node:?}");
        assert_eq!(node.role(), Role::Member);
    }
}

#[test]
fn the_primary_of_mariadb_servers_changes_and_rows_stay() {
    let lab = Lab::new("test-primary").unwrap();
    let options = MariadbOptions {
        replicas: 2,
        ..Default::default()
    };
    let servers = lab.mariadb(options).unwrap().servers();
    servers[0]
        .sql("CREATE TABLE sbtest.t (id INT PRIMARY KEY)")
        .unwrap();
    assert_primary_changes(&lab, &servers, "sbtest.t");
    assert_replica_lags(&lab, &servers, "sbtest.t", Duration::from_secs(2));
    assert_probe_sees_outage(&lab, Driver::Mysql, &servers);
}

#[test]
fn the_primary_of_postgres_servers_changes_and_rows_stay() {
    let lab = Lab::new("test-primary").unwrap();
    let options = PostgresOptions {
        replicas: 2,
        ..Default::default()
    };
    let servers = lab.postgres(options).unwrap().servers();
    servers[0].sql("CREATE TABLE t (id int)").unwrap();
    assert_primary_changes(&lab, &servers, "t");
    assert_replica_lags(&lab, &servers, "t", Duration::from_secs(2));
    assert_probe_sees_outage(&lab, Driver::Pgsql, &servers);
}

#[test]
fn a_connection_to_a_server_that_is_cut_off_hangs_until_it_is_joined_again() {
    if !is_root() {
        return;
    }
    let lab = Lab::in_namespaces("test-cut").unwrap();
    let server = lab.web(1).unwrap().remove(0);
    let mut client = TcpStream::connect(server.address).unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    ask(&mut client).unwrap();

    server.cut_off().unwrap();
    let silence = ask(&mut client).unwrap_err().kind();
    assert!(
        matches!(silence, ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{silence}"
    );
    let refusal = TcpStream::connect_timeout(&server.address, Duration::from_millis(300));
    assert_eq!(refusal.unwrap_err().kind(), ErrorKind::TimedOut);

    server.join_again().unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client.read_exact(&mut [0; 8]).unwrap();
    // Kernels without netem report it.
    if let Err(error) = server.delay_packets(Duration::from_millis(20)) {
        assert!(format!("{error:#}").contains("netem"), "{error:#}");
    }

    // While this process lives no other lab removes its leftovers.
    let SocketAddr::V4(address) = server.address else {
        panic!("an IPv4 address")
    };
    let network = address.ip().octets()[2];
    let namespace = format!("/run/netns/evenkeel-lab-{}-{network}-2", std::process::id());
    assert!(Path::new(&namespace).exists(), "{namespace}");
    drop(lab);
    assert!(!Path::new(&namespace).exists(), "{namespace}");
}

#[test]
fn a_replica_that_is_cut_off_misses_writes_and_gets_them_when_it_is_joined_again() {
    if !is_root() {
        return;
    }
    let lab = Lab::in_namespaces("test-parted").unwrap();
    let mariadb = lab.mariadb(MariadbOptions {
        replicas: 1,
        ..Default::default()
    });
    let postgres = lab.postgres(PostgresOptions {
        replicas: 1,
        ..Default::default()
    });
    for (servers, table) in [
        (mariadb.unwrap().servers(), "sbtest.t"),
        (postgres.unwrap().servers(), "t"),
    ] {
        let [primary, replica] = &servers[..] else {
            panic!("two servers")
        };
        primary
            .sql(&format!("CREATE TABLE {table} (id int)"))
            .unwrap();
        replica.wait_for(primary, LIMIT).unwrap();
        replica.cut_off().unwrap();
        insert(primary, table, 1);
        let short = Duration::from_millis(300);
        assert!(replica.wait_for(primary, short).is_err());
        replica.join_again().unwrap();
        replica.wait_for(primary, LIMIT).unwrap();
        assert_eq!(ids(replica, table), "1");
    }
}

#[test]
fn namespaces_are_gone_after_the_process_of_their_lab_is_killed() {
    if !is_root() {
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "child_process_that_holds_namespaces",
            "--nocapture",
        ])
        .env("EVENKEEL_LAB_TEST_CHILD", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines
        .find(|line| line.as_ref().is_ok_and(|line| line == "LAB"))
        .unwrap()
        .unwrap();
    let (namespaces, bridge) = names_of(child.id());
    assert!(namespaces > 0 && bridge, "{namespaces} {bridge}");
    child.kill().unwrap();
    child.wait().unwrap();
    eventually(LIMIT, "the end of namespaces and bridge", || {
        Ok((names_of(child.id()) == (0, false)).then_some(()))
    })
    .unwrap();
}

#[test]
fn namespaces_of_a_lab_whose_reaper_was_killed_too_are_removed_by_the_next_lab() {
    if !is_root() {
        return;
    }
    // No process has this id: it is above the kernel's maximum.
    let dead = 4_194_304;
    ip(&format!("netns add evenkeel-lab-{dead}-9-2"));
    ip(&format!("link add ekb9-{dead:x} type bridge"));
    assert_eq!(names_of(dead), (1, true));
    let _lab = Lab::in_namespaces("test-stale").unwrap();
    assert_eq!(names_of(dead), (0, false));
}

/// A log contains the creation of a temporary table, but not the death that ended it. A server that
/// applies the whole log keeps the table, for that server id and thread number.
#[test]
fn a_mariadb_that_applies_all_of_a_log_has_every_row_of_one_that_died_with_temporary_tables() {
    const THREAD: &str = "SET pseudo_thread_id = 1000000";
    let lab = Lab::new("test-temporary").unwrap();
    let cluster = lab.mariadb(MariadbOptions {
        replicas: 2,
        ..MariadbOptions::default()
    });
    let cluster = cluster.unwrap();
    let old = &cluster.primary;
    old.sql("CREATE TABLE sbtest.t (id INT PRIMARY KEY)")
        .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let table = "CREATE TEMPORARY TABLE sbtest.t (id INT PRIMARY KEY)";
            let ended = old.sql(&format!("{THREAD}; {table}; DO SLEEP(60)"));
            assert!(ended.is_err(), "it died too late");
        });
        eventually(LIMIT, "temporary tables at a replica", || {
            let open = cluster.replicas[0].sql("SHOW STATUS LIKE 'Slave_open_temp_tables'")?;
            Ok(open.ends_with('1').then_some(()))
        })
        .unwrap();
        cluster.wait_caught_up().unwrap();
        old.kill().unwrap();
    });
    lab.fail_over(old).unwrap();
    let new = lab.primary_of(old).unwrap();
    lab.rejoin(old).unwrap();
    lab.promote(old).unwrap();
    old.sql(&format!("{THREAD}; INSERT INTO sbtest.t VALUES (1)"))
        .unwrap();
    lab.promote(&new).unwrap();

    let mut replicas = cluster.replicas.iter();
    let other = replicas.find(|replica| replica.name != new.name);
    let other = other.unwrap();
    // Now the server must be rebuilt.
    insert(other, "sbtest.t", 13);
    lab.rejoin(other).unwrap();
    assert_all_have(&[old, other], &new, "sbtest.t", "1");
}

/// Not an independent test: the process that a test above kills.
#[test]
fn child_process_that_holds_namespaces() {
    if env::var_os("EVENKEEL_LAB_TEST_CHILD").is_none() {
        return;
    }
    let lab = Lab::in_namespaces("test-held").unwrap();
    lab.web(1).unwrap();
    println!("\nLAB");
    loop {
        std::thread::park();
    }
}

/// Changes the primary as planned, by death, and back; the table is empty at first.
fn assert_primary_changes(lab: &Lab, servers: &[Server], table: &str) {
    let [first, second, third] = servers else {
        panic!("three servers")
    };
    insert(first, table, 1);
    let before = SystemTime::now();
    let change = lab.promote(second).unwrap();
    let demoted_at = change.demoted_at.unwrap();
    assert!(before <= demoted_at && demoted_at <= change.writable_at);
    assert_eq!(change.followers.len(), 2, "{change:?}");
    assert_eq!(
        (first.role(), second.role()),
        (Role::Replica, Role::Primary)
    );
    assert_refuses_writes(first, table);
    insert(second, table, 2);
    assert_all_have(&[first, third], second, table, "1 2");

    second.kill().unwrap();
    assert!(
        lab.promote(second).is_err(),
        "a dead server cannot be promoted"
    );
    let change = lab.fail_over(second).unwrap();
    assert!(change.demoted_at.is_none(), "{change:?}");
    let new = lab.primary_of(first).unwrap();
    assert_eq!(new.name, change.primary);
    insert(&new, table, 3);

    // The old primary returns as one, and writes rows that no other server has.
    second.start().unwrap();
    assert_eq!(second.role(), Role::Primary);
    insert(second, table, 13);
    lab.rejoin(second).unwrap();
    assert_eq!(second.role(), Role::Replica);
    insert(&new, table, 4);
    let others: Vec<&Server> = servers
        .iter()
        .filter(|other| other.name != new.name)
        .collect();
    assert_all_have(&others, &new, table, "1 2 3 4");

    // Demoted first and replaced later.
    lab.demote(&new).unwrap();
    assert!(lab.primary_of(&new).is_none());
    lab.promote(first)
        .unwrap_or_else(|_| lab.promote(third).unwrap());
    let newest = lab.primary_of(&new).unwrap();
    insert(&newest, table, 5);
    assert_all_have(&[&new, second], &newest, table, "1 2 3 4 5");
}

fn assert_replica_lags(lab: &Lab, servers: &[Server], table: &str, lag: Duration) {
    let primary = lab.primary_of(&servers[0]).unwrap();
    let replica = servers.iter().find(|server| server.role() == Role::Replica);
    let replica = replica.unwrap();
    replica.lag(lag).unwrap();
    insert(&primary, table, 6);
    assert!(replica.wait_for(&primary, lag / 2).is_err());
    replica.wait_for(&primary, LIMIT).unwrap();
    replica.lag(Duration::ZERO).unwrap();

    replica.stop_replication().unwrap();
    insert(&primary, table, 7);
    assert!(
        replica
            .wait_for(&primary, Duration::from_millis(300))
            .is_err()
    );
    replica.start_replication().unwrap();
    replica.wait_for(&primary, LIMIT).unwrap();
    assert_eq!(ids(replica, table), ids(&primary, table));
}

fn assert_probe_sees_outage(lab: &Lab, driver: Driver, servers: &[Server]) {
    let primary = lab.primary_of(&servers[0]).unwrap();
    let probe = WriteProbe::start(WriteProbeOptions::new(driver, primary.address)).unwrap();
    let acknowledged = |count: usize| {
        eventually(LIMIT, "acknowledged writes", || {
            Ok((probe.so_far().acknowledged().len() >= count).then_some(()))
        })
        .unwrap();
    };
    acknowledged(10);
    primary.kill().unwrap();
    primary.start().unwrap();
    acknowledged(probe.so_far().acknowledged().len() + 10);
    let log = probe.finish();
    let outages = log.outages();
    assert_eq!(outages.len(), 1, "{outages:?}");
    assert!(outages[0].length().unwrap() > Duration::from_millis(50));
    let seen = log.verify(&primary).unwrap();
    assert!(seen.is_faultless(), "{seen:?}");
    assert!(seen.rows >= 20, "{seen:?}");
    assert_eq!(seen.writers, [primary.address.port()]);
}

fn assert_all_have(replicas: &[&Server], primary: &Server, table: &str, expected: &str) {
    for replica in replicas {
        replica.wait_for(primary, LIMIT).unwrap();
        assert_eq!(ids(replica, table), expected, "{replica:?}");
    }
}

fn insert(server: &Server, table: &str, id: u32) {
    server
        .sql(&format!("INSERT INTO {table} VALUES ({id})"))
        .unwrap();
}

fn ids(server: &Server, table: &str) -> String {
    let rows = server.sql(&format!("SELECT id FROM {table} ORDER BY id"));
    rows.unwrap().lines().collect::<Vec<_>>().join(" ")
}

/// Sends one request over a connection that stays open.
fn ask(client: &mut TcpStream) -> std::io::Result<()> {
    client.write_all(b"GET /1k HTTP/1.1\r\nHost: lab\r\n\r\n")?;
    let mut answer = Vec::new();
    while !answer.ends_with(&[0; 1024]) {
        let mut bytes = [0; 2048];
        let count = client.read(&mut bytes)?;
        answer.extend_from_slice(&bytes[..count]);
    }
    Ok(())
}

/// Checks that the server is read-only; MariaDB still lets the lab's superuser write.
fn assert_refuses_writes(server: &Server, table: &str) {
    if server.name.starts_with("mariadb") {
        assert_eq!(server.sql("SELECT @@read_only").unwrap(), "1");
    } else {
        let refusal = server.sql(&format!("INSERT INTO {table} VALUES (99)"));
        assert!(format!("{:#}", refusal.unwrap_err()).contains("read-only"));
    }
}

fn is_root() -> bool {
    let root = own_uid() == 0;
    if !root {
        let refusal = Lab::in_namespaces("test-refused").err().unwrap();
        assert!(refusal.to_string().contains("need root"), "{refusal}");
        println!("skipped: {refusal}");
    }
    root
}

/// Returns the number of namespaces that a process has created, and whether it created a bridge.
fn names_of(pid: u32) -> (usize, bool) {
    let names = |path: &str| -> Vec<String> {
        let entries = Path::new(path).read_dir().into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    };
    let namespaces = names("/run/netns");
    let prefix = format!("evenkeel-lab-{pid}-");
    let bridge = format!("-{pid:x}");
    (
        namespaces
            .iter()
            .filter(|name| name.starts_with(&prefix))
            .count(),
        names("/sys/class/net")
            .iter()
            .any(|name| name.starts_with("ekb") && name.ends_with(&bridge)),
    )
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

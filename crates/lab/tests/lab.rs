//! Tests of the lab with real servers: they serve, faults can be injected, and nothing remains of
//! them.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use evenkeel_lab::web::WebProgram;
use evenkeel_lab::{
    Driver, Greeting, Haproxy, Lab, MariadbOptions, NewConnections, Nginx, PostgresOptions, Server,
    Sysbench, eventually, free_port, new_connections, own_uid, procfs, web,
};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_row_written_on_the_mariadb_primary_appears_on_the_replica_also_after_it_was_killed() {
    let lab = Lab::new("test-mariadb").unwrap();
    let options = MariadbOptions {
        replicas: 1,
        sbtest_rows: Some(100),
        ..Default::default()
    };
    let cluster = lab.mariadb(options).unwrap();
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    assert_eq!(
        replica.sql("SELECT COUNT(*) FROM sbtest.sbtest4").unwrap(),
        "100"
    );
    assert_eq!(replica.sql("SELECT @@read_only").unwrap(), "1");

    primary
        .sql("CREATE TABLE sbtest.t (id INT PRIMARY KEY); INSERT INTO sbtest.t VALUES (1)")
        .unwrap();
    cluster.wait_caught_up().unwrap();
    assert_eq!(replica.sql("SELECT id FROM sbtest.t").unwrap(), "1");

    assert_killed_and_started_again(replica, Greeting::Mysql);
    primary.sql("INSERT INTO sbtest.t VALUES (2)").unwrap();
    cluster.wait_caught_up().unwrap();
    assert_eq!(replica.sql("SELECT MAX(id) FROM sbtest.t").unwrap(), "2");
    assert_frozen_and_thawed(replica, Greeting::Mysql);
    assert_stopped_and_started_again(primary);
}

#[test]
fn a_row_written_on_the_postgres_primary_appears_on_the_replica_also_after_it_was_killed() {
    let lab = Lab::new("test-postgres").unwrap();
    let options = PostgresOptions {
        replicas: 1,
        sbtest_rows: Some(100),
        ..Default::default()
    };
    let cluster = lab.postgres(options).unwrap();
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    assert_eq!(replica.sql("SELECT count(*) FROM sbtest1").unwrap(), "100");
    assert_eq!(replica.sql("SELECT pg_is_in_recovery()").unwrap(), "t");

    primary.sql("CREATE TABLE t (id int)").unwrap();
    assert_killed_and_started_again(replica, Greeting::Postgres);
    primary.sql("INSERT INTO t VALUES (7)").unwrap();
    cluster.wait_caught_up().unwrap();
    assert_eq!(replica.sql("SELECT id FROM t").unwrap(), "7");

    assert_killed_and_started_again(primary, Greeting::Postgres);
    assert_eq!(primary.sql("SELECT id FROM t").unwrap(), "7");
    assert_frozen_and_thawed(replica, Greeting::Postgres);
    assert_stopped_and_started_again(primary);
}

#[test]
fn web_servers_answer_with_their_names_and_their_files() {
    web_servers_answer(WebProgram::Nginx);
    web_servers_answer(WebProgram::Apache);
}

fn web_servers_answer(program: WebProgram) {
    let lab = Lab::new("test-web").unwrap();
    let servers = lab.web_by(program, 2).unwrap();
    assert_eq!(web::get(servers[1].address, "/").unwrap(), "web-2");
    assert_eq!(web::get(servers[0].address, "/1k").unwrap().len(), 1024);
    assert!(
        web::get(servers[0].address, "/missing")
            .unwrap_err()
            .to_string()
            .contains("404")
    );
    assert_killed_and_started_again(&servers[0], Greeting::Http);
    assert_frozen_and_thawed(&servers[0], Greeting::Http);
    // A limited server takes time to end, during which its threads still hold its port.
    if servers[1].cpu_share(5).is_ok() {
        for _ in 0..3 {
            servers[1].kill().unwrap();
            servers[1].start().unwrap();
        }
    }
}

#[test]
fn servers_that_stand_alone_have_the_same_rows_and_take_sysbench() {
    let lab = Lab::new("test-alone").unwrap();
    let servers = lab.mariadb_stand_alone(2, Some(100)).unwrap();
    let sum = "SELECT SUM(k) FROM sbtest.sbtest1";
    assert_eq!(servers[0].sql(sum).unwrap(), servers[1].sql(sum).unwrap());

    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let listen = loopback(free_port());
    let nginx = Nginx::stream(&addresses, listen).unwrap();
    let report = short_run(listen).run().unwrap();
    assert!(
        report.queries > 100 && report.p95_ms > 0.0 && report.qps > 0.0,
        "{report:?}"
    );
    assert!(nginx.cpu_us() > 0);
    assert_eq!(nginx.pids().len(), 3);

    let listen = loopback(free_port());
    let _haproxy = Haproxy::tcp(&addresses, listen).unwrap();
    new_connections::greet(listen, Greeting::Mysql, LIMIT).unwrap();
    servers.iter().for_each(|server| server.kill().unwrap());
    assert!(
        short_run(listen)
            .run()
            .unwrap_err()
            .to_string()
            .contains("gave up")
    );
}

#[test]
fn newcomers_count_what_they_open_and_see_a_server_that_is_gone() {
    let lab = Lab::new("test-newcomers").unwrap();
    let server = lab.web(1).unwrap().remove(0);
    let every = Duration::from_millis(5);
    let probe = NewConnections::start(server.address, Greeting::Http, every, LIMIT);
    eventually(LIMIT, "twenty visits", || {
        Ok((probe.so_far().attempts > 20).then_some(()))
    })
    .unwrap();
    assert_eq!(probe.so_far().failures.len(), 0);
    server.kill().unwrap();
    let failed = || Ok((!probe.so_far().failures.is_empty()).then_some(()));
    eventually(LIMIT, "a failure", failed).unwrap();
    let report = probe.finish();
    assert!(report.failures.len() < report.attempts as usize);
}

#[test]
fn a_processor_share_slows_a_server_down_and_its_group_is_removed() {
    if own_uid() != 0 {
        let lab = Lab::new("test-share").unwrap();
        let refusal = lab.web(1).unwrap()[0].cpu_share(20).unwrap_err();
        assert!(refusal.to_string().contains("need root"), "{refusal}");
        return;
    }
    let lab = Lab::new("test-share").unwrap();
    let server = lab.mariadb_stand_alone(1, Some(100)).unwrap().remove(0);
    let work_dir = lab
        .path()
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    server.cpu_share(20).unwrap();
    let before = procfs::cpu_us(&server.pids());
    short_run(server.address).run().unwrap();
    let used = procfs::cpu_us(&server.pids()) - before;
    assert!(used < 500_000, "{used} us in one second at 20 %");
    drop(lab);
    assert!(!group_exists(&work_dir));
}

#[test]
fn nothing_is_left_after_the_lab_is_dropped() {
    let lab = Lab::new("test-drop").unwrap();
    let mariadb = lab.mariadb(MariadbOptions::default()).unwrap();
    let postgres = lab.postgres(PostgresOptions::default()).unwrap();
    let nginx = Nginx::stream(&[mariadb.primary.address], loopback(free_port())).unwrap();
    let servers = [&mariadb.primary, &postgres.primary];
    let pids: Vec<u32> = servers
        .iter()
        .flat_map(|server| server.pids())
        .chain(nginx.pids())
        .collect();
    assert!(pids.len() > 6, "{pids:?}");
    let segment = shared_memory_of(lab.path());
    let work_dir = lab.path().to_owned();
    drop(nginx);
    drop(lab);
    assert!(!work_dir.exists());
    assert!(!pids.iter().any(|pid| procfs::is_alive(*pid)));
    assert!(!shared_memory().contains(&segment));
    assert!(
        postgres.primary.start().is_err(),
        "a handle outlives the lab, the server does not"
    );
}

#[test]
fn nothing_is_left_after_the_process_of_a_lab_is_killed() {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child_process_that_holds_a_lab", "--nocapture"])
        .env("EVENKEEL_LAB_TEST_CHILD", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let report = lines.find(|line| line.starts_with("LAB ")).unwrap();
    let mut words = report.split(' ').skip(1);
    let (work_dir, segment) = (
        PathBuf::from(words.next().unwrap()),
        words.next().unwrap().to_owned(),
    );
    let pids: Vec<u32> = words.map(|word| word.parse().unwrap()).collect();
    assert!(
        pids.len() > 8 && pids.iter().all(|pid| procfs::is_alive(*pid)),
        "{pids:?}"
    );
    assert!(shared_memory().contains(&segment), "{segment}");
    child.kill().unwrap();
    child.wait().unwrap();
    let gone =
        || Ok((!pids.iter().any(|pid| procfs::is_alive(*pid)) && !work_dir.exists()).then_some(()));
    eventually(LIMIT, "the end of the servers and their directory", gone).unwrap();
    assert!(!shared_memory().contains(&segment));
}

/// Not an independent test: the process that the test above kills.
#[test]
fn child_process_that_holds_a_lab() {
    if env::var_os("EVENKEEL_LAB_TEST_CHILD").is_none() {
        return;
    }
    let lab = Lab::new("test-killed").unwrap();
    let postgres = lab.postgres(PostgresOptions::default()).unwrap();
    let mariadb = lab.mariadb(MariadbOptions::default()).unwrap();
    let web = lab.web(1).unwrap();
    let nginx = Nginx::stream(&[mariadb.primary.address], loopback(free_port())).unwrap();
    let servers = [&postgres.primary, &mariadb.primary, &web[0]];
    let pids = servers
        .iter()
        .flat_map(|server| server.pids())
        .chain(nginx.pids());
    let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
    println!(
        "\nLAB {} {} {}",
        lab.path().display(),
        shared_memory_of(lab.path()),
        pids.join(" ")
    );
    loop {
        thread::park();
    }
}

fn assert_killed_and_started_again(server: &Server, greeting: Greeting) {
    let pids = server.pids();
    server.kill().unwrap();
    assert!(!server.is_running() && server.pid().is_none());
    assert!(!pids.iter().any(|pid| procfs::is_alive(*pid)));
    new_connections::greet(server.address, greeting, LIMIT).unwrap_err();
    server.start().unwrap();
    assert_ne!(server.pid(), pids.first().copied());
    new_connections::greet(server.address, greeting, LIMIT).unwrap();
}

fn assert_frozen_and_thawed(server: &Server, greeting: Greeting) {
    server.freeze().unwrap();
    assert!(server.is_running());
    let short = Duration::from_millis(300);
    new_connections::greet(server.address, greeting, short).unwrap_err();
    server.thaw().unwrap();
    new_connections::greet(server.address, greeting, LIMIT).unwrap();
}

fn assert_stopped_and_started_again(server: &Server) {
    server.stop().unwrap();
    assert!(!server.is_running());
    server.start().unwrap();
    assert_eq!(server.sql("SELECT 1").unwrap(), "1");
}

fn short_run(address: SocketAddr) -> Sysbench {
    Sysbench {
        threads: 2,
        seconds: 1,
        rows: 100,
        ..Sysbench::new(Driver::Mysql, address)
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Returns the id of the System V segment that the lab's PostgreSQL primary holds.
fn shared_memory_of(work_dir: &Path) -> String {
    let lock = fs::read_to_string(work_dir.join("postgres-primary/data/postmaster.pid")).unwrap();
    lock.lines()
        .nth(6)
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .to_owned()
}

/// Returns the ids of all System V segments of this machine.
fn shared_memory() -> Vec<String> {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .map(str::to_owned)
        .collect()
}

fn group_exists(work_dir: &str) -> bool {
    let found = Command::new("find")
        .args([
            "/sys/fs/cgroup",
            "-maxdepth",
            "2",
            "-name",
            &format!("{work_dir}*"),
        ])
        .output();
    !found.unwrap().stdout.is_empty()
}

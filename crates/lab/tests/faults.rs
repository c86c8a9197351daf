//! Tests of servers that die, freeze or are isolated under load, as the balancer's clients see it.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_lab::sysbench::RunningSysbench;
use evenkeel_lab::{
    Balancer, Driver, Greeting, Lab, MariadbOptions, NewConnections, NewcomersReport,
    PostgresOptions, Server, Service, Sysbench,
};
use harness::{DRIVERS, LIMIT, engine, loopback, server, wait_state, wait_until};

const EVERY: Duration = Duration::from_millis(30);
const CLIENTS: usize = 6;

/// A balancer under load: long sessions of sysbench and a new connection every few milliseconds.
struct Loaded {
    balancer: Balancer,
    newcomers: NewConnections,
    sysbench: Vec<RunningSysbench>,
}

/// Parameters of the load that depend on the servers.
struct Load<'a> {
    greeting: Greeting,
    probe: &'a str,
    sysbench: Option<Driver>,
    extra: &'a [&'a str],
}

impl Loaded {
    fn start(io: &str, servers: &[Server], load: &Load<'_>) -> Loaded {
        let address = loopback();
        let mut service = Service::new("front", address, load.probe, servers);
        // A busy machine must not appear as a dead server.
        service.interval_ms = 1_000;
        service.extra = load.extra.iter().map(ToString::to_string).collect();
        let balancer = Balancer::start(&format!("{}{}", engine(io), service.toml())).unwrap();
        for server in servers {
            wait_state(&balancer, &format!("front/{}", server.name), "up");
        }
        Loaded {
            newcomers: NewConnections::start(address, load.greeting, EVERY, LIMIT),
            sysbench: load
                .sysbench
                .map_or_else(Vec::new, |driver| sysbench(driver, address)),
            balancer,
        }
    }

    /// Waits until `more` new connections have been made.
    fn wait_newcomers(&self, more: u64) {
        let until = self.newcomers.so_far().attempts + more;
        wait_until(&self.balancer, "new connections", || {
            self.newcomers.so_far().attempts >= until
        });
    }

    /// Waits until every client of sysbench has reported a second.
    fn wait_load(&mut self) {
        let clients = &mut self.sysbench;
        wait_until(&self.balancer, "the first second of sysbench", || {
            clients
                .iter()
                .all(|client| !client.so_far().seconds.is_empty())
        });
    }

    /// Checks that the clients on the dead server were disconnected, and the others unaffected.
    fn assert_most_clients_went_on(&mut self) {
        let count = self.sysbench.len();
        let clients = &mut self.sysbench;
        clients.retain_mut(|client| client.is_running());
        let left = clients.len();
        assert!(left * 3 >= count, "{left} of {count} clients went on");
        for client in clients {
            let report = client.so_far();
            let quiet = report.seconds.iter().any(|second| second.qps == 0.0);
            assert!(!quiet && report.failure.is_none(), "{report:?}");
        }
    }

    fn sessions(&self, of: &Server) -> u64 {
        server(&self.balancer, &format!("front/{}", of.name))["sessions"]["current"]
            .as_u64()
            .unwrap()
    }
}

/// Starts clients with one session each: sysbench ends when its server fails.
fn sysbench(driver: Driver, address: SocketAddr) -> Vec<RunningSysbench> {
    let client = Sysbench {
        threads: 1,
        seconds: 120,
        rows: 100,
        extra: vec!["--rate=20".to_owned()],
        ..Sysbench::new(driver, address)
    };
    (0..CLIENTS).map(|_| client.start().unwrap()).collect()
}

fn both(servers: &[Server], load: &Load<'_>) -> Vec<Loaded> {
    DRIVERS
        .iter()
        .map(|io| Loaded::start(io, servers, load))
        .collect()
}

/// Checks that no connection begun after `since` failed; earlier ones may have been assigned to the
/// server.
fn assert_none_failed(report: &NewcomersReport, since: Instant, balancer: &Balancer) {
    let failed: Vec<_> = report
        .failures
        .iter()
        .filter(|failure| failure.started >= since)
        .collect();
    assert!(
        failed.is_empty() && report.failures.len() < 3,
        "{:?} of {} failed; the balancer said:\n{}",
        report.failures,
        report.attempts,
        balancer.log()
    );
}

/// Kills a server under load and restarts it: no new connection fails, and the server returns.
fn assert_a_killed_server_costs_no_new_connection(victim: &Server, mut fronts: Vec<Loaded>) {
    let path = format!("front/{}", victim.name);
    for front in &mut fronts {
        front.wait_newcomers(30);
        front.wait_load();
    }
    victim.kill().unwrap();
    let killed = Instant::now();
    for front in &fronts {
        front.wait_newcomers(30);
        wait_state(&front.balancer, &path, "down");
        wait_until(&front.balancer, "the end of sessions on the dead", || {
            front.sessions(victim) == 0
        });
    }
    victim.start().unwrap();
    for mut front in fronts {
        wait_state(&front.balancer, &path, "up");
        let reason = server(&front.balancer, &path)["reason"].to_string();
        assert!(reason.contains("2 probes passed"), "{reason}");
        let before = total(&front, victim);
        wait_until(&front.balancer, "new sessions on the server", || {
            total(&front, victim) > before
        });
        front.wait_newcomers(10);
        front.assert_most_clients_went_on();
        assert_none_failed(&front.newcomers.finish(), killed, &front.balancer);
    }
}

fn total(front: &Loaded, of: &Server) -> u64 {
    server(&front.balancer, &format!("front/{}", of.name))["sessions"]["total"]
        .as_u64()
        .unwrap()
}

/// Freezes a server: after it is marked down no new connection reaches it, and it returns after it
/// thaws.
fn assert_a_frozen_server_is_left_alone(
    victim: &Server,
    fronts: Vec<Loaded>,
) -> Vec<NewcomersReport> {
    let path = format!("front/{}", victim.name);
    victim.freeze().unwrap();
    let frozen = Instant::now();
    for front in &fronts {
        wait_state(&front.balancer, &path, "down");
    }
    let verdict = Instant::now();
    for front in &fronts {
        front.wait_newcomers(50);
    }
    victim.thaw().unwrap();
    let mut reports = Vec::new();
    for front in fronts {
        wait_state(&front.balancer, &path, "up");
        let report = front.newcomers.finish();
        let late: Vec<_> = report
            .failures
            .iter()
            .filter(|failure| failure.started > verdict)
            .collect();
        assert!(late.is_empty(), "{late:?}");
        // Its kernel still accepts, so its clients wait until it is marked down, and not longer.
        let bound = verdict - frozen + Duration::from_secs(2);
        let longest = report.failures.iter().map(|failure| failure.waited).max();
        assert!(longest.is_none_or(|waited| waited < bound), "{longest:?}");
        eprintln!(
            "frozen {}: verdict after {:?}, {} of {} newcomers failed, longest wait {:?}: {:?}",
            victim.name,
            verdict - frozen,
            report.failures.len(),
            report.attempts,
            report.longest_wait,
            report.failures.first(),
        );
        reports.push(report);
    }
    reports
}

#[test]
fn a_mariadb_replica_that_is_killed_costs_no_new_connection_and_comes_back() {
    let lab = Lab::new("faults-mariadb").unwrap();
    let options = MariadbOptions {
        replicas: 2,
        sbtest_rows: Some(100),
        ..Default::default()
    };
    let cluster = lab.mariadb(options).unwrap();
    let load = Load {
        greeting: Greeting::Mysql,
        probe: "mysql",
        sysbench: Some(Driver::Mysql),
        extra: &[],
    };
    let victim = &cluster.replicas[0];
    let fronts = both(&cluster.servers(), &load);
    assert_a_killed_server_costs_no_new_connection(victim, fronts);
    let load = Load {
        extra: &["connect_timeout_ms = 500"],
        sysbench: None,
        ..load
    };
    let fronts = both(&cluster.servers(), &load);
    let reports = assert_a_frozen_server_is_left_alone(victim, fronts);
    // The server sends first, so its silence is noticed, and the next server greets the client.
    for report in reports {
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        let bound = Duration::from_millis(500 * 4 + 1_000);
        assert!(report.longest_wait < bound, "{:?}", report.longest_wait);
    }
}

#[test]
fn a_postgres_replica_that_is_killed_costs_no_new_connection_and_comes_back() {
    let lab = Lab::new("faults-postgres").unwrap();
    let options = PostgresOptions {
        replicas: 1,
        sbtest_rows: None,
        ..Default::default()
    };
    let cluster = lab.postgres(options).unwrap();
    let load = Load {
        greeting: Greeting::Postgres,
        probe: "postgres",
        sysbench: None,
        extra: &[],
    };
    let victim = &cluster.replicas[0];
    let fronts = both(&cluster.servers(), &load);
    assert_a_killed_server_costs_no_new_connection(victim, fronts);
    let fronts = both(&cluster.servers(), &load);
    assert_a_frozen_server_is_left_alone(victim, fronts);
}

#[test]
fn a_web_server_that_is_killed_costs_no_new_connection_and_comes_back() {
    let lab = Lab::new("faults-web").unwrap();
    let servers = lab.web(3).unwrap();
    let load = Load {
        greeting: Greeting::Http,
        probe: "http",
        sysbench: None,
        extra: &[],
    };
    let fronts = both(&servers, &load);
    assert_a_killed_server_costs_no_new_connection(&servers[1], fronts);
    let fronts = both(&servers, &load);
    assert_a_frozen_server_is_left_alone(&servers[1], fronts);
}

/// A separate network on a pair of virtual interfaces, with a web server in it.
struct FarAway {
    name: String,
    near: String,
    address: SocketAddr,
    server: Child,
    work_dir: PathBuf,
}

impl FarAway {
    fn start() -> FarAway {
        let number = std::process::id() % 60_000;
        let (name, near) = (format!("ek{number}"), format!("ekn{number}"));
        let net = format!("10.213.{}.", number % 250);
        let work_dir = std::env::temp_dir().join(format!("evenkeel-far-{number}"));
        std::fs::create_dir_all(&work_dir).unwrap();
        ip(&format!("netns add {name}"));
        ip(&format!(
            "link add {near} type veth peer name far netns {name}"
        ));
        ip(&format!("addr add {net}1/24 dev {near}"));
        ip(&format!("link set {near} up"));
        ip(&format!("-n {name} addr add {net}2/24 dev far"));
        ip(&format!("-n {name} link set far up"));
        FarAway {
            server: web_server_in(&name, &work_dir),
            name,
            near,
            address: format!("{net}2:80").parse().unwrap(),
            work_dir,
        }
    }

    fn set_link(&self, state: &str) {
        ip(&format!("-n {} link set far {state}", self.name));
    }
}

impl Drop for FarAway {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let removals = [["link", "del", &self.near], ["netns", "del", &self.name]];
        for removal in removals {
            let _ = Command::new("ip").args(removal).status();
        }
        let _ = std::fs::remove_dir_all(&self.work_dir);
    }
}

fn web_server_in(network: &str, work_dir: &Path) -> Child {
    let config = work_dir.join("nginx.conf");
    let text = format!(
        "daemon off; master_process off; pid {0}/pid; events {{}}\n\
         http {{ access_log off; server {{ listen 80; location = / {{ return 200 far; }} }} }}\n",
        work_dir.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("ip");
    command.args(["netns", "exec", network, "nginx", "-e", "stderr", "-c"]);
    command.arg(&config).stderr(Stdio::null()).spawn().unwrap()
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.unwrap().success(), "ip {arguments}");
}

/// Returns whether this machine permits separate networks.
fn networks_are_ours() -> bool {
    let name = format!("ekprobe{}", std::process::id());
    let run = |arguments: &[&str]| {
        let output = Command::new("ip").args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let added = run(&["netns", "add", &name]);
    added && run(&["netns", "del", &name])
}

#[test]
fn a_server_that_is_cut_off_costs_a_bounded_delay_and_nothing_after_the_verdict() {
    if !networks_are_ours() {
        eprintln!("SKIPPED: cutting a server off needs root and `ip netns`");
        return;
    }
    let lab = Lab::new("faults-cut-off").unwrap();
    let far = FarAway::start();
    let near = lab.web(2).unwrap();
    let fronts: Vec<_> = DRIVERS
        .iter()
        .map(|io| in_front_of(io, &far, &near))
        .collect();
    fronts.iter().for_each(|front| front.wait_newcomers(30));
    far.set_link("down");
    let cut = Instant::now();
    for front in &fronts {
        wait_state(&front.balancer, "front/far", "down");
    }
    let verdict = Instant::now();
    fronts.iter().for_each(|front| front.wait_newcomers(50));
    far.set_link("up");
    for front in fronts {
        wait_state(&front.balancer, "front/far", "up");
        let report = front.newcomers.finish();
        assert_none_failed(&report, cut, &front.balancer);
        // One failed connect, then a live server; the rest is machine load.
        let longest = report.longest_wait;
        assert!(longest < Duration::from_secs(2), "{longest:?}");
        assert!(longest >= Duration::from_millis(300), "nobody was delayed");
        eprintln!(
            "cut off: verdict after {:?}, longest wait {longest:?}",
            verdict - cut
        );
    }
}

fn in_front_of(io: &str, far: &FarAway, near: &[Server]) -> Loaded {
    let address = loopback();
    let mut service = Service::new("front", address, "http", near);
    service.servers.push(("far".to_owned(), far.address));
    service.interval_ms = 1_000;
    service.extra.push("connect_timeout_ms = 300".to_owned());
    let balancer = Balancer::start(&format!("{}{}", engine(io), service.toml())).unwrap();
    wait_state(&balancer, "front/far", "up");
    Loaded {
        newcomers: NewConnections::start(address, Greeting::Http, EVERY, LIMIT),
        sysbench: Vec::new(),
        balancer,
    }
}

/// Returns the end of a connection as its client sees it: `Ok(true)` a reset, `Ok(false)` an
/// orderly end.
fn end_of(stream: &mut TcpStream, limit: Duration) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(limit))?;
    let mut bytes = [0; 256];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

#[test]
fn sessions_of_a_frozen_server_are_reset_when_the_service_says_cut_and_left_otherwise() {
    let lab = Lab::new("faults-cut").unwrap();
    let server = lab.web(1).unwrap().remove(0);
    for io in DRIVERS {
        let (cutting, leaving) = (loopback(), loopback());
        let mut services = [
            Service::new("cutting", cutting, "http", std::slice::from_ref(&server)),
            Service::new("leaving", leaving, "http", std::slice::from_ref(&server)),
        ];
        services[0]
            .extra
            .push("on_server_down = \"cut\"".to_owned());
        let config = services.map(|service| service.toml()).concat();
        let balancer = Balancer::start(&format!("{}{config}", engine(io))).unwrap();
        wait_state(&balancer, &format!("cutting/{}", server.name), "up");
        let mut cut = TcpStream::connect(cutting).unwrap();
        let mut left = TcpStream::connect(leaving).unwrap();
        wait_until(&balancer, "two sessions", || {
            let known = harness::server(&balancer, &format!("leaving/{}", server.name));
            known["sessions"]["current"] == 2
        });
        // Both have received data of the server: otherwise they would be moved to another one.
        for client in [&mut cut, &mut left] {
            client
                .write_all(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n")
                .unwrap();
            assert!(client.read(&mut [0; 4096]).unwrap() > 0);
        }
        server.freeze().unwrap();
        assert!(end_of(&mut cut, LIMIT).unwrap(), "a cut is a reset");
        let open = end_of(&mut left, Duration::from_millis(300)).unwrap_err();
        assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock, "{io}: {open}");
        server.thaw().unwrap();
        wait_state(&balancer, &format!("cutting/{}", server.name), "up");
        left.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        assert!(!end_of(&mut left, LIMIT).unwrap(), "{io}: it went on");
    }
}

//! Tests of reloads: unchanged parts are not affected, an invalid config changes nothing, and
//! sessions of removed parts may finish.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use evenkeel_lab::{
    Balancer, Driver, Greeting, Lab, MariadbOptions, NewConnections, Server, Service, Sysbench, web,
};
use harness::certificates::file_of_sbtest;
use harness::{
    DRIVERS, End, LIMIT, Mute, end_of, engine, loopback, open, plain, service, wait_until,
};

/// Returns the nth of a series of configs that all serve `front` and `sql`, each unlike its
/// predecessor.
fn variant(number: usize, io: &str, front: SocketAddr, sql: &Service, web: &[Server]) -> String {
    let shown = &web[number % 2..];
    let mut service = Service::new("front", front, "http", shown);
    service.balance = ["round-robin", "least-connections", "random-two"][number % 3].to_owned();
    service
        .extra
        .push(format!("connect_timeout_ms = {}", 1_000 + number));
    service.interval_ms = 200 + 50 * (number as u32 % 2);
    let mut sql = sql.clone();
    let moved = number % sql.servers.len();
    sql.servers.rotate_left(moved);
    sql.extra
        .push(format!("idle_timeout_ms = {}", 600_000 + number));
    let mut config = format!("{}{}{}", engine(io), service.toml(), sql.toml());
    if number % 2 == 1 {
        config.push_str(&Service::new("extra", loopback(), "http", &web[..1]).toml());
    }
    config
}

#[test]
fn twenty_reloads_under_load_cost_no_connection_and_no_query() {
    let lab = Lab::new("reload").unwrap();
    let web = lab.web(3).unwrap();
    let options = MariadbOptions {
        replicas: 1,
        sbtest_rows: Some(100),
        ..Default::default()
    };
    let mariadb = lab.mariadb(options).unwrap();
    std::thread::scope(|scope| {
        for io in DRIVERS {
            let (web, servers) = (&web, mariadb.servers());
            scope.spawn(move || twenty_reloads(io, web, &servers));
        }
    });
}

fn twenty_reloads(io: &str, web: &[Server], mariadb: &[Server]) {
    let (front, sql_front) = (loopback(), loopback());
    let sql = Service::new("sql", sql_front, "mysql", mariadb);
    let balancer = Balancer::start(&variant(1, io, front, &sql, web)).unwrap();
    let every = Duration::from_millis(3);
    let newcomers = NewConnections::start(front, Greeting::Http, every, LIMIT);
    let mut sysbench = Sysbench {
        threads: 4,
        seconds: 120,
        rows: 100,
        extra: vec!["--rate=200".to_owned()],
        ..Sysbench::new(Driver::Mysql, sql_front)
    }
    .start()
    .unwrap();
    for number in 2..=21 {
        let until = newcomers.so_far().attempts + 20;
        wait_until(&balancer, "new connections between reloads", || {
            newcomers.so_far().attempts >= until
        });
        let config = variant(number, io, front, &sql, web);
        if number % 5 == 0 {
            reload_by_signal(&balancer, &config);
        } else {
            balancer.reload(&config).unwrap();
        }
    }
    let report = newcomers.finish();
    assert!(
        report.failures.is_empty(),
        "{io}: {} of {}: {:?}\n{}",
        report.failures.len(),
        report.attempts,
        report.failures.first(),
        balancer.log()
    );
    if !sysbench.is_running() {
        panic!("{io}: sysbench ended: {:?}", sysbench.finish());
    }
    assert!(web::get(front, "/").is_ok());
}

#[test]
fn a_listener_that_goes_to_another_service_keeps_its_socket_and_loses_no_client() {
    let lab = Lab::new("reload-renamed").unwrap();
    let web = lab.web(1).unwrap();
    std::thread::scope(|scope| {
        for io in DRIVERS {
            let web = &web;
            scope.spawn(move || renamed_twenty_times(io, web));
        }
    });
}

fn renamed_twenty_times(io: &str, web: &[Server]) {
    let front = loopback();
    let config = |name: &str| {
        let service = Service::new(name, front, "http", web);
        format!("{}{}", engine(io), service.toml())
    };
    let balancer = Balancer::start(&config("name-0")).unwrap();
    let every = Duration::from_millis(1);
    let newcomers = NewConnections::start(front, Greeting::Http, every, LIMIT);
    for number in 1..=20 {
        let until = newcomers.so_far().attempts + 30;
        wait_until(&balancer, "new connections between reloads", || {
            newcomers.so_far().attempts >= until
        });
        balancer.reload(&config(&format!("name-{number}"))).unwrap();
    }
    let report = newcomers.finish();
    assert!(
        report.failures.is_empty(),
        "{io}: {} of {}: {:?}",
        report.failures.len(),
        report.attempts,
        report.failures.first()
    );
}

fn reload_by_signal(balancer: &Balancer, config: &str) {
    let loaded = |balancer: &Balancer| {
        let status = balancer.status().unwrap();
        status["config"]["loaded_at_unix_ms"].as_u64().unwrap()
    };
    let before = loaded(balancer);
    balancer.write_config(config).unwrap();
    balancer.signal(libc::SIGHUP);
    wait_until(balancer, "a reload by SIGHUP", || loaded(balancer) > before);
}

#[test]
fn a_wrong_file_changes_nothing_and_says_where_by_command_and_by_signal() {
    let server = Mute::new();
    let listen = loopback();
    let good = plain("front", listen, &[server.address()], "");
    let balancer = Balancer::start(&good).unwrap();
    let mut client = open(&balancer, "front", listen);
    let wrong = good.replace("servers", "server");
    let error = balancer.reload(&wrong).unwrap_err().to_string();
    for part in [
        "not reloaded, configuration unchanged",
        ":4:1",
        "E_UNKNOWN_KEY",
        "servers",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let once = error.matches("E_UNKNOWN_KEY").count();
    assert_eq!(once, 1, "an error is said once: {error}");
    balancer.write_config(&wrong).unwrap();
    let said_before = balancer.log().matches("E_UNKNOWN_KEY").count();
    balancer.signal(libc::SIGHUP);
    wait_until(&balancer, "the log of the refused reload", || {
        balancer.log().matches("E_UNKNOWN_KEY").count() > said_before
    });
    let status = balancer.status().unwrap();
    let problems = status["config"]["problems"].as_array().unwrap();
    assert!(
        problems.iter().any(|problem| problem["line"] == 4),
        "{problems:?}"
    );
    assert_eq!(end_of(&mut client, Duration::from_millis(100)), End::Open);
    open(&balancer, "front", listen);
    balancer.reload(&good).unwrap();
    let status = balancer.status().unwrap();
    assert_eq!(status["config"]["problems"].as_array().unwrap().len(), 0);
}

#[test]
fn a_port_that_is_taken_keeps_the_old_config_and_is_named() {
    let (server, taken) = (Mute::new(), Mute::new());
    let listen = loopback();
    let good = plain("front", listen, &[server.address()], "");
    let balancer = Balancer::start(&good).unwrap();
    let more = plain("more", taken.address(), &[server.address()], "");
    let error = balancer.reload(&format!("{good}{more}")).unwrap_err();
    let error = error.to_string();
    let address = taken.address().to_string();
    for part in ["configuration unchanged", "more", &address, "in use"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let status = balancer.status().unwrap();
    assert_eq!(status["services"].as_array().unwrap().len(), 1);
    open(&balancer, "front", listen);
    drop(taken);
    balancer.reload(&format!("{good}{more}")).unwrap();
}

#[test]
fn a_wider_address_on_our_own_port_is_refused_with_the_reason() {
    let server = Mute::new();
    let listen = loopback();
    let good = plain("front", listen, &[server.address()], "");
    let balancer = Balancer::start(&good).unwrap();
    let wider = good.replace("127.0.0.1:", "0.0.0.0:").replacen(
        &server
            .address()
            .to_string()
            .replace("127.0.0.1:", "0.0.0.0:"),
        &server.address().to_string(),
        1,
    );
    let error = balancer.reload(&wider).unwrap_err().to_string();
    for part in ["configuration unchanged", "this process", "restart"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    open(&balancer, "front", listen);
}

#[test]
fn sessions_of_a_removed_server_may_finish_and_are_cut_after_the_limit() {
    for io in DRIVERS {
        let (stays, goes) = (Mute::new(), Mute::new());
        let listen = loopback();
        let config = |servers: &[SocketAddr]| {
            let extra = "balance = \"first\"\ndrain_limit_ms = 1500";
            format!("{}{}", engine(io), plain("front", listen, servers, extra))
        };
        let balancer = Balancer::start(&config(&[goes.address(), stays.address()])).unwrap();
        let mut finishing = open(&balancer, "front", listen);
        let mut staying = open(&balancer, "front", listen);
        let removed = Instant::now();
        balancer.reload(&config(&[stays.address()])).unwrap();
        let gone = server_called(&balancer, &goes);
        assert_eq!(gone["state"], "removed", "{gone}");
        assert_eq!(gone["sessions"]["current"], 2);
        let mut new = open(&balancer, "front", listen);
        assert_eq!(
            end_of(&mut finishing, Duration::from_millis(200)),
            End::Open
        );
        drop(finishing);
        assert_eq!(end_of(&mut staying, LIMIT), End::Reset);
        let lasted = removed.elapsed();
        assert!(lasted >= Duration::from_millis(1_500), "{lasted:?}");
        assert_eq!(end_of(&mut new, Duration::from_millis(100)), End::Open);
        let status = balancer.status().unwrap();
        let left = &service(&status, "front")["servers"];
        assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
    }
}

fn server_called(balancer: &Balancer, server: &Mute) -> serde_json::Value {
    harness::server(balancer, &format!("front/{}", server.address()))
}

#[test]
fn a_server_that_is_back_before_its_last_session_ended_is_the_same_server() {
    let (stays, goes) = (Mute::new(), Mute::new());
    let listen = loopback();
    let config = |servers: &[SocketAddr]| {
        let extra = "balance = \"first\"\ndrain_limit_ms = 1000";
        plain("front", listen, servers, extra)
    };
    let balancer = Balancer::start(&config(&[goes.address(), stays.address()])).unwrap();
    let mut client = open(&balancer, "front", listen);
    balancer.reload(&config(&[stays.address()])).unwrap();
    balancer
        .reload(&config(&[goes.address(), stays.address()]))
        .unwrap();
    let back = server_called(&balancer, &goes);
    assert_eq!(back["sessions"]["current"], 1, "{back}");
    assert_ne!(back["state"], "removed");
    assert_eq!(end_of(&mut client, Duration::from_millis(1_500)), End::Open);
}

#[test]
fn sessions_of_a_removed_service_may_finish_also_when_it_comes_back() {
    let server = Mute::new();
    let (listen, other) = (loopback(), loopback());
    let keep = plain("keep", other, &[server.address()], "");
    let front = plain(
        "front",
        listen,
        &[server.address()],
        "drain_limit_ms = 1500",
    );
    let balancer = Balancer::start(&format!("{keep}{front}")).unwrap();
    let mut client = open(&balancer, "front", listen);
    let removed = Instant::now();
    balancer.reload(&keep).unwrap();
    assert!(TcpStream::connect(listen).is_err(), "it listens no more");
    let left = service(&balancer.status().unwrap(), "front");
    assert_eq!(left["state"], "stopping");
    balancer.reload(&format!("{keep}{front}")).unwrap();
    let mut new = open(&balancer, "keep", listen);
    assert_eq!(end_of(&mut client, LIMIT), End::Reset);
    assert!(removed.elapsed() >= Duration::from_millis(1_500));
    assert_eq!(end_of(&mut new, Duration::from_millis(100)), End::Open);
    let status = balancer.status().unwrap();
    assert_eq!(status["services"].as_array().unwrap().len(), 2);
}

#[test]
fn a_server_of_a_removed_service_keeps_its_limit_when_the_service_is_back() {
    let server = Mute::new();
    let (listen, other) = (loopback(), loopback());
    let spare = Mute::new();
    let keep = plain("keep", other, &[spare.address()], "");
    let limited = plain("front", listen, &[], "[service.queue]\nlength = 0").replace(
        "servers = []",
        &format!(
            "servers = [{{ address = \"{}\", max_connections = 1 }}]",
            server.address()
        ),
    );
    let balancer = Balancer::start(&format!("{keep}{limited}")).unwrap();
    let _client = open(&balancer, "front", listen);
    balancer.reload(&keep).unwrap();
    balancer.reload(&format!("{keep}{limited}")).unwrap();
    let back = server_called(&balancer, &server);
    assert_eq!(back["sessions"]["current"], 1, "{back}");
    let mut surplus = TcpStream::connect(listen).unwrap();
    assert_eq!(end_of(&mut surplus, LIMIT), End::Orderly);
}

#[test]
fn services_that_move_their_servers_to_a_cluster_keep_their_sessions() {
    let server = Mute::new();
    let (first, second) = (loopback(), loopback());
    let servers = [server.address()];
    let before = plain("a", first, &servers, "") + &plain("b", second, &servers, "");
    let balancer = Balancer::start(&before).unwrap();
    let mut clients = [open(&balancer, "a", first), open(&balancer, "b", second)];
    let cluster = format!(
        "[[cluster]]\nname = \"c\"\nservers = [\"{}\"]\n\
         [cluster.health]\nprobe = \"off\"\n",
        servers[0]
    );
    let named = |name, listen: SocketAddr| {
        format!("[[service]]\nname = \"{name}\"\nlisten = \"{listen}\"\ncluster = \"c\"\n")
    };
    let after = cluster + &named("a", first) + &named("b", second);
    balancer.reload(&after).unwrap();
    let status = balancer.status().unwrap();
    for name in ["a", "b"] {
        let service = service(&status, name);
        assert_eq!(service["cluster"], "c", "{service}");
        assert_eq!(service["sessions"]["current"], 1, "{service}");
        // The server is the same one, with the sessions of both services.
        assert_eq!(service["servers"][0]["sessions"]["current"], 2, "{service}");
    }
    for client in &mut clients {
        assert_eq!(end_of(client, Duration::from_millis(100)), End::Open);
    }
}

#[test]
fn another_protocol_is_another_service_and_sessions_of_the_former_may_finish() {
    let server = Mute::new();
    let listen = loopback();
    let tcp = plain("front", listen, &[server.address()], "");
    let postgres = plain(
        "front",
        listen,
        &[server.address()],
        "protocol = \"postgres\"",
    );
    let users = file_of_sbtest();
    let auth = format!("[service.auth]\nsource = \"file\"\nusers_file = {users:?}\n");
    let balancer = Balancer::start(&tcp).unwrap();
    let mut former = open(&balancer, "front", listen);
    balancer.reload(&format!("{postgres}{auth}")).unwrap();
    let mut client = TcpStream::connect(listen).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    // SSLRequest
    client.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
    let mut answer = [0; 1];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"N", "PostgreSQL is spoken");
    assert_eq!(end_of(&mut former, Duration::from_millis(100)), End::Open);
    let status = balancer.status().unwrap();
    let states: Vec<_> = status["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["protocol"].clone(), one["state"].clone()))
        .collect();
    assert!(
        states.contains(&("tcp".into(), "stopping".into())),
        "{states:?}"
    );
}

//! Tests of operation: drain, weights, names, monitors, slow start, logs, signals and exit codes.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;
#[path = "operate/process.rs"]
mod process;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use std::{fs, thread};

use evenkeel_lab::{Balancer, Lab, Service, free_port, web};
use harness::{
    DRIVERS, End, LIMIT, Mute, done, end_of, engine, loopback, open, plain, refused, server,
    service, wait_state, wait_until,
};
use serde_json::Value;

const A_MOMENT: Duration = Duration::from_millis(200);

/// Two mute servers of `front`, which uses the first one available.
struct Pair {
    balancer: Balancer,
    listen: SocketAddr,
    config: String,
    first: Mute,
    second: Mute,
}

impl Pair {
    fn start(io: &str, extra: &str) -> Pair {
        let (first, second, listen) = (Mute::new(), Mute::new(), loopback());
        let extra = format!("balance = \"first\"\n{extra}");
        let addresses = [first.address(), second.address()];
        let config = format!(
            "{}{}",
            engine(io),
            plain("front", listen, &addresses, &extra)
        );
        Pair {
            balancer: Balancer::start(&config).unwrap(),
            listen,
            config,
            first,
            second,
        }
    }

    fn of(&self, mute: &Mute) -> Value {
        server(&self.balancer, &format!("front/{}", mute.address()))
    }

    fn sessions(&self) -> (u64, u64) {
        let current = |mute| self.of(mute)["sessions"]["current"].as_u64().unwrap();
        (current(&self.first), current(&self.second))
    }

    fn open(&self) -> TcpStream {
        open(&self.balancer, "front", self.listen)
    }
}

#[test]
fn a_drained_server_takes_nobody_new_and_its_sessions_finish_or_are_cut_after_the_limit() {
    for io in DRIVERS {
        let pair = Pair::start(io, "");
        let first = pair.first.address().to_string();
        let mut finishing = pair.open();
        let mut staying = pair.open();
        let drained = Instant::now();
        let answer = done(&pair.balancer, &["drain", &first, "--limit-ms", "1500"]);
        assert!(
            answer
                .trim_end()
                .ends_with("2 sessions still open, closing them in 1500 ms at the latest"),
            "{answer}"
        );
        let _new = pair.open();
        assert_eq!(pair.sessions(), (2, 1));
        let state = pair.of(&pair.first);
        assert_eq!(state["state"], "draining");
        assert_eq!(state["config_override"], "drained by operator");
        assert_eq!(end_of(&mut finishing, A_MOMENT), End::Open);
        drop(finishing);
        assert_eq!(end_of(&mut staying, LIMIT), End::Reset);
        assert!(drained.elapsed() >= Duration::from_millis(1_500));
        wait_until(&pair.balancer, "no session on the drained", || {
            pair.sessions() == (0, 1)
        });

        // A reload does not change it; undrain does.
        pair.balancer.reload(&pair.config).unwrap();
        assert_eq!(pair.of(&pair.first)["state"], "draining");
        let second = pair.second.address().to_string();
        let answer = done(&pair.balancer, &["drain", &second]);
        assert!(
            answer.contains("warning: no server of service front accepts clients now"),
            "{answer}"
        );
        done(&pair.balancer, &["undrain", &second]);
        let answer = done(&pair.balancer, &["undrain", &first]);
        assert!(answer.contains("accepts new clients again"), "{answer}");
        let _back = pair.open();
        assert_eq!(pair.sessions(), (1, 1));
        assert_eq!(pair.of(&pair.first)["config_override"], Value::Null);
        let answer = done(&pair.balancer, &["undrain", &first]);
        assert!(answer.contains("was not draining"), "{answer}");
    }
}

#[test]
fn a_connect_under_way_when_a_drain_is_over_does_not_settle_on_the_server() {
    for io in DRIVERS {
        let (mute, listen) = (Mute::new(), loopback());
        let waiting = mute.fill_its_backlog();
        let extra = "connect_timeout_ms = 20000";
        let config = plain("front", listen, &[mute.address()], extra);
        let balancer = Balancer::start(&format!("{}{config}", engine(io))).unwrap();
        let address = mute.address().to_string();
        let mut client = TcpStream::connect(listen).unwrap();
        let current = || server(&balancer, &format!("front/{address}"))["sessions"].clone();
        wait_until(&balancer, "a connect under way", || {
            current()["current"] == 1
        });
        done(&balancer, &["drain", &address, "--limit-ms", "0"]);
        assert_eq!(
            end_of(&mut client, A_MOMENT),
            End::Open,
            "not on the server yet"
        );
        let _let_in: Vec<_> = waiting.iter().map(|_| mute.accept()).collect();
        // There is no other server, so it is disconnected like any new client would be.
        assert_eq!(end_of(&mut client, LIMIT), End::Orderly, "{io}");
        assert_eq!(current()["total"], 1, "it did reach the server");
    }
}

#[test]
fn a_weight_holds_over_a_reload_and_the_status_shows_the_difference() {
    let pair = Pair::start("auto", "");
    let first = pair.first.address().to_string();
    let answer = done(&pair.balancer, &["weight", &first, "0"]);
    assert!(answer.contains("has weight 0"), "{answer}");
    let _client = pair.open();
    assert_eq!(pair.sessions(), (0, 1), "weight 0 takes nobody new");
    pair.balancer.reload(&pair.config).unwrap();
    let state = pair.of(&pair.first);
    assert_eq!(
        state["config_override"],
        "weight 0 set by operator, 1 in the file"
    );
    assert_eq!(
        (&state["weight"], &state["file_weight"]),
        (&0.into(), &1.into())
    );
    let table = done(&pair.balancer, &["status"]);
    assert!(
        table.contains("weight 0 set by operator, 1 in the file"),
        "{table}"
    );
    done(&pair.balancer, &["weight", &first, "1"]);
    assert_eq!(pair.of(&pair.first)["config_override"], Value::Null);
    let wrong = pair.balancer.command(&["weight", &first, "257"]).unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn shares_follow_a_weight_that_was_set_by_command() {
    let lab = Lab::new("operate-weight").unwrap();
    let servers = lab.web(2).unwrap();
    for io in DRIVERS {
        let listen = loopback();
        let toml = Service::new("front", listen, "http", &servers).toml();
        let balancer = Balancer::start(&format!("{}{toml}", engine(io))).unwrap();
        done(&balancer, &["weight", "front/web-1", "3"]);
        let answers: Vec<_> = (0..40).map(|_| web::get(listen, "/").unwrap()).collect();
        let first = answers.iter().filter(|name| *name == "web-1").count();
        assert_eq!(first, 30, "three of four: {answers:?}");
    }
}

#[test]
fn names_that_are_unknown_or_ambiguous_are_refused_and_say_what_to_write() {
    let (a, b) = (Mute::new(), Mute::new());
    let named = |name: &str, mute: &Mute| {
        let servers = format!("[{{ name = \"db\", address = \"{}\" }}]", mute.address());
        plain(name, loopback(), &[], "").replace("[]", &servers)
    };
    let config = format!("{}{}", named("orders", &a), named("reports", &b));
    let balancer = Balancer::start(&config).unwrap();
    let answer = refused(&balancer, &["drain", "dbx"]);
    assert!(
        answer.contains("\"dbx\"") && answer.contains("status"),
        "{answer}"
    );
    let answer = refused(&balancer, &["drain", "db"]);
    assert!(answer.contains("is ambiguous"), "{answer}");
    assert!(
        answer.contains("orders/db") && answer.contains("reports/db"),
        "{answer}"
    );
    done(&balancer, &["drain", "reports/db"]);
    assert_eq!(server(&balancer, "reports/db")["state"], "draining");
    assert_ne!(server(&balancer, "orders/db")["state"], "draining");
    done(&balancer, &["undrain", &b.address().to_string()]);
    assert_ne!(server(&balancer, "reports/db")["state"], "draining");
}

#[test]
fn every_field_of_the_status_is_in_its_document() {
    let pair = Pair::start("auto", "");
    let _client = pair.open();
    let mut names = BTreeSet::new();
    collect_names(&pair.balancer.status().unwrap(), &mut names);
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
    let text = fs::read_to_string(document).unwrap();
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !text.contains(name.as_str()))
        .collect();
    assert!(names.len() > 60 && missing.is_empty(), "{missing:?}");
}

fn collect_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                names.insert(name.clone());
                collect_names(value, names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        _ => {}
    }
}

#[test]
fn names_are_resolved_and_one_that_is_not_does_not_stop_the_start() {
    let lab = Lab::new("operate-names").unwrap();
    let port = lab.web(1).unwrap()[0].address.port();
    let listen = loopback();
    let config = format!(
        "[[service]]\nname = \"front\"\nlisten = \"{listen}\"\n\
         servers = [\"localhost:{port}\", \"no-such-host.invalid:80\"]\n\
         [service.health]\nprobe = \"http\"\ninterval_ms = 200\ntimeout_ms = 200\n"
    );
    let balancer = Balancer::start(&config).unwrap();
    let good = format!("front/localhost:{port}");
    wait_state(&balancer, &good, "up");
    let resolved = server(&balancer, &good)["resolved"].to_string();
    assert!(
        resolved.contains(&format!("127.0.0.1:{port}")),
        "{resolved}"
    );
    for _ in 0..10 {
        assert_eq!(web::get(listen, "/").unwrap(), "web-1");
    }
    wait_state(&balancer, "front/no-such-host.invalid:80", "down");
    // Clients may have detected the failure before the resolver has answered.
    wait_until(&balancer, "the name in the reason", || {
        let reason = server(&balancer, "front/no-such-host.invalid:80")["reason"].to_string();
        reason.contains("no-such-host.invalid")
    });
    let refused = server(&balancer, &good)["state"].clone();
    assert_eq!(refused, "up");
}

#[test]
fn nobody_is_called_down_because_his_name_is_still_being_resolved() {
    let servers: Vec<_> = (1..=60)
        .map(|port| format!("\"localhost:{port}\""))
        .collect();
    let config = format!(
        "[[service]]\nname = \"front\"\nlisten = \"{}\"\nservers = [{}]\n\
         [service.health]\ninterval_ms = 50\ntimeout_ms = 50\n",
        loopback(),
        servers.join(", ")
    );
    let balancer = Balancer::start(&config).unwrap();
    wait_until(&balancer, "a verdict on each", || {
        balancer.log().matches("first probe").count() == 60
    });
    let log = balancer.log();
    assert!(
        !log.contains("host name not resolved") && !log.contains("cannot resolve"),
        "{log}"
    );
}

#[test]
fn a_server_that_comes_back_starts_slowly() {
    let lab = Lab::new("operate-slow").unwrap();
    let servers = lab.web(2).unwrap();
    let listen = loopback();
    let mut front = Service::new("front", listen, "http", &servers);
    front.interval_ms = 100;
    front.extra.push("slow_start_ms = 4000".to_owned());
    let balancer = Balancer::start(&front.toml()).unwrap();
    wait_state(&balancer, "front/web-2", "up");
    let weight = || {
        server(&balancer, "front/web-2")["weight_effective"]
            .as_f64()
            .unwrap()
    };
    assert!(weight() >= 1.0, "no slow start at the start of the process");
    servers[1].kill().unwrap();
    wait_state(&balancer, "front/web-2", "down");
    servers[1].start().unwrap();
    wait_state(&balancer, "front/web-2", "up");
    let early = share_of_second(listen, 60);
    assert!(weight() < 1.0);
    wait_until(&balancer, "the whole weight", || weight() >= 1.0);
    let late = share_of_second(listen, 60);
    assert!(
        early < late && (29..=31).contains(&late),
        "{early} then {late} of 60"
    );
}

fn share_of_second(listen: SocketAddr, visits: usize) -> usize {
    let names = (0..visits).map(|_| web::get(listen, "/").unwrap());
    names.filter(|name| name == "web-2").count()
}

#[test]
fn a_monitor_that_cannot_log_in_is_reported_and_its_server_stays_in_use() {
    let lab = Lab::new("operate-monitor").unwrap();
    let mariadb = lab.mariadb_stand_alone(1, None).unwrap().remove(0);
    let listen = loopback();
    let good = Service::new("front", listen, "mysql", std::slice::from_ref(&mariadb)).toml();
    let bad = good.replace("password = \"monitor\"", "password = \"wrong\"");
    let balancer = Balancer::start(&bad).unwrap();
    let path = format!("front/{}", mariadb.name);
    wait_state(&balancer, &path, "up");
    let problem = server(&balancer, &path)["monitor_problem"].to_string();
    assert!(
        problem.contains("monitor") && problem.contains("denied"),
        "{problem}"
    );
    let table = done(&balancer, &["status"]);
    assert!(table.contains("denied"), "{table}");
    let log = balancer.log();
    assert!(
        log.contains("stays in use") && !log.contains("wrong"),
        "{log}"
    );
    evenkeel_lab::new_connections::greet(listen, evenkeel_lab::Greeting::Mysql, LIMIT).unwrap();
    mariadb
        .sql("ALTER USER monitor@127.0.0.1 IDENTIFIED BY 'wrong'")
        .unwrap();
    let problem = || server(&balancer, &path)["monitor_problem"].clone();
    wait_until(&balancer, "the end of the problem", || problem().is_null());
    assert!(balancer.log().contains("monitor: recovered"));
    balancer.reload(&good).unwrap();
    wait_until(&balancer, "the problem of a changed password", || {
        !problem().is_null()
    });
    assert_eq!(server(&balancer, &path)["state"], "up");
}

/// Returns the `ended` values of the connection lines, in either format.
fn endings(log: &str, json: bool) -> Vec<String> {
    let lines = log.lines().filter(|line| {
        line.contains("event=connection") || line.contains("\"event\":\"connection\"")
    });
    let ended = |line: &str| match json {
        true => {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["service"], "front");
            line["ended"].as_str().unwrap().to_owned()
        }
        false => {
            let (_, rest) = line.split_once("ended=").unwrap();
            rest.trim_matches('"').to_owned()
        }
    };
    lines.map(ended).collect()
}

#[test]
fn a_line_for_each_finished_connection_says_why_it_ended() {
    for (io, format) in [("auto", "text"), ("epoll", "json")] {
        let (mute, listen) = (Mute::new(), loopback());
        let log = format!("[log]\nconnections = true\nformat = {format:?}\n");
        let service = plain("front", listen, &[mute.address()], "retries = 0");
        let balancer = Balancer::start(&format!("{}{log}{service}", engine(io))).unwrap();
        let expect = |ending: &str| {
            wait_until(&balancer, ending, || {
                endings(&balancer.log(), format == "json")
                    .iter()
                    .any(|ended| ended.starts_with(ending))
            });
        };
        let client = TcpStream::connect(listen).unwrap();
        let (mut session, _) = mute.accept();
        drop(client);
        assert_eq!(end_of(&mut session, LIMIT), End::Orderly);
        drop(session);
        expect("client closed");
        let mut client = TcpStream::connect(listen).unwrap();
        let (mut session, _) = mute.accept();
        session.write_all(b"!").unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 1);
        drop(session);
        expect_end(client);
        expect("server closed");
        let client = TcpStream::connect(listen).unwrap();
        drop(mute.accept());
        expect_end(client);
        expect("connect failed: closed without sending data");
        let client = TcpStream::connect(listen).unwrap();
        let session = mute.accept();
        let address = mute.address().to_string();
        done(&balancer, &["drain", &address, "--limit-ms", "0"]);
        expect("terminated: drain limit");
        drop((client, session));
        expect_end(TcpStream::connect(listen).unwrap());
        expect("no server up");
        done(&balancer, &["undrain", &address]);
        drop(mute);
        expect_end(TcpStream::connect(listen).unwrap());
        expect("connect failed: ");
    }
}

fn expect_end(mut client: TcpStream) {
    assert_ne!(end_of(&mut client, LIMIT), End::Open);
}

#[test]
fn probing_twenty_servers_each_second_costs_next_to_nothing() {
    let servers: Vec<_> = (0..20).map(|_| Mute::new()).collect();
    let addresses: Vec<_> = servers.iter().map(Mute::address).collect();
    let config = plain("front", loopback(), &addresses, "").replace("\"off\"", "\"tcp\"");
    let balancer = Balancer::start(&config).unwrap();
    for mute in &servers {
        wait_state(&balancer, &format!("front/{}", mute.address()), "up");
    }
    let (before, since) = (balancer.cpu_us(), Instant::now());
    // The test measures idle time.
    thread::sleep(Duration::from_secs(5));
    let used = (balancer.cpu_us() - before) as f64 / since.elapsed().as_micros() as f64;
    eprintln!(
        "20 servers probed each second: {:.2} % of a core",
        used * 100.0
    );
    // Without optimization, unlike the shipped program, it is several times as much.
    let limit = if cfg!(debug_assertions) { 0.03 } else { 0.01 };
    assert!(used < limit, "{:.2} % of a core", used * 100.0);
}

#[test]
fn two_processes_with_one_port_are_told_apart_and_the_first_goes_on() {
    let (mute, listen) = (Mute::new(), loopback());
    let balancer = Balancer::start(&plain("front", listen, &[mute.address()], "")).unwrap();
    let config = plain("front", listen, &[mute.address()], "");
    let admin = format!("\n[admin]\nlisten = \"127.0.0.1:{}\"\n", free_port());
    let Err(error) = Balancer::start(&format!("{config}{admin}")) else {
        panic!("the second one started");
    };
    let error = format!("{error:#}");
    assert!(
        error.contains(&listen.to_string()) && error.contains("in use"),
        "{error}"
    );
    let _client = open(&balancer, "front", listen);
    assert_eq!(service(&balancer.status().unwrap(), "front")["state"], "up");
}

//! Tests of mistakes by users and peers: a clear message each, the process continues, other
//! services are unaffected.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use evenkeel_lab::{Balancer, Lab, Server, Service, web};
use harness::{
    DRIVERS, End, LIMIT, Mute, end_of, engine, loopback, plain, server, service, wait_state,
    wait_until,
};

/// A wrong file and the text that its message must contain.
struct Mistake {
    config: String,
    words: Vec<String>,
}

fn mistakes(good: &str, taken: SocketAddr) -> Vec<Mistake> {
    let listen = loopback();
    let server = loopback();
    let more = plain("more", listen, &[server], "");
    let mistake = |config: String, words: &[&str]| Mistake {
        config: format!("{good}{config}"),
        words: words.iter().map(ToString::to_string).collect(),
    };
    vec![
        mistake(
            format!("{more}intervall_ms = 5\n"),
            &[
                "E_UNKNOWN_KEY",
                "intervall_ms",
                "did you mean `interval_ms`",
            ],
        ),
        mistake(
            more.replace(&server.to_string(), "10.0.0.1"),
            &["E_ADDRESS", "10.0.0.1", "port"],
        ),
        mistake(
            more.replace(&listen.to_string(), "10.0.0.x:1"),
            &["E_ADDRESS", "10.0.0.x"],
        ),
        mistake(
            format!("{more}{}", more.replace("\"more\"", "\"again\"")),
            &["E_DUPLICATE_LISTEN", "more", &listen.to_string()],
        ),
        mistake(
            more.replace(
                &format!("\"{server}\""),
                &format!("{{ address = \"{server}\", weight = -1 }}"),
            ),
            &["E_RANGE", "weight", "0 to 256"],
        ),
        mistake(
            more.replace(&listen.to_string(), &taken.to_string()),
            &["more", &taken.to_string()],
        ),
        mistake(
            format!(
                "{}[service.monitor]\nuser = \"m\"\npassword_file = \"/no/such/file\"\n",
                more.replace("\"off\"", "\"mysql\"")
            ),
            &["E_FILE", "/no/such/file"],
        ),
        mistake("[[service".to_owned(), &["E_SYNTAX"]),
    ]
}

#[test]
fn a_wrong_file_is_refused_with_its_place_at_the_start_and_at_a_reload() {
    let lab = Lab::new("mistakes").unwrap();
    let web = lab.web(1).unwrap();
    let listen = loopback();
    let taken = Mute::new();
    let good = Service::new("good", listen, "http", &web).toml();
    let balancer = Balancer::start(&good).unwrap();
    wait_state(&balancer, "good/web-1", "up");
    for Mistake { config, words } in mistakes(&good, taken.address()) {
        let beside = config.replace(&listen.to_string(), &loopback().to_string());
        let start = Balancer::start(&beside).err().expect("it does not start");
        let reload = balancer.reload(&config).unwrap_err().to_string();
        for text in [format!("{start:#}"), reload] {
            let missing = words.iter().find(|word| !text.contains(*word));
            assert_eq!(missing, None, "in {text}");
        }
        assert_untouched(&balancer, listen);
    }
    assert!(balancer.is_running());
}

/// Checks that the other service still answers and has counted nothing.
fn assert_untouched(balancer: &Balancer, listen: SocketAddr) {
    assert_eq!(web::get(listen, "/").unwrap(), "web-1");
    let status = balancer.status().unwrap();
    assert_eq!(service(&status, "good")["state"], "up");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let (mute, listen) = (Mute::new(), loopback());
    let balancer = Balancer::start(&plain("good", listen, &[mute.address()], "")).unwrap();
    let output = balancer
        .command(&["check", "-c", "/no/such/evenkeel.toml"])
        .unwrap();
    assert_ne!(output.status.code(), Some(0));
    let program = evenkeel_lab::balancer::find_binary().unwrap();
    for command in ["check", "run"] {
        let output = std::process::Command::new(&program)
            .args([command, "-c", "/no/such/evenkeel.toml"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let printed = harness::printed(&output);
        assert!(
            printed.contains("/no/such/evenkeel.toml") && printed.contains("E_FILE"),
            "{printed}"
        );
    }
    let config = balancer.status().unwrap()["config"]["path"].clone();
    let path = config.as_str().unwrap();
    std::fs::remove_file(path).unwrap();
    let printed = harness::refused(&balancer, &["reload"]);
    assert!(
        printed.contains(path) && printed.contains("configuration unchanged"),
        "{printed}"
    );
    harness::open(&balancer, "good", listen);
}

/// Starts the service `good` in front of a web server, and further config lines.
fn with_good(io: &str, web: &[Server], more: &str) -> (Balancer, SocketAddr) {
    let listen = loopback();
    let good = Service::new("good", listen, "http", web).toml();
    let balancer = Balancer::start(&format!("{}{good}{more}", engine(io))).unwrap();
    wait_state(&balancer, "good/web-1", "up");
    (balancer, listen)
}

#[test]
fn a_port_that_speaks_something_else_is_down_with_a_reason_and_hurts_nobody() {
    let lab = Lab::new("mistakes-garbage").unwrap();
    let web = lab.web(2).unwrap();
    let database = |name: &str, probe: &str| {
        let mut toml = Service::new(name, loopback(), probe, &web[1..]).toml();
        toml.push('\n');
        toml
    };
    let garbage = Garbage::new();
    for (probe, words) in [
        ("mysql", "waiting for the server's greeting"),
        ("postgres", "PostgreSQL"),
    ] {
        let (balancer, listen) = with_good("auto", &web[..1], &database("odd", probe));
        wait_state(&balancer, "odd/web-2", "down");
        let reason = server(&balancer, "odd/web-2")["reason"].to_string();
        assert!(reason.contains(words), "{probe}: {reason}");
        assert_untouched(&balancer, listen);
    }
    for probe in ["mysql", "postgres", "http"] {
        let mut odd = Service::new("odd", loopback(), probe, &[]);
        odd.servers.push(("noise".to_owned(), garbage.address));
        let (balancer, listen) = with_good("auto", &web[..1], &odd.toml());
        wait_state(&balancer, "odd/noise", "down");
        let reason = server(&balancer, "odd/noise")["reason"].to_string();
        eprintln!("{probe} probe against noise: {reason}");
        assert_untouched(&balancer, listen);
    }
}

/// A server that sends noise.
struct Garbage {
    address: SocketAddr,
}

impl Garbage {
    fn new() -> Garbage {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let noise: Vec<u8> = (0..20_000_u32).map(|n| (n * 31 % 251) as u8).collect();
                let _ = stream.map(|mut stream| stream.write_all(&noise));
            }
        });
        Garbage { address }
    }
}

#[test]
fn a_proxy_header_from_a_stranger_ends_his_connection_and_no_other() {
    let lab = Lab::new("mistakes-proxy").unwrap();
    let web = lab.web(1).unwrap();
    for io in DRIVERS {
        let strange = loopback();
        let mut odd = Service::new("odd", strange, "http", &web);
        odd.extra
            .push("accept_proxy_from = [\"10.9.8.7\"]".to_owned());
        let more = format!("{}\n[log]\nconnections = true\n", odd.toml());
        let (balancer, listen) = with_good(io, &web, &more);
        let mut honest = TcpStream::connect(strange).unwrap();
        let mut stranger = TcpStream::connect(strange).unwrap();
        stranger
            .write_all(b"PROXY TCP4 10.1.1.1 10.1.1.2 1 2\r\nGET / HTTP/1.0\r\n\r\n")
            .unwrap();
        assert_ne!(end_of(&mut stranger, LIMIT), End::Open);
        wait_until(&balancer, "a line about the PROXY header", || {
            balancer.log().contains("PROXY header")
        });
        let log = balancer.log();
        let line = log.lines().find(|line| line.contains("PROXY header"));
        eprintln!("{}", line.unwrap());
        assert!(line.unwrap().contains("accept_proxy_from"), "{line:?}");
        wait_until(
            &balancer,
            "a warning that needs no log of connections",
            || {
                let log = balancer.log();
                log.contains("clients rejected: 1: PROXY header")
            },
        );
        let errors = service(&balancer.status().unwrap(), "odd")["errors"].clone();
        assert_eq!(errors["proxy_header"], 1, "{errors}");
        honest.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        honest.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("web-1"), "{answer}");
        assert_untouched(&balancer, listen);
    }
}

#[test]
fn a_browser_that_posts_to_the_admin_port_is_refused_and_nothing_changes() {
    let lab = Lab::new("mistakes-browser").unwrap();
    let web = lab.web(1).unwrap();
    let (balancer, listen) = with_good("auto", &web, "");
    let port = balancer.admin_port().unwrap();
    let admin = SocketAddr::from(([127, 0, 0, 1], port));
    let json = "Content-Type: application/json";
    let requests = [
        // A form of another site.
        "Host: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Type: text/plain".to_owned(),
        // A name that resolves to this address.
        format!("Host: evil.example\r\n{json}"),
        // A client that is no browser, without a token.
        format!("Host: 127.0.0.1\r\n{json}"),
    ];
    for headers in requests {
        let answer = post(admin, "/api/v1/servers/good%2Fweb-1/drain", &headers);
        let status: u16 = answer[9..12].parse().unwrap();
        assert!((400..500).contains(&status), "{answer}");
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        eprintln!("{status} {body}");
        assert!(body.len() > 40, "it says why: {answer}");
        assert_eq!(server(&balancer, "good/web-1")["state"], "up");
        assert_untouched(&balancer, listen);
    }
}

fn post(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let body = "{\"limit_ms\":0}";
    write!(
        stream,
        "POST {path} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

//! Tests of the access log of HTTP services: one line per request, with the reason for its end.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use evenkeel_lab::{Balancer, eventually, free_port};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(10);

#[track_caller]
fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    eventually(LIMIT, what, || Ok(is_true().then_some(()))).unwrap();
}

/// Starts a server that treats a request by its path.
fn origin() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            std::thread::spawn(move || serve(client));
        }
    });
    address
}

fn serve(mut client: TcpStream) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    loop {
        let (mut path, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if path.is_empty() => path = line.split(' ').nth(1).unwrap().to_owned(),
                Ok(_) if line == "\r\n" => break,
                Ok(_) => {
                    if let Some(text) = line.strip_prefix("Content-Length: ") {
                        length = text.trim().parse().unwrap();
                    }
                }
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
        match path.split('?').next().unwrap() {
            "/cut" => {
                client.write_all(cut).unwrap();
                return;
            }
            "/half" => client.write_all(cut).unwrap(),
            "/silent" => {}
            _ => client
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody")
                .unwrap(),
        }
    }
}

struct Bed {
    balancer: Balancer,
    listen: String,
}

impl Bed {
    fn new(io: &str, server: &str, more: &str) -> Bed {
        let listen = format!("127.0.0.1:{}", free_port());
        let config = format!(
            "[engine]\nio = \"{io}\"\n[[service]]\nname = \"web\"\nprotocol = \"http\"\n\
             listen = \"{listen}\"\nservers = [\"{server}\"]\nretries = 0\n\
             [service.health]\nprobe = \"tcp\"\n\
             [service.times]\nfirst_byte_ms = 1000\nheader_ms = 1000\nbody_idle_ms = 1000\n\
             [service.http]\n{more}\n"
        );
        let balancer = Balancer::start(&config).unwrap();
        Bed { balancer, listen }
    }

    /// Sends bytes, and returns what comes until the end or until `length` bytes have come.
    fn exchange(&self, request: &str, length: usize) -> String {
        let mut client = TcpStream::connect(&self.listen).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut seen = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match client.read(&mut seen[filled..]) {
                Ok(0) | Err(_) => break,
                Ok(more) => filled += more,
            }
        }
        String::from_utf8_lossy(&seen[..filled]).into_owned()
    }

    /// Returns the lines of requests once there are this many.
    fn lines(&self, count: usize) -> Vec<Value> {
        let mut lines = Vec::new();
        until("lines of requests", || {
            let log = self.balancer.log();
            let json = log
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            lines = json
                .filter(|line: &Value| line["event"] == "request")
                .collect();
            lines.len() >= count
        });
        assert_eq!(lines.len(), count, "{lines:?}");
        lines
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
}

/// Asserts fields of a line; `reason` is a part of it.
#[track_caller]
fn check(line: &Value, status: Option<u16>, end: &str, phase: Option<&str>, reason: &str) {
    let as_text = |key: &str| line[key].as_str().map(str::to_owned);
    assert_eq!(line["status"].as_u64(), status.map(u64::from), "{line}");
    assert_eq!(as_text("end").as_deref(), Some(end), "{line}");
    assert_eq!(as_text("phase").as_deref(), phase, "{line}");
    let known = as_text("reason").unwrap_or_default();
    assert!(
        known.contains(reason) && known.is_empty() == reason.is_empty(),
        "{line}"
    );
}

fn on_both(test: fn(&str)) {
    test("io_uring");
    test("epoll");
}

#[test]
fn a_request_is_a_line_with_its_times_and_bytes() {
    on_both(|io| {
        let server = origin();
        let bed = Bed::new(io, &server, "access_log = \"json\"");
        let request = "POST /a/b?c=d HTTP/1.1\r\nHost: shop.example:80\r\nContent-Length: 5\r\n\
             User-Agent: test/1\r\nReferer: https://x/?q=1\r\nX-Request-ID: r-1\r\n\
             Cookie: secret-cookie\r\nAuthorization: secret-authorization\r\n\
             Connection: close\r\n\r\nhello";
        let answer = bed.exchange(request, 10_000);
        assert!(answer.ends_with("body"), "{answer}");
        let line = &bed.lines(1)[0];
        check(line, Some(200), "complete", None, "");
        let text = |key: &str| line[key].as_str().unwrap();
        assert_eq!((text("method"), text("target")), ("POST", "/a/b?c=d"));
        assert_eq!((text("host"), text("version")), ("shop.example:80", "1.1"));
        assert_eq!((text("service"), text("client")), ("web", "127.0.0.1"));
        assert_eq!(
            (text("user_agent"), text("referer")),
            ("test/1", "https://x/?q=1")
        );
        assert_eq!((text("request_id"), text("server")), ("r-1", &*server));
        let number = |key: &str| line[key].as_u64().unwrap();
        assert_eq!(number("from_client_bytes"), request.len() as u64);
        assert_eq!(number("to_client_bytes"), answer.len() as u64);
        assert!(number("wait_us") <= number("first_byte_us"), "{line}");
        assert!(number("first_byte_us") <= number("total_us"), "{line}");
        assert_eq!(number("retries"), 0);
        assert!(!bed.balancer.log().contains("secret"));
    });
}

#[test]
fn query_strings_can_be_masked() {
    let bed = Bed::new(
        "auto",
        &origin(),
        "access_log = \"json\"\naccess_log_query = \"mask\"",
    );
    let fields = "Referer: https://x/y?token=secret\r\nConnection: close\r\n";
    bed.exchange(
        &get("/a?token=secret").replace("Connection: close\r\n", fields),
        10_000,
    );
    bed.exchange(&get("/b"), 10_000);
    let lines = bed.lines(2);
    assert_eq!(lines[0]["target"], "/a?***");
    assert_eq!(lines[0]["referer"], "https://x/y?***");
    assert_eq!(lines[1]["target"], "/b");
    assert!(!bed.balancer.log().contains("secret"));
}

#[test]
fn the_combined_format_is_what_log_tools_read() {
    let bed = Bed::new("auto", &origin(), "access_log = \"combined\"");
    bed.exchange(&get("/a?b=1"), 10_000);
    until("a line", || {
        bed.balancer
            .log()
            .contains("\"GET /a?b=1 HTTP/1.1\" 200 4 \"-\" \"-\"")
    });
    let log = bed.balancer.log();
    let line = log.lines().find(|line| line.contains("GET /a")).unwrap();
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
}

#[test]
fn without_the_key_there_is_no_line() {
    let bed = Bed::new("auto", &origin(), "");
    bed.exchange(&get("/quiet"), 10_000);
    std::thread::sleep(Duration::from_millis(1_200));
    assert!(!bed.balancer.log().contains("/quiet"));
}

#[test]
fn each_end_has_its_reason() {
    on_both(|io| {
        let bed = Bed::new(io, &origin(), "access_log = \"json\"\nbody_bytes_max = 10");
        refused_requests(&bed);
        unfinished_responses(&bed);
    });
}

/// Leaves three lines.
fn refused_requests(bed: &Bed) {
    bed.exchange("GET / HTTP/1.1\r\nHost : x\r\n\r\n", 10_000);
    check(&bed.lines(1)[0], Some(400), "refused", Some("request"), " ");
    let large = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n";
    bed.exchange(large, 10_000);
    let line = &bed.lines(2)[1];
    check(
        line,
        Some(413),
        "refused",
        Some("request"),
        "body_bytes_max",
    );
    assert_eq!(line["from_client_bytes"], large.len());
    bed.exchange("GET / HTTP/1.1\r\n", 10_000);
    check(
        &bed.lines(3)[2],
        Some(408),
        "timed out",
        Some("request"),
        "header_ms",
    );
}

/// Adds five lines to three.
fn unfinished_responses(bed: &Bed) {
    bed.exchange(&get("/silent"), 10_000);
    check(
        &bed.lines(4)[3],
        Some(504),
        "timed out",
        Some("first byte"),
        "first_byte_ms",
    );
    let mut client = TcpStream::connect(&bed.listen).unwrap();
    client.write_all(get("/silent").as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(client);
    check(
        &bed.lines(5)[4],
        Some(499),
        "client left",
        Some("first byte"),
        "disconnected",
    );
    bed.exchange(&get("/cut"), 10_000);
    check(
        &bed.lines(6)[5],
        Some(200),
        "server cut",
        Some("body"),
        "closed",
    );
    bed.exchange(&get("/half"), 10_000);
    check(
        &bed.lines(7)[6],
        Some(200),
        "timed out",
        Some("body"),
        "body_idle_ms",
    );
    let mut client = TcpStream::connect(&bed.listen).unwrap();
    client.write_all(get("/half").as_bytes()).unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    drop(client);
    check(
        &bed.lines(8)[7],
        Some(200),
        "client left",
        Some("body"),
        " ",
    );
}

#[test]
fn a_service_without_a_server_is_answered_with_the_reason() {
    let closed = format!("127.0.0.1:{}", free_port());
    let bed = Bed::new("auto", &closed, "access_log = \"json\"");
    bed.exchange(&get("/"), 10_000);
    let lines = bed.lines(1);
    assert_eq!(lines[0]["end"], "answered", "{lines:?}");
    assert!(lines[0]["status"].as_u64().unwrap() >= 502);
    assert!(lines[0]["reason"].as_str().unwrap().contains("server"));
    assert_eq!(lines[0]["first_byte_us"], Value::Null);
}

#[test]
fn the_last_lines_are_written_when_the_process_ends() {
    let bed = Bed::new("auto", &origin(), "access_log = \"json\"");
    for _ in 0..20 {
        bed.exchange(&get("/last"), 10_000);
    }
    bed.balancer.stop().unwrap();
    assert_eq!(bed.lines(20).len(), 20);
}

#[test]
fn the_status_counts_requests_and_their_connections() {
    let bed = Bed::new("auto", &origin(), "");
    bed.exchange(&get("/"), 10_000);
    bed.exchange("GET / HTTP/1.1\r\nHost : x\r\n\r\n", 10_000);
    let mut client = TcpStream::connect(&bed.listen).unwrap();
    client.write_all(get("/silent").as_bytes()).unwrap();
    let mut http = Value::Null;
    until("a request in progress", || {
        http = bed.balancer.status().unwrap()["services"][0]["http"].clone();
        http["pools"][0]["requests"] == 1
    });
    let server = &bed.balancer.status().unwrap()["services"][0]["servers"][0];
    let received = server["bytes"]["from_clients"].as_u64().unwrap();
    let sent = (get("/").len() + get("/silent").len()) as u64;
    assert!(received >= sent, "{server}");
    assert_eq!(http["requests_total"], 2, "{http}");
    assert_eq!(http["responses"][1]["count"], 1, "{http}");
    assert_eq!(http["responses"][3]["count"], 1, "{http}");
    assert_eq!(http["refused_total"], 1, "{http}");
    assert_eq!(http["own_responses_total"], 1, "{http}");
    assert_eq!(http["request_us"]["count"], 2, "{http}");
    assert_eq!(http["pools"][0]["connections"], 1, "{http}");
}

#[test]
fn counts_of_requests_survive_an_upgrade() {
    let bed = Bed::new("auto", &origin(), "");
    for _ in 0..5 {
        bed.exchange(&get("/"), 10_000);
    }
    bed.balancer.upgrade(&[]).unwrap();
    bed.exchange(&get("/"), 10_000);
    let mut http = Value::Null;
    until("all requests are counted", || {
        http = bed.balancer.status().unwrap()["services"][0]["http"].clone();
        http["requests_total"] == 6
    });
    assert_eq!(http["responses"][1]["count"], 6, "{http}");
    assert_eq!(http["request_us"]["count"], 6, "{http}");
}

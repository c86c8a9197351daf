//! Tests with a real browser, headless Chromium: a page with pictures, an upload, a download, a
//! WebSocket and an EventSource, plain and over TLS.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::{Value, json};

use crate::certificates::Certificates;
use crate::peer::{self, Kind};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_browser_can_do_all_that_its_page_asks
}

/// Limit for the page, from the browser's first connection.
const PAGE_LIMIT: Duration = Duration::from_secs(60);

/// Time in which a browser must connect. One that does not has tested nothing: another one is
/// started.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Number of browsers that are started for one visit.
const STARTS_MAX: usize = 3;

/// A program that ends with the test, with its children.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

/// Starts a program; prints why it cannot run and returns `None` if it is not installed.
fn start(program: &str, arguments: &[&str]) -> Option<Ending> {
    let started = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let started = started.inspect_err(|error| println!("skipped: {program}: {error}"));
    started.ok().map(Ending)
}

fn a_browser_can_do_all_that_its_page_asks(io: &str) {
    // A browser ends its requests when an interface of its machine appears: other tests have some.
    if let Err(error) = evenkeel_lab::enter_own_loopback() {
        println!("beside the interfaces of other tests: {error:#}");
    }
    let directory = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/browser");
    let page = sources.join("page.html").display().to_string();
    let script = sources.join("origin.js").display().to_string();
    let report = directory.path().join("report");
    let server = peer::own_address(Kind::V4);
    let port = server.rsplit(':').next().unwrap().to_owned();
    let node = [&*script, &port, &page, report.to_str().unwrap()];
    let Some(_server) = start("node", &node) else {
        return;
    };
    peer::until("the page's server", || {
        std::net::TcpStream::connect(&server).is_ok()
    });
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let tls = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\n",
        certificates.at("server.crt"),
        certificates.at("server.key")
    );
    let log = "[service.http]\naccess_log = \"json\"\n";
    for (scheme, more) in [("http", ""), ("https", &*tls)] {
        let bed = Bed::of(io, &[&server], &format!("{log}{more}"));
        let address = format!("{scheme}://{}/", bed.listen);
        let Some(seen) = visit(&bed, &address, &server, (directory.path(), &report)) else {
            return;
        };
        let expected = json!({
            "pictures": 20, "upload": true, "download": true, "webSocket": 3, "events": "0,1,2,3,4",
        });
        assert!(
            seen == expected,
            "{address}: {seen}\n{}",
            causes(&bed, &server)
        );
        let sessions = bed.status()["sessions"]["total"].as_u64().unwrap();
        println!("{io}, {scheme}: {sessions} connections for 25 requests");
        assert_socket(&bed, scheme);
        assert!(
            sessions <= 12,
            "{sessions} connections\n{}",
            causes(&bed, &server)
        );
    }
}

/// Asserts that the WebSocket was opened over TLS on the connection of HTTP/2 (RFC 8441), else by
/// HTTP/1.1.
#[track_caller]
fn assert_socket(bed: &Bed, scheme: &str) {
    let expected = match scheme {
        "https" => (json!("2"), json!(200)),
        _ => (json!("1.1"), json!(101)),
    };
    let line = || {
        let log = bed.balancer.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut requests = lines.filter(|line: &Value| line["event"] == "request");
        requests.find(|line| line["target"] == "/socket")
    };
    peer::until("the WebSocket in the access log", || line().is_some());
    let line = line().unwrap();
    let seen = (line["version"].clone(), line["status"].clone());
    assert_eq!(seen, expected, "{line}");
    assert_eq!(line["end"], "complete", "{line}");
}

/// Lets a browser load a page, and returns the page's report; `None`: there is no browser.
fn visit(
    bed: &Bed,
    address: &str,
    server: &str,
    (directory, report): (&Path, &Path),
) -> Option<Value> {
    for _ in 0..STARTS_MAX {
        let profile = tempfile::tempdir_in(directory).unwrap();
        let _browser = start_browser(profile.path(), address)?;
        if connects(bed, report) {
            await_report(bed, address, server, report);
            let text = fs::read_to_string(report).unwrap();
            fs::remove_file(report).unwrap();
            return Some(serde_json::from_str(&text).unwrap());
        }
        println!("{address}: a browser did not connect within {START_LIMIT:?}");
    }
    panic!("{address}: no browser has connected");
}

/// Returns the state of both sides in few lines: the end of the test's output has room for no more.
fn causes(bed: &Bed, server: &str) -> String {
    let log = bed.balancer.log();
    let lines: Vec<&str> = log.lines().collect();
    format!(
        "unfinished at the server: {}\nsessions: {}\n{}",
        unfinished(server).unwrap_or_else(|error| error.to_string()),
        bed.status()["sessions"],
        lines[lines.len().saturating_sub(6)..].join("\n")
    )
}

/// Returns the requests that the page's server has not finished.
fn unfinished(server: &str) -> std::io::Result<String> {
    let mut socket = std::net::TcpStream::connect(server)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.write_all(b"GET /unfinished HTTP/1.0\r\nHost: page\r\n\r\n")?;
    let mut response = String::new();
    socket.read_to_string(&mut response)?;
    Ok(response.lines().last().unwrap_or_default().to_owned())
}

fn start_browser(profile: &Path, address: &str) -> Option<Ending> {
    let profile = format!("--user-data-dir={}", profile.display());
    let arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--ignore-certificate-errors",
        "--remote-debugging-port=0",
        &profile,
        address,
    ];
    start("chromium", &arguments)
}

/// Returns whether the browser connects in time.
fn connects(bed: &Bed, report: &Path) -> bool {
    let start = Instant::now();
    while start.elapsed() < START_LIMIT {
        if report.is_file() || bed.status()["sessions"]["total"].as_u64() > Some(0) {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

fn await_report(bed: &Bed, address: &str, server: &str, report: &Path) {
    let start = Instant::now();
    while !report.is_file() {
        assert!(
            start.elapsed() < PAGE_LIMIT,
            "{address}: no report\n{}",
            causes(bed, server)
        );
        thread::sleep(Duration::from_millis(20));
    }
}

//! Tests with real clients: curl, nghttp, h2load and Node, over TLS and in plaintext, on one port.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::certificates::Certificates;
use crate::origin::{Incoming, Origin, Seen, ok, reply};
use crate::websocket::{echo, switching};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    curl_is_served
    nghttp_is_served
    h2load_is_served
    node_is_served
}

/// Length of large bodies.
const LARGE: usize = 5_000_000;

/// Requests that a server answers together.
const TOGETHER: usize = 100;

/// State of the server that its connections share.
#[derive(Default)]
struct Gates {
    /// Requests that wait for each other, and events that were received.
    state: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gates {
    fn change<T>(&self, change: impl FnOnce(&mut (usize, usize)) -> T) -> T {
        let changed = change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
        changed
    }

    /// Waits for a condition. Returns false if it is not met within a limit.
    fn wait(&self, is_met: impl Fn(&(usize, usize)) -> bool) -> bool {
        let state = self.state.lock().unwrap();
        let limit = Duration::from_secs(20);
        let waits = |state: &mut (usize, usize)| !is_met(state);
        let waited = self.changed.wait_timeout_while(state, limit, waits);
        !waited.unwrap().1.timed_out()
    }
}

/// Starts a server with pages for all that is tested.
fn site() -> Origin {
    let gates = Arc::new(Gates::default());
    Origin::scripted(move |incoming, log| {
        while let Some(mut seen) = incoming.head() {
            if seen.field("Expect").is_some() {
                reply(incoming.socket, "HTTP/1.1 100 Continue\r\n\r\n");
            }
            if incoming.body(&mut seen).is_none() {
                return;
            }
            log(&seen);
            if seen.field("Upgrade").is_some() {
                reply(incoming.socket, switching(&seen));
                return echo(incoming);
            }
            if !respond(incoming, &seen, &gates) {
                return;
            }
        }
    })
}

fn respond(incoming: &Incoming<'_>, seen: &Seen, gates: &Gates) -> bool {
    let answer = match seen.path() {
        "/large" => ok(&"x".repeat(LARGE)),
        "/upload" => ok(&seen.body.len().to_string()),
        "/cookie" => ok(&seen.field("Cookie").unwrap_or_default()),
        "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n".to_owned(),
        "/hints" => {
            let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
            [hints, &ok("/hints")].concat()
        }
        "/trailers" => format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\
             X-Seen: {}\r\n\r\n",
            seen.trailers.trim_end().replace(": ", "=")
        ),
        "/together" => {
            let own = gates.change(|(waiting, _)| {
                *waiting += 1;
                *waiting
            });
            let all = own.next_multiple_of(TOGETHER);
            match gates.wait(|(waiting, _)| *waiting >= all) {
                true => ok("together"),
                false => "HTTP/1.1 500 Alone\r\nContent-Length: 0\r\n\r\n".to_owned(),
            }
        }
        "/events" => return events(incoming, gates),
        "/received" => {
            gates.change(|(_, events)| *events += 1);
            ok("")
        }
        path => ok(path),
    };
    reply(incoming.socket, answer)
}

/// Sends an event after each one that the client says it has received.
fn events(incoming: &Incoming<'_>, gates: &Gates) -> bool {
    gates.change(|(_, events)| *events = 0);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
    reply(
        incoming.socket,
        format!("{head}Transfer-Encoding: chunked\r\n\r\n"),
    );
    for number in 1..=3 {
        reply(incoming.socket, format!("8\r\ndata: {number}\n\r\n"));
        if !gates.wait(|(_, events)| *events >= number) {
            return false;
        }
    }
    reply(incoming.socket, "0\r\n\r\n")
}

/// A service over TLS and in plaintext, and its server.
pub(crate) struct Site {
    pub(crate) bed: Bed,
    pub(crate) origin: Origin,
    pub(crate) certificates: Certificates,
}

impl Site {
    pub(crate) fn new(io: &str) -> Option<Site> {
        let certificates = Certificates::make()?;
        let origin = site();
        let bed = Bed::new(io, &[&origin], &crate::tls(&certificates));
        Some(Site {
            bed,
            origin,
            certificates,
        })
    }

    /// Returns the URLs of a path in plaintext and over TLS.
    pub(crate) fn urls(&self, path: &str) -> [String; 2] {
        ["http", "https"].map(|scheme| format!("{scheme}://{}{path}", self.bed.listen))
    }

    fn last(&self) -> Seen {
        self.origin.seen().pop().unwrap()
    }
}

/// Returns a command, unless the program is missing.
pub(crate) fn command(name: &str) -> Option<Command> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut directories = path.split(':');
    if !directories.any(|directory| Path::new(directory).join(name).is_file()) {
        println!("skipped: {name} is not installed");
        return None;
    }
    Some(Command::new(name))
}

/// Runs a command with this input, and returns what it prints; it must succeed.
#[track_caller]
pub(crate) fn run(mut command: Command, input: &[u8]) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {output:?}");
    // A program may leave its input.
    let _ = writer.join().unwrap();
    printed
}

impl Site {
    fn curl(&self, url: &str, options: &[&str]) -> Option<Command> {
        let mut curl = command("curl")?;
        curl.args([
            "-sS",
            "--max-time",
            "60",
            "--cacert",
            &self.certificates.at("ca.crt"),
        ]);
        curl.arg(match url.starts_with("https") {
            true => "--http2",
            false => "--http2-prior-knowledge",
        });
        curl.args(["-w", "\n%{http_version} %{http_code}"]);
        curl.args(options).arg(url);
        Some(curl)
    }
}

fn curl_is_served(io: &str) {
    let Some(site) = Site::new(io) else { return };
    let body = "y".repeat(LARGE);
    let rows: [(&str, &[&str], &str); 9] = [
        ("/get", &[], "/get\n2 200"),
        ("/get", &["--http1.1"], "/get\n1.1 200"),
        ("/upload", &["--data-binary", "@-"], "5000000\n2 200"),
        ("/upload", &["-X", "POST", "-T", "-"], "5000000\n2 200"),
        ("/upload", &["--http1.1", "-T", "-"], "5000000\n1.1 200"),
        (
            "/upload",
            &["--data-binary", "@-", "-H", "Expect: 100-continue"],
            "5000000\n2 200",
        ),
        ("/upload", &["-d", ""], "0\n2 200"),
        (
            "/cookie",
            &["-H", "Cookie: a=1", "-H", "Cookie: b=2"],
            "a=1; b=2\n2 200",
        ),
        (
            "/large",
            &["-o", "/dev/null", "-w", "%{size_download}"],
            "5000000",
        ),
    ];
    for (path, options, expected) in rows {
        for url in site.urls(path) {
            let Some(curl) = site.curl(&url, options) else {
                return;
            };
            assert_eq!(run(curl, body.as_bytes()), expected, "{url} {options:?}");
        }
    }
    for (path, options, expected) in [
        ("/head", "-I", "content-length: 1234"),
        ("/hints", "-i", "link: </a.css>; rel=preload"),
        ("/trailers", "-i", "x-seen:"),
    ] {
        for url in site.urls(path) {
            let printed = run(site.curl(&url, &[options]).unwrap(), b"");
            assert!(printed.contains(expected), "{url}: {printed}");
            assert!(printed.ends_with("2 200"), "{url}: {printed}");
        }
    }
    for url in site.urls("/events") {
        let mut curl = site.curl(&url, &["-N"]).unwrap();
        let child = Ends(curl.stdout(Stdio::piped()).spawn().unwrap());
        receive_events(&site, child);
    }
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads each event before the server sends the next one.
fn receive_events(site: &Site, mut child: Ends) {
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut client = site.bed.client();
    for number in 1..=3 {
        let line = lines.next().unwrap().unwrap();
        assert_eq!(line, format!("data: {number}"));
        assert_eq!(client.ask("GET", "/received", &[]).status(), 200);
    }
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(rest, ["", "2 200"]);
}

fn nghttp_is_served(io: &str) {
    let Some(site) = Site::new(io) else { return };
    let work_dir = tempfile::tempdir().unwrap();
    let file = work_dir.path().join("body");
    std::fs::write(&file, "y".repeat(LARGE)).unwrap();
    let file = file.to_str().unwrap();
    let rows: [(&str, &[&str], &str); 8] = [
        ("/get", &["-v"], ":status: 200"),
        (
            "/head",
            &["-v", "-H", ":method: HEAD"],
            "content-length: 1234",
        ),
        ("/upload", &["-d", file], "5000000"),
        ("/upload", &["-d", file, "--no-content-length"], "5000000"),
        ("/upload", &["-d", file, "--expect-continue"], "5000000"),
        (
            "/trailers",
            &[
                "-v",
                "-d",
                file,
                "--no-content-length",
                "--trailer",
                "x-md: abc",
            ],
            "x-seen: x-md=abc",
        ),
        ("/hints", &["-v"], ":status: 103"),
        (
            "/large",
            &["-v", "-n", "-w", "16", "-W", "17"],
            "END_STREAM",
        ),
    ];
    for (path, options, expected) in rows {
        for url in site.urls(path) {
            let Some(mut nghttp) = command("nghttp") else {
                return;
            };
            nghttp
                .args(["-t", "60", "--no-verify-peer"])
                .args(options)
                .arg(&url);
            let printed = run(nghttp, b"");
            assert!(printed.contains(expected), "{url} {options:?}: {printed}");
            assert!(!printed.contains("RST_STREAM"), "{url}: {printed}");
        }
    }
    let seen = site.origin.seen();
    assert!(seen.iter().any(|seen| seen.trailers == "x-md: abc\r\n"));
    let expecting = |seen: &&Seen| seen.field("Expect").is_some();
    assert_eq!(seen.iter().filter(expecting).count(), 2);
}

fn h2load_is_served(io: &str) {
    let Some(site) = Site::new(io) else { return };
    for url in site.urls("/get") {
        for options in [["-c1", "-m100"], ["-c8", "-m10"]] {
            let Some(mut h2load) = command("h2load") else {
                return;
            };
            h2load.args(["-n2000"]).args(options).arg(&url);
            let printed = run(h2load, b"");
            let summary = "2000 succeeded, 0 failed, 0 errored, 0 timeout";
            assert!(printed.contains(summary), "{printed}");
            assert!(printed.contains("2000 2xx"), "{printed}");
        }
        let Some(mut h2load) = command("h2load") else {
            return;
        };
        h2load
            .args(["-n100", "-m100", "-T30"])
            .arg(url.replace("/get", "/together"));
        let printed = run(h2load, b"");
        assert!(printed.contains("100 2xx"), "{printed}");
    }
    assert_eq!(site.last().path(), "/together");
}

fn node_is_served(io: &str) {
    let Some(site) = Site::new(io) else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http2/client.mjs");
    for url in site.urls("") {
        let Some(mut node) = command("node") else {
            return;
        };
        node.arg(&script)
            .arg(&url)
            .arg(site.certificates.at("ca.crt"));
        assert_eq!(run(node, b""), "done\n", "{url}");
    }
    let seen = site.origin.seen();
    let trailers = seen.iter().filter(|seen| seen.trailers == "x-md: abc\r\n");
    assert_eq!(trailers.count(), 2);
}

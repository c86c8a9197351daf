//! Clients of Go and Python, and h2spec, whose packages are fetched when the tests run. Without a
//! way to them, the tests say that they are skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::clients::{Site, run};
use crate::on_both_drivers;

on_both_drivers! {
    go_is_served
    python_is_served
    h2spec_finds_no_more_than_is_known
}

/// Packages of Python, by name.
const PYTHON: &str = "httpx[http2]==0.28.1";
/// Modules of Go.
const GO: &str = "golang.org/x/net/http2@v0.62.0";
const H2SPEC: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";

/// Runs a script in a directory of its own. `None`: it failed, and the test is skipped.
fn fetch(name: &str, script: &str) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).unwrap();
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(&directory)
        .env("SOURCE", source(""))
        .output()
        .unwrap();
    if output.status.success() {
        return Some(directory);
    }
    println!(
        "skipped: {name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    None
}

/// Returns the path of a file beside this one.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/http2")
        .join(name)
}

/// Runs a client with the URL and the certificate of the site, in plaintext and over TLS.
fn client_is_served(io: &str, client: impl Fn() -> Command) {
    let Some(site) = Site::new(io) else { return };
    for url in site.urls("") {
        let mut command = client();
        command.arg(&url).arg(site.certificates.at("ca.crt"));
        assert_eq!(run(command, b""), "done\n", "{url}");
    }
    let seen = site.origin.seen();
    let trailers = seen.iter().filter(|seen| seen.trailers == "x-md: abc\r\n");
    assert!(trailers.count() >= 2);
}

fn go_is_served(io: &str) {
    static PLACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let script = format!(
            "PATH=$PATH:/usr/local/go/bin; cp $SOURCE/client.go main.go; test -f go.mod || \
             go mod init evenkeel/http2; grep -q x/net go.mod || go get {GO}; \
             go build -o client ."
        );
        fetch("http2-go", &script)
    });
    if let Some(place) = place {
        client_is_served(io, || Command::new(place.join("client")));
    }
}

fn python_is_served(io: &str) {
    static PLACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let script = format!(
            "bin/python3 -c 'import httpx, h2' 2>&- || \
             {{ python3 -m venv . && bin/python3 -m pip install --quiet '{PYTHON}'; }}"
        );
        fetch("http2-python", &script)
    });
    if let Some(place) = place {
        client_is_served(io, || {
            let mut command = Command::new(place.join("bin/python3"));
            command.arg(source("client.py"));
            command
        });
    }
}

/// Cases that h2spec reports by rules of RFC 7540 that RFC 9113 does not have: a stream may depend
/// on itself, since dependencies mean nothing (§5.3.2).
const PRIORITY: [&str; 2] = [
    "1: Sends HEADERS frame that depend on itself",
    "2: Sends PRIORITY frame that depend on itself",
];

/// Case of plaintext, where bytes that are not the preface are a request of HTTP/1.1: 400.
const PREFACE: &str = "2: Sends invalid connection preface";

fn h2spec_finds_no_more_than_is_known(io: &str) {
    static PLACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        let script = format!(
            "PATH=$PATH:/usr/local/go/bin; test -x h2spec || GOBIN=$PWD go install {H2SPEC}"
        );
        fetch("h2spec", &script)
    });
    let Some(place) = place else { return };
    let Some(site) = Site::new(io) else { return };
    let (host, port) = site.bed.listen.rsplit_once(':').unwrap();
    for tls in [&[][..], &["-t", "-k"]] {
        let mut h2spec = Command::new(place.join("h2spec"));
        h2spec.args(["-h", host, "-p", port, "-P", "/get", "-o", "5"]);
        let output = h2spec.args(tls).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, failures) = printed.split_once("Failures:").unwrap_or_default();
        let failures = failures.lines().filter_map(|line| line.split_once("× "));
        let failures: Vec<&str> = failures.map(|(_, title)| title).collect();
        let known = if tls.is_empty() { Some(PREFACE) } else { None };
        let known: Vec<&str> = known.into_iter().chain(PRIORITY).collect();
        assert_eq!(failures, known, "{tls:?}: {printed}");
        assert!(printed.contains("145 tests,"), "{printed}");
    }
}

//! Tests of certificates by ACME against Pebble: orders, renewals, failures, several balancers.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/certificates.rs"]
#[allow(dead_code, reason = "other test programs use the rest")]
mod certificates;
#[path = "acme/pebble.rs"]
mod pebble;
#[path = "peer/peer.rs"]
mod peer;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use evenkeel_lab::{Balancer, free_port};
use pebble::Pebble;
use peer::{stays, until};
use serde_json::Value;
use tempfile::TempDir;

on_both_drivers! {
    a_certificate_comes_by_http_01
    a_certificate_comes_by_tls_alpn_01_also_where_clients_need_certificates
    a_renewal_fails_no_request
}

/// Name of the site.
const NAME: &str = "shop.example";

/// Lifetime of certificates that are not renewed during a test, in seconds.
const LONG_S: u32 = 90 * 86_400;

/// A balancer's ports and its storage.
struct Site {
    http: u16,
    tls: u16,
    storage: TempDir,
}

impl Site {
    fn new() -> Site {
        Site {
            http: free_port(),
            tls: free_port(),
            storage: tempfile::tempdir().unwrap(),
        }
    }

    fn pebble(&self, valid_s: u32) -> Option<Pebble> {
        Pebble::start(self.http, self.tls, valid_s)
    }

    /// Returns the configuration; `acme` are further keys of `[acme]`, `tls` of `[service.tls]`.
    fn config(&self, pebble: &Pebble, io: &str, (acme, tls): (&str, &str)) -> String {
        let table = pebble.table(&self.storage(), acme);
        let (http, port) = (self.http, self.tls);
        format!(
            "[engine]\nio = {io:?}\nworkers = 2\n{table}\
             [[service]]\nname = \"web\"\nprotocol = \"http\"\n\
             listen = [\"127.0.0.1:{http}\", \"127.0.0.1:{port}\"]\n\
             [service.http]\nhttps = \"redirect\"\n\
             [service.tls]\nacme = [{NAME:?}]\n{tls}\n\
             [[service.route]]\nrespond = {{ status = 200 }}\n"
        )
    }

    fn storage(&self) -> String {
        self.storage.path().join("acme").display().to_string()
    }

    /// Returns a file of the certificates' directory.
    fn file(&self, name: &str) -> PathBuf {
        let mut authorities = std::fs::read_dir(self.storage()).unwrap();
        let authority = authorities.next().unwrap().unwrap().path();
        authority.join("certificates").join(name)
    }

    fn attempts(&self) -> Value {
        let text = std::fs::read(self.file("shop.example.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// Returns the status of a response over TLS, or `000` without one.
    fn get(&self) -> String {
        get(self.tls, &[])
    }
}

/// Returns the status of a response over TLS at a port, or `000` without one.
fn get(port: u16, options: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}"])
        .args(["--resolve", &format!("{NAME}:{port}:127.0.0.1")])
        .args(options)
        .arg(format!("https://{NAME}:{port}/"))
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns the text of the certificate that a port shows.
fn shown(port: u16) -> String {
    let script = format!(
        "openssl s_client -connect 127.0.0.1:{port} -servername {NAME} </dev/null 2>/dev/null |
         openssl x509 -noout -serial -issuer -ext subjectAltName"
    );
    let output = Command::new("/bin/sh").args(["-c", &script]).output();
    String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
}

/// Returns the status of the only certificate.
fn certificate(balancer: &Balancer) -> Value {
    balancer.status().unwrap()["acme"]["certificates"][0].clone()
}

fn has_come(balancer: &Balancer) -> bool {
    certificate(balancer)["expires_at_unix_ms"].is_u64()
}

fn a_certificate_comes_by_http_01(io: &str) {
    let site = Site::new();
    let Some(pebble) = site.pebble(LONG_S) else {
        return;
    };
    let config = site.config(&pebble, io, ("challenge = \"http-01\"", ""));
    let balancer = Balancer::start(&config).unwrap();
    assert_eq!(site.get(), "000", "no certificate yet");
    until("the certificate", || has_come(&balancer));
    assert_eq!(site.get(), "200");
    let shown = shown(site.tls);
    assert!(
        shown.contains("Pebble") && shown.contains("DNS:shop.example"),
        "{shown}"
    );
    // Sixty days from now, or less by a fiftieth of the lifetime.
    let status = certificate(&balancer);
    let now = balancer.status().unwrap()["now_unix_ms"].as_u64().unwrap();
    let days = (status["next_order_at_unix_ms"].as_u64().unwrap() - now) / 86_400_000;
    assert!((57..=60).contains(&days), "{days} days: {status}");
    // A token that is not in progress is a request like others.
    let plain = format!(
        "http://127.0.0.1:{}/.well-known/acme-challenge/x",
        site.http
    );
    let other = Command::new("curl").args(["-si", &plain]).output().unwrap();
    let other = String::from_utf8_lossy(&other.stdout).into_owned();
    assert!(other.starts_with("HTTP/1.1 308"), "{other}");

    balancer.stop().unwrap();
    let again = Balancer::start(&config).unwrap();
    assert_eq!(site.get(), "200", "stored");
    stays("no second order", Duration::from_secs(2), || {
        pebble.orders() == 1
    });
    drop(again);
}

fn a_certificate_comes_by_tls_alpn_01_also_where_clients_need_certificates(io: &str) {
    let site = Site::new();
    let Some(pebble) = site.pebble(LONG_S) else {
        return;
    };
    let ca = format!("client_ca = {:?}", pebble.certificate("ca.crt"));
    let config = site.config(&pebble, io, ("challenge = \"tls-alpn-01\"", &ca));
    let balancer = Balancer::start(&config).unwrap();
    until("the certificate", || has_come(&balancer));
    assert_eq!(site.get(), "000", "the client has no certificate");
    let (certificate, key) = (
        pebble.certificate("client.crt"),
        pebble.certificate("client.key"),
    );
    let options = ["--cert", &certificate, "--key", &key];
    assert_eq!(get(site.tls, &options), "200");
    assert_eq!(pebble.issued(), 1);
}

fn a_renewal_fails_no_request(io: &str) {
    let site = Site::new();
    let Some(pebble) = site.pebble(15) else {
        return;
    };
    let balancer = Balancer::start(&site.config(&pebble, io, ("", ""))).unwrap();
    until("the certificate", || has_come(&balancer));
    let (first, renewed) = (shown(site.tls), pebble.issued() + 1);
    // Requests over one connection from before the renewal until after it, and over new ones.
    let url = format!("https://{NAME}:{}/[1-400]", site.tls);
    let mut kept = Command::new("curl")
        .args(["-skf", "--rate", "20/s", "-o", "/dev/null"])
        .args(["-w", "%{num_connects} %{http_code}\n"])
        .args(["--resolve", &format!("{NAME}:{}:127.0.0.1", site.tls)])
        .arg(&url)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let limit = Instant::now() + Duration::from_secs(40);
    let mut requests = 0;
    while pebble.issued() < renewed || shown(site.tls) == first {
        assert!(Instant::now() < limit, "not renewed: {}", balancer.log());
        assert_eq!(site.get(), "200", "request {requests}");
        requests += 1;
    }
    assert_eq!(site.get(), "200");
    let goes_on = kept.try_wait().unwrap().is_none();
    assert!(goes_on, "the kept connection ended before the renewal");
    let printed = kept.wait_with_output().unwrap().stdout;
    let printed = String::from_utf8_lossy(&printed).into_owned();
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("1 200"));
    assert_eq!(lines.clone().count(), 399);
    assert!(lines.all(|line| line == "0 200"), "{printed}");
}

#[test]
fn a_failure_is_kept_on_disk_and_the_last_certificate_stays() {
    let site = Site::new();
    let Some(mut pebble) = site.pebble(12) else {
        return;
    };
    let config = site.config(&pebble, "epoll", ("", ""));
    pebble.stop();
    let balancer = Balancer::start(&config).unwrap();
    until("the failure", || certificate(&balancer)["failures"] == 1);
    let status = certificate(&balancer);
    let error = status["error"].as_str().unwrap();
    assert!(error.contains("localhost: Connection refused"), "{error}");
    let before = site.attempts();
    balancer.kill().unwrap();
    pebble.resume();
    let balancer = Balancer::start(&config).unwrap();
    stays("no attempt after a restart", Duration::from_secs(3), || {
        site.attempts() == before && pebble.orders() == 0
    });
    let status = certificate(&balancer);
    assert_eq!(status["failures"], 1);
    let next_ms = status["next_order_at_unix_ms"].as_u64().unwrap();
    assert_eq!(next_ms, before["next_s"].as_u64().unwrap() * 1_000);

    // As the documentation says.
    balancer.stop().unwrap();
    std::fs::remove_file(site.file("shop.example.json")).unwrap();
    let balancer = Balancer::start(&config).unwrap();
    until("the certificate", || has_come(&balancer));
    let first = shown(site.tls);
    pebble.stop();
    until("a failed renewal", || {
        certificate(&balancer)["failures"] == 1
    });
    assert_eq!(site.get(), "200");
    assert_eq!(shown(site.tls), first, "the last certificate stays");
    let log = balancer.log();
    assert!(log.contains("no new certificate for shop.example"), "{log}");
}

#[test]
fn of_two_balancers_one_orders_and_the_other_answers_and_takes_over() {
    let (first, second) = (Site::new(), Site::new());
    // The authority reaches the second one only.
    let Some(pebble) = second.pebble(LONG_S) else {
        return;
    };
    let shared = second.config(&pebble, "epoll", ("", ""));
    let same = |site: &Site| {
        shared
            .replace(&format!(":{}\"", second.http), &format!(":{}\"", site.http))
            .replace(&format!(":{}\"", second.tls), &format!(":{}\"", site.tls))
    };
    let owner = Balancer::start(&same(&first)).unwrap();
    until("the owner", || {
        owner.status().unwrap()["acme"]["is_owner"] == true
    });
    let other = Balancer::start(&shared).unwrap();
    assert_eq!(other.status().unwrap()["acme"]["is_owner"], false);
    for balancer in [&owner, &other] {
        until("the certificate", || has_come(balancer));
    }
    assert_eq!(shown(first.tls), shown(second.tls));
    assert_eq!((first.get(), second.get()), ("200".into(), "200".into()));
    assert_eq!((pebble.orders(), pebble.issued()), (1, 1));
    let (done, text) = revoke(&other, &[NAME]);
    assert!(!done && text.contains("another process orders"), "{text}");

    std::fs::remove_file(second.file("shop.example.pem")).unwrap();
    owner.kill().unwrap();
    until("another owner", || {
        other.status().unwrap()["acme"]["is_owner"] == true
    });
    until("an order of the new owner", || pebble.issued() == 2);
}

/// Runs `evenkeel revoke`; returns whether it succeeds, and what it prints.
fn revoke(balancer: &Balancer, arguments: &[&str]) -> (bool, String) {
    let output = balancer
        .command(&[&["revoke"], arguments].concat())
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (output.status.success(), text)
}

/// Returns the serial number that a port shows, in hexadecimal digits.
fn serial(port: u16) -> String {
    let shown = shown(port);
    let line = shown.lines().find_map(|line| line.strip_prefix("serial="));
    line.unwrap().to_lowercase()
}

#[test]
fn a_revoked_certificate_is_replaced_by_one_with_another_key() {
    let site = Site::new();
    let Some(pebble) = site.pebble(LONG_S) else {
        return;
    };
    let config = site.config(&pebble, "epoll", ("", ""));
    let balancer = Balancer::start(&config).unwrap();
    until("the certificate", || has_come(&balancer));
    let first = serial(site.tls);
    let pem = || std::fs::read_to_string(site.file("shop.example.pem")).unwrap();
    let key = || pem().split("PRIVATE KEY").nth(1).unwrap().to_owned();
    let first_key = key();
    assert!(
        !pebble.status(&first).contains("Revoked"),
        "{}",
        pebble.status(&first)
    );

    let (done, text) = revoke(&balancer, &[NAME, "--reason", "key-compromise"]);
    assert!(
        done && text.contains("is revoked (reason key-compromise)"),
        "{text}"
    );
    let status = pebble.status(&first);
    assert!(
        status.contains("Revoked") && status.contains("1"),
        "{status}"
    );
    until("another certificate", || {
        assert_eq!(site.get(), "200", "one is always in use");
        serial(site.tls) != first
    });
    assert_ne!(key(), first_key, "its key is new");
    assert_eq!(pebble.issued(), 2);
    let log = balancer.log();
    assert!(
        log.contains("operator command: the certificate of shop.example"),
        "{log}"
    );
}

#[test]
fn a_revocation_without_an_order_or_that_fails_changes_nothing() {
    let site = Site::new();
    let Some(mut pebble) = site.pebble(LONG_S) else {
        return;
    };
    let balancer = Balancer::start(&site.config(&pebble, "epoll", ("", ""))).unwrap();
    until("the certificate", || has_come(&balancer));
    let pem = || std::fs::read_to_string(site.file("shop.example.pem")).unwrap();
    // The authority refuses some requests at random, which are sent again.
    let (shown, orders) = (serial(site.tls), pebble.orders());
    let (done, text) = revoke(&balancer, &[NAME, "--no-order"]);
    assert!(
        done && text.contains("stays in use until it is renewed"),
        "{text}"
    );
    assert!(pebble.status(&shown).contains("Revoked"));
    let (done, text) = revoke(&balancer, &[NAME, "--no-order"]);
    assert!(done && text.contains("was revoked before"), "{text}");
    stays("no order", Duration::from_secs(2), || {
        pebble.orders() == orders
    });
    assert_eq!(
        (site.get(), serial(site.tls)),
        ("200".into(), shown.clone())
    );

    let (done, text) = revoke(&balancer, &["other.example"]);
    assert!(
        !done && text.contains("the names are: shop.example"),
        "{text}"
    );
    let (before, attempts) = (pem(), site.attempts());
    pebble.stop();
    let (done, text) = revoke(&balancer, &[NAME]);
    assert!(
        !done && text.contains("is not revoked: localhost: Connection refused"),
        "{text}"
    );
    assert_eq!((pem(), site.attempts()), (before, attempts));
    assert_eq!((site.get(), serial(site.tls)), ("200".into(), shown));
}

#[test]
fn a_new_process_goes_on_with_the_orders() {
    let site = Site::new();
    let Some(pebble) = site.pebble(12) else {
        return;
    };
    let config = site.config(&pebble, "epoll", ("", ""));
    let balancer = Balancer::start(&config).unwrap();
    until("the certificate", || has_come(&balancer));
    // The old process waits for the end of this request.
    let client = peer::connect(&format!("127.0.0.1:{}", site.http));
    peer::send(&client, b"GET / HTTP/1.1\r\n");
    balancer.upgrade(&[]).unwrap();
    let issued = pebble.issued();
    assert_eq!(site.get(), "200");
    until("the new process to own the storage", || {
        balancer.status().unwrap()["acme"]["is_owner"] == true
    });
    assert_eq!(balancer.pids().len(), 2, "the old process has ended");
    until("a renewal", || pebble.issued() > issued);
    assert_eq!(site.get(), "200");
}

//! Tests of what servers of HTTP/2 share with those of HTTP/1.1: compression of their responses,
//! and bodies that await an interim response.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use evenkeel_lab::free_port;

use crate::client::Client;
use crate::coded::{decoded, text};
use crate::frames::{CANCEL, data};
use crate::go;
use crate::script::{Action, Server, response};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    responses_are_compressed
    bodies_await_an_interim_response
    curl_awaits_an_interim_response
}

fn responses_are_compressed(io: &str) {
    let server = Server::new(|seen| {
        let body = text(seen.path()[1..].parse().unwrap());
        let head = [
            (":status", "200"),
            ("content-type", "application/json"),
            ("etag", "\"a\""),
        ];
        match seen.is_complete {
            true => response(&head, &body, &[("x-sum", "7")]),
            false => Action::Wait,
        }
    });
    let bed = Bed::new(io, &[server.address()], "compress = [\"br\", \"gzip\"]\n");
    let mut client = bed.client();
    for coding in ["gzip", "br"] {
        for length in [2_000, 60_000, 3_000_000] {
            let path = format!("/{length}");
            let response = client.ask("GET", &path, &[("accept-encoding", coding)]);
            assert!(response.is_complete, "{path}, {coding}");
            assert_eq!(response.field("content-encoding").as_deref(), Some(coding));
            let tag = format!("W/\"a--{coding}\"");
            assert_eq!(response.field("etag"), Some(tag));
            let is_equal = decoded(coding, &response.body) == text(length).as_bytes();
            assert!(is_equal, "{path}, {coding}");
            assert_eq!(response.trailers, [("x-sum".to_owned(), "7".to_owned())]);
        }
    }
    let mut old = Client::connect(&bed.listen);
    old.send("GET /60000 HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let answer = old.answer();
    assert_eq!(answer.field("Content-Encoding").as_deref(), Some("gzip"));
    assert_eq!(decoded("gzip", &answer.body), text(60_000).as_bytes());
    let plain = client.ask("GET", "/5000", &[]);
    assert_eq!(plain.text(), text(5_000));
}

/// Starts the server of Node. `None`: Node is not installed.
fn node() -> Option<go::Server> {
    if Command::new("node").arg("--version").output().is_err() {
        println!("skipped: node is not installed");
        return None;
    }
    let port = free_port().to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpc/expect.mjs");
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new("node");
    Some(go::Server::spawn(command.arg(script).arg(&port), address))
}

fn bodies_await_an_interim_response(io: &str) {
    let Some(server) = node() else { return };
    let bed = Bed::new(io, &[&server.address], "");
    let mut client = bed.client();
    let expect = [("expect", "100-continue")];
    for number in 0..20 {
        let stream = client.open("POST", "/", &expect);
        client.until(|own| !own.so_far(stream).interim.is_empty());
        let body = "x".repeat(number * 800);
        client.send(data(stream, &body, true));
        let response = client.response(stream);
        assert_eq!((response.status(), response.text()), (200, body));
        assert_eq!(response.interim.len(), 1);
        // The server refuses before the body.
        let stream = client.open("POST", "/refuse", &expect);
        let refused = client.response(stream);
        assert_eq!((refused.status(), &*refused.text()), (403, "refused"));
        assert_eq!(refused.interim.len(), 0);
        client.send(crate::frames::reset(stream, CANCEL));
    }
}

/// Version 7.88 of curl takes a response before the body for an empty one over HTTP/2, also from
/// Node.
fn curl_awaits_an_interim_response(io: &str) {
    let Some(server) = node() else { return };
    let bed = Bed::new(io, &[&server.address], "");
    for (version, path, status, line) in [
        ("--http1.1", "/", "200", "HTTP/1.1 100"),
        ("--http1.1", "/refuse", "403", "HTTP/1.1 403"),
        ("--http2-prior-knowledge", "/", "200", "HTTP/2 100"),
    ] {
        let url = format!("http://{}{path}", bed.listen);
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--verbose", version, "--max-time", "20"]);
        let expect = "Expect: 100-continue";
        curl.args(["--expect100-timeout", "15", "--header", expect]);
        curl.args(["--data-binary", &"x".repeat(100_000)]);
        curl.args(["--write-out", "%{http_code} %{time_total}"]);
        let output = curl.args(["--output", "/dev/null", &url]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let log = String::from_utf8_lossy(&output.stderr);
        let (code, seconds) = printed.split_once(' ').unwrap();
        assert_eq!(code, status, "{version} {path}: {log}");
        assert!(log.contains(line), "{version} {path}: {log}");
        assert_eq!(
            log.contains("< HTTP/1.1 100") || log.contains("< HTTP/2 100"),
            status == "200",
            "{version} {path}: {log}"
        );
        let took = Duration::from_secs_f64(seconds.parse().unwrap());
        assert!(took < Duration::from_secs(10), "{version} {path}: {took:?}");
    }
}

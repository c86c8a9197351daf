//! Tests of the compression of responses: bodies in all framings, the fields from which caches
//! learn of it, and what is not compressed.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::client::{Answer, Client};
use crate::coded::{Reader, decoded, text};
use crate::origin::{Origin, Seen, reply};
use crate::peer::until;
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    bodies_of_all_framings_and_lengths_arrive
    nothing_is_compressed_without_the_key
    the_client_chooses_the_coding
    caches_learn_what_the_coding_depends_on
    what_must_not_be_compressed_passes_unchanged
    the_head_for_head_is_that_for_get
    tags_of_compressed_bodies_work_in_conditions
    each_event_arrives_before_the_next_one_is_sent
    a_client_that_does_not_read_stalls_the_server
    a_cut_body_is_never_complete
    large_bodies_leave_time_to_other_clients
}

const BOTH: &str = "[service.http]\ncompress = [\"br\", \"gzip\"]\n";

/// Starts a server that answers with these fields and this body, by the request.
fn server(respond: impl Fn(&Seen) -> (String, String) + Send + Sync + 'static) -> Origin {
    Origin::new(move |seen| {
        let (fields, body) = respond(seen);
        let length = body.len();
        Some(format!(
            "HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        ))
    })
}

/// Starts a server that answers with these fields and a text.
fn texts(fields: &'static str, length: usize) -> Origin {
    server(move |_| (fields.to_owned(), text(length)))
}

#[track_caller]
fn ask(client: &mut Client, path: &str, fields: &str) -> Answer {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.answer()
}

/// Returns the body of an answer with this coding.
#[track_caller]
fn body_of(answer: &Answer, coding: &str) -> String {
    let own = answer.field("Content-Encoding");
    assert_eq!(own.as_deref(), Some(coding), "{}", answer.head);
    String::from_utf8(decoded(coding, &answer.body)).unwrap()
}

/// Sends a body in pieces of many lengths, with a framing.
fn send_pieces(socket: &socket2::Socket, framing: &str, body: &str) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let length = body.len();
    let framed = match framing {
        "length" => format!("{head}Content-Length: {length}\r\n\r\n"),
        "chunked" => format!("{head}Transfer-Encoding: chunked\r\n\r\n"),
        _ => format!("{head}\r\n"),
    };
    reply(socket, framed);
    let (mut at, mut step) = (0, 7);
    while at < length {
        step = step * 31 % 60_013 + 1;
        let piece = &body[at..(at + step).min(length)];
        let is_sent = match framing {
            "chunked" => reply(socket, format!("{:x};a=b\r\n{piece}\r\n", piece.len())),
            _ => reply(socket, piece),
        };
        assert!(is_sent);
        at += piece.len();
    }
    if framing == "chunked" {
        reply(socket, "0\r\nX-After: yes\r\n\r\n");
    }
}

fn bodies_of_all_framings_and_lengths_arrive(io: &str) {
    let origin = Origin::scripted(|incoming, _| {
        while let Some(seen) = incoming.request() {
            let mut parts = seen.path().split('/').skip(1);
            let framing = parts.next().unwrap();
            let body = text(parts.next().unwrap().parse().unwrap());
            send_pieces(incoming.socket, framing, &body);
            if framing == "close" {
                return;
            }
        }
    });
    let more = format!("{BOTH}compress_bytes_min = 1\n");
    let bed = Bed::new(io, &[&origin], &more);
    let mut client = bed.client();
    for framing in ["length", "chunked", "close"] {
        for length in [1, 2, 100, 4_096, 70_000, 1_000_000, 10_000_000] {
            for coding in ["gzip", "br"] {
                let accept = format!("Accept-Encoding: {coding}\r\n");
                let answer = ask(&mut client, &format!("/{framing}/{length}"), &accept);
                let is_equal = body_of(&answer, coding) == text(length);
                assert!(is_equal, "{framing}, {length} bytes, {coding}");
                assert_eq!(
                    answer.field("Transfer-Encoding").as_deref(),
                    Some("chunked")
                );
                assert_eq!(answer.field("Content-Length"), None);
                let trailers = match framing {
                    "chunked" => "X-After: yes\r\n",
                    _ => "",
                };
                assert_eq!(answer.trailers, trailers);
                if length == 10_000_000 {
                    let sent = answer.body.len();
                    println!("{io}, {framing}, {coding}: {length} bytes as {sent}");
                    assert!(sent < length / 3, "{sent}");
                }
            }
        }
    }
}

fn nothing_is_compressed_without_the_key(io: &str) {
    let origin = texts("Content-Type: text/plain\r\nETag: \"a\"\r\n", 5_000);
    let bed = Bed::new(io, &[&origin], "");
    let fields = "Accept-Encoding: gzip, br\r\nIf-None-Match: W/\"a--gzip\"\r\n";
    let answer = ask(&mut bed.client(), "/", fields);
    assert_eq!(answer.text(), text(5_000));
    assert_eq!(answer.field("ETag").as_deref(), Some("\"a\""));
    assert_eq!(answer.field("Vary"), None);
    let seen = origin.only();
    assert_eq!(
        seen.field("If-None-Match").as_deref(),
        Some("W/\"a--gzip\"")
    );
}

fn the_client_chooses_the_coding(io: &str) {
    let origin = texts(
        "Content-Type: text/plain\r\nAccept-Ranges: bytes\r\n",
        5_000,
    );
    let bed = Bed::new(io, &[&origin], BOTH);
    let gzip = Bed::new(io, &[&origin], "[service.http]\ncompress = [\"gzip\"]\n");
    for (accept, of_both, of_gzip) in [
        (
            "Accept-Encoding: gzip, deflate, br, zstd\r\n",
            Some("br"),
            Some("gzip"),
        ),
        ("Accept-Encoding: gzip\r\n", Some("gzip"), Some("gzip")),
        (
            "Accept-Encoding: x-gzip;q=0.5\r\n",
            Some("gzip"),
            Some("gzip"),
        ),
        (
            "Accept-Encoding: br;q=0.1\r\nAccept-Encoding: gzip;q=0.2\r\n",
            Some("gzip"),
            Some("gzip"),
        ),
        ("Accept-Encoding: br\r\n", Some("br"), None),
        ("Accept-Encoding: *\r\n", Some("br"), Some("gzip")),
        (
            "Accept-Encoding: br;q=0, *;q=0.1\r\n",
            Some("gzip"),
            Some("gzip"),
        ),
        ("Accept-Encoding: gzip;q=0, br;q=0\r\n", None, None),
        (
            "Accept-Encoding: identity, gzip;q=0.5, br;q=0.5\r\n",
            None,
            None,
        ),
        (
            "Accept-Encoding: identity;q=0.1, gzip;q=0.5\r\n",
            Some("gzip"),
            Some("gzip"),
        ),
        ("Accept-Encoding: gzip;q=7\r\n", None, None),
        ("Accept-Encoding: \r\n", None, None),
        ("Accept-Encoding: identity\r\n", None, None),
        ("", None, None),
    ] {
        for (bed, coding) in [(&bed, of_both), (&gzip, of_gzip)] {
            let answer = ask(&mut bed.client(), "/", accept);
            assert_eq!(
                answer.field("Content-Encoding").as_deref(),
                coding,
                "{accept}"
            );
            let body = coding.map_or(answer.text(), |coding| body_of(&answer, coding));
            assert!(body == text(5_000), "{accept}");
            assert_eq!(answer.field("Vary").as_deref(), Some("Accept-Encoding"));
            let ranges = answer.field("Accept-Ranges");
            assert_eq!(ranges.is_none(), coding.is_some(), "{accept}");
        }
    }
}

fn caches_learn_what_the_coding_depends_on(io: &str) {
    let origin = server(|seen| {
        let vary = match seen.path() {
            "/origin" => "Vary: Origin\r\n",
            "/lines" => "Vary: Origin\r\nVary: Cookie\r\n",
            "/has" => "vary: cookie, accept-encoding\r\n",
            "/all" => "Vary: *\r\n",
            _ => "",
        };
        (format!("Content-Type: text/plain\r\n{vary}"), text(2_000))
    });
    let route = "[[service.route]]\npath = \"/route\"\nset_response = { vary = \"X-A\" }\n";
    let bed = Bed::new(io, &[&origin], &format!("{BOTH}{route}"));
    let mut client = bed.client();
    for (path, vary) in [
        ("/", "Accept-Encoding"),
        ("/origin", "Origin, Accept-Encoding"),
        ("/lines", "Origin, Cookie, Accept-Encoding"),
        ("/has", "cookie, accept-encoding"),
        ("/all", "*"),
        ("/route", "X-A, Accept-Encoding"),
    ] {
        for accept in ["", "Accept-Encoding: gzip\r\n"] {
            let answer = ask(&mut client, path, accept);
            assert_eq!(answer.field("Vary").as_deref(), Some(vary), "{path}");
        }
    }
}

/// Responses that pass unchanged: path, status, fields of the server, and whether other clients get
/// another body.
const CASES: [(&str, &str, &str, bool); 16] = [
    ("/image", "200 OK", "Content-Type: image/png\r\n", false),
    ("/none", "200 OK", "", false),
    (
        "/coded",
        "200 OK",
        "Content-Type: text/css\r\nContent-Encoding: br\r\n",
        false,
    ),
    (
        "/fixed",
        "200 OK",
        "Content-Type: text/css\r\nCache-Control: no-cache, no-transform\r\n",
        false,
    ),
    (
        "/repr",
        "200 OK",
        "Content-Type: text/css\r\nRepr-Digest: sha-256=:YQ==:\r\n",
        false,
    ),
    (
        "/content",
        "200 OK",
        "Content-Type: text/css\r\nContent-Digest: sha-256=:YQ==:\r\n",
        false,
    ),
    (
        "/digest",
        "200 OK",
        "Content-Type: text/css\r\nDigest: sha-256=YQ==\r\n",
        false,
    ),
    (
        "/md5",
        "200 OK",
        "Content-Type: text/css\r\nContent-MD5: YQ==\r\n",
        false,
    ),
    (
        "/grpc",
        "200 OK",
        "Content-Type: application/grpc+json\r\n",
        false,
    ),
    (
        "/part",
        "206 Partial Content",
        "Content-Type: text/css\r\nContent-Range: bytes 0-1999/9999\r\n",
        true,
    ),
    (
        "/unsatisfied",
        "416 Range Not Satisfiable",
        "Content-Type: text/css\r\nContent-Range: bytes */9\r\n",
        false,
    ),
    ("/small", "200 OK", "Content-Type: text/css\r\n", false),
    ("/empty", "200 OK", "Content-Type: text/css\r\n", false),
    (
        "/204",
        "204 No Content",
        "Content-Type: text/css\r\n",
        false,
    ),
    (
        "/304",
        "304 Not Modified",
        "Content-Type: text/css\r\nETag: \"a\"\r\n",
        false,
    ),
    ("/tagged", "200 OK", "Content-Type: text/css\r\n", false),
];

fn what_must_not_be_compressed_passes_unchanged(io: &str) {
    let body_of = |path: &str| match path {
        "/small" => text(1_023),
        "/empty" | "/204" | "/304" => String::new(),
        _ => text(2_000),
    };
    let origin = Origin::new(move |seen| {
        let case = CASES.iter().find(|(path, ..)| *path == seen.path());
        let (path, status, fields, _) = case.copied().unwrap();
        let body = body_of(path);
        let length = match path {
            "/204" | "/304" => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        Some(format!("HTTP/1.1 {status}\r\n{fields}{length}\r\n{body}"))
    });
    let route = "[[service.route]]\npath = \"/tagged\"\nset_response = { ETag = '\"r\"' }\n\
                 [[service.route]]\npath = \"/route-fixed\"\nreplace_prefix = \"/tagged\"\n\
                 set_response = { Cache-Control = \"no-transform\" }\n";
    let bed = Bed::new(io, &[&origin], &format!("{BOTH}{route}"));
    let mut client = bed.client();
    for (path, status, fields, varies) in CASES {
        let answer = ask(&mut client, path, "Accept-Encoding: gzip\r\n");
        assert!(answer.head.contains(status), "{path}: {}", answer.head);
        assert!(answer.text() == body_of(path), "{path}");
        for line in fields.lines().filter(|_| path != "/tagged") {
            assert!(answer.head.contains(line), "{path}: {}", answer.head);
        }
        let vary = varies.then_some("Accept-Encoding");
        assert_eq!(answer.field("Vary").as_deref(), vary, "{path}");
    }
    let answer = ask(&mut client, "/route-fixed", "Accept-Encoding: gzip\r\n");
    assert!(answer.text() == text(2_000), "what a route forbids");
    let compressible = texts("Content-Type: text/css\r\n", 2_000);
    let bed = Bed::new(io, &[&compressible], BOTH);
    let mut old = bed.client();
    old.send("GET / HTTP/1.0\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let answer = old.answer();
    assert!(answer.text() == text(2_000), "a client of HTTP/1.0");
    assert_eq!(answer.field("Vary").as_deref(), Some("Accept-Encoding"));
}

fn the_head_for_head_is_that_for_get(io: &str) {
    let origin = Origin::new(|seen| {
        let body = text(if seen.path() == "/small" { 500 } else { 5_000 });
        let fields = "Content-Type: text/css\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n\
                      Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n");
        Some(match seen.head.starts_with("HEAD") {
            true => head,
            false => head + &body,
        })
    });
    let bed = Bed::new(io, &[&origin], BOTH);
    let mut client = bed.client();
    for path in ["/", "/small"] {
        for accept in ["gzip", "br", "identity"] {
            let fields = format!("Accept-Encoding: {accept}\r\n");
            let of_get = ask(&mut client, path, &fields);
            client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
            let of_head = client.answer_to_head();
            // A field of the framing may be left out (RFC 9110 §9.3.2).
            let without_framing = of_get.head.replace("\r\nTransfer-Encoding: chunked", "");
            assert_eq!(of_head.head, without_framing, "{path}, {accept}");
        }
    }
}

/// The server compares tags byte by byte.
fn tags_of_compressed_bodies_work_in_conditions(io: &str) {
    let origin = Origin::new(|seen| {
        let tag = match seen.path() {
            "/weak" => "W/\"v1\"",
            _ => "\"v1\"",
        };
        let body = text(2_000);
        let has = |name: &str| seen.field(name).is_some_and(|tags| tags.contains(tag));
        let status = match () {
            _ if has("If-None-Match") => "304 Not Modified",
            _ if seen.field("If-Match").is_some() && !has("If-Match") => "412 No",
            _ => "200 OK",
        };
        let fields = format!("Content-Type: text/css\r\nETag: {tag}\r\n");
        Some(match status {
            "304 Not Modified" => format!("HTTP/1.1 {status}\r\nETag: {tag}\r\n\r\n"),
            _ => format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 2000\r\n\r\n{body}"),
        })
    });
    let bed = Bed::new(io, &[&origin], BOTH);
    let mut client = bed.client();
    for (path, coding, expect) in [
        ("/", "gzip", "W/\"v1--gzip\""),
        ("/", "br", "W/\"v1--br\""),
        ("/", "identity", "\"v1\""),
        ("/weak", "gzip", "W/\"v1\""),
    ] {
        let accept = format!("Accept-Encoding: {coding}\r\n");
        let tag = ask(&mut client, path, &accept).field("ETag").unwrap();
        assert_eq!(tag, expect, "{path}, {coding}");
        let known = format!("{accept}If-None-Match: \"x\", {tag}\r\n");
        let answer = ask(&mut client, path, &known);
        assert_eq!(answer.status, 304, "{path}, {coding}");
        assert_eq!(answer.field("ETag").as_deref(), Some(expect));
        let is_ours = tag.contains("--");
        let vary = is_ours.then_some("Accept-Encoding");
        assert_eq!(answer.field("Vary").as_deref(), vary, "{path}, {coding}");
        let answer = ask(&mut client, path, &format!("{accept}If-Match: {tag}\r\n"));
        assert_eq!(answer.status, 200, "{path}, {coding}");
        let answer = ask(
            &mut client,
            path,
            &format!("{accept}If-Match: W/\"v2--gzip\"\r\n"),
        );
        assert_eq!(answer.status, 412, "{path}, {coding}");
    }
    // The client has the tags of both codings, and gets that of the one that it would get now.
    let both = "Accept-Encoding: gzip\r\nIf-None-Match: W/\"v1--br\", W/\"v1--gzip\"\r\n";
    let answer = ask(&mut client, "/", both);
    assert_eq!(answer.field("ETag").as_deref(), Some("W/\"v1--gzip\""));
    // A range of uncompressed bytes must not complete a compressed body.
    let part = "Accept-Encoding: gzip\r\nRange: bytes=9-\r\nIf-Range: W/\"v1--gzip\"\r\n";
    ask(&mut client, "/", part);
    let seen = origin.seen().pop().unwrap();
    assert_eq!(seen.field("If-Range").as_deref(), Some("W/\"v1--gzip\""));
}

fn each_event_arrives_before_the_next_one_is_sent(io: &str) {
    const EVENTS: usize = 30;
    for framing in ["chunked", "close", "length"] {
        for coding in ["gzip", "br"] {
            let (received, gate) = channel::<()>();
            let gate = Mutex::new(gate);
            let origin = Origin::scripted(move |incoming, _| {
                incoming.request();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
                let more = match framing {
                    "chunked" => "Transfer-Encoding: chunked\r\n".to_owned(),
                    "length" => format!("Content-Length: {}\r\n", EVENTS * 11),
                    _ => String::new(),
                };
                reply(incoming.socket, format!("{head}{more}\r\n"));
                for number in 0..EVENTS {
                    let event = format!("data: {number:03}\n\n");
                    let framed = match framing {
                        "chunked" => format!("b\r\n{event}\r\n"),
                        _ => event,
                    };
                    reply(incoming.socket, framed);
                    let waited = gate.lock().unwrap().recv_timeout(Duration::from_secs(10));
                    assert!(waited.is_ok(), "event {number} did not arrive");
                }
                if framing == "chunked" {
                    reply(incoming.socket, "0\r\n\r\n");
                }
            });
            let more = format!("{BOTH}compress_bytes_min = 1\n");
            let bed = Bed::new(io, &[&origin], &more);
            let mut client = bed.client();
            client.send(format!(
                "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n"
            ));
            let head = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
            assert!(
                head.contains(&format!("Content-Encoding: {coding}")),
                "{head}"
            );
            let mut reader = Reader::new(coding);
            let mut longest = Duration::ZERO;
            for number in 0..EVENTS {
                let began = Instant::now();
                let expect = (number + 1) * 11;
                while reader.read(b"").len() < expect {
                    let piece = chunk(&mut client);
                    reader.read(&piece);
                }
                longest = longest.max(began.elapsed());
                received.send(()).unwrap();
            }
            while let piece @ [_, ..] = &*chunk(&mut client) {
                reader.read(piece);
            }
            assert!(reader.end().ends_with(b"data: 029\n\n"));
            println!("{io}, {framing}, {coding}: {longest:?} for the slowest of {EVENTS} events");
        }
    }
}

/// Reads one chunk; the last one is empty.
fn chunk(client: &mut Client) -> Vec<u8> {
    let line = client.until(b"\r\n").unwrap();
    let size = std::str::from_utf8(&line[..line.len() - 2]).unwrap();
    let size = usize::from_str_radix(size, 16).unwrap();
    let data = client.take(size).unwrap();
    client.take(2).unwrap();
    data
}

fn a_client_that_does_not_read_stalls_the_server(io: &str) {
    const SIZE: usize = 100 << 20;
    const GROWTH_KB_MAX: u64 = 8_192;
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&sent);
    let origin = Origin::scripted(move |incoming, _| {
        incoming.request();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
        reply(
            incoming.socket,
            format!("{head}Content-Length: {SIZE}\r\n\r\n"),
        );
        let block = text(1 << 20);
        for _ in 0..SIZE >> 20 {
            if !reply(incoming.socket, &block) {
                return;
            }
            counter.fetch_add(1 << 20, std::sync::atomic::Ordering::SeqCst);
        }
    });
    let bed = Bed::new(io, &[&origin], "[service.http]\ncompress = [\"gzip\"]\n");
    let mut client = bed.client();
    let before_kb = bed.balancer.memory_kb();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let (mut last, mut since) = (0, Instant::now());
    until("a stalled server", || {
        let now = sent.load(std::sync::atomic::Ordering::SeqCst);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(800)
    });
    assert!(last < SIZE, "{last} bytes went somewhere");
    let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
    println!("{io}: stalled after {last} bytes, {grown_kb} kB more");
    assert!(grown_kb < GROWTH_KB_MAX, "{grown_kb} kB more");
    let answer = client.try_answer(false);
    let answer = answer.unwrap_or_else(|(ended, _)| panic!("{ended:?}\n{}", bed.balancer.log()));
    assert_eq!(decoded("gzip", &answer.body).len(), SIZE);
    let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
    assert!(grown_kb < GROWTH_KB_MAX, "{grown_kb} kB more after all");
}

fn a_cut_body_is_never_complete(io: &str) {
    for framing in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let origin = Origin::scripted(move |incoming, _| {
            incoming.request();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
            let body = text(50_000);
            reply(
                incoming.socket,
                format!("{head}{framing}\r\n\r\nc350\r\n{body}"),
            );
        });
        let bed = Bed::new(io, &[&origin], BOTH);
        for coding in ["gzip", "br"] {
            let mut client = bed.client();
            client.send(format!(
                "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n"
            ));
            let read = client.try_answer(false);
            assert!(read.is_err(), "{framing}, {coding}: {read:?}");
        }
    }
}

fn large_bodies_leave_time_to_other_clients(io: &str) {
    let large = text(30_000_000);
    let origin = server(move |seen| {
        let body = match seen.path() {
            "/large" => large.clone(),
            _ => "small".to_owned(),
        };
        ("Content-Type: text/plain\r\n".to_owned(), body)
    });
    let bed = Bed::new(io, &[&origin], BOTH);
    std::thread::scope(|scope| {
        let large = (0..4).map(|number| {
            let coding = ["gzip", "br"][number % 2];
            let bed = &bed;
            scope.spawn(move || {
                let accept = format!("Accept-Encoding: {coding}\r\n");
                let answer = ask(&mut bed.client(), "/large", &accept);
                assert_eq!(decoded(coding, &answer.body).len(), 30_000_000);
            })
        });
        let large: Vec<_> = large.collect();
        let mut client = bed.client();
        let mut times = Vec::new();
        while large.iter().any(|one| !one.is_finished()) {
            let began = Instant::now();
            assert_eq!(ask(&mut client, "/", "").text(), "small");
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let p99 = times[times.len() * 99 / 100];
        println!(
            "{io}: {} requests beside large bodies, p99 {p99:?}",
            times.len()
        );
        assert!(p99 < Duration::from_millis(500), "{p99:?}");
    });
}

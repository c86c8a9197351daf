//! Tests of the seam between HTTP/2 and HTTP/1.1: what the server sees of requests that are
//! malformed, cut or reset, and what the client sees of such responses.

use std::time::Duration;

use crate::frames::{CANCEL, NO_ERROR, PROTOCOL_ERROR, Response, data, headers, request, reset};
use crate::origin::{Origin, ok, reply};
use crate::peer::until;
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_body_that_differs_from_its_length_is_never_complete_at_the_server
    bodies_and_trailers_pass_in_both_directions
    a_reset_upload_ends_the_server_connection
    a_cut_response_is_reset
    an_early_answer_stops_the_upload
    malformed_heads_reach_no_server
    the_authority_becomes_the_host
    crumbs_of_cookies_are_joined
    interim_responses_pass
    a_window_holds_a_response_back
}

/// Starts a server that records complete requests only, and answers them with their path.
fn strict() -> Origin {
    Origin::scripted(|incoming, log| {
        while let Some(mut seen) = incoming.head() {
            if incoming.body(&mut seen).is_none() {
                return;
            }
            log(&seen);
            if !reply(incoming.socket, ok(seen.path())) {
                return;
            }
        }
    })
}

fn is_refused(response: &Response) -> bool {
    response.reset == Some(PROTOCOL_ERROR) && response.head.is_empty()
}

/// END_STREAM on HEADERS, on DATA, and on trailers (RFC 9113 §8.1.1).
fn a_body_that_differs_from_its_length_is_never_complete_at_the_server(io: &str) {
    let origin = strict();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let length = |length| [("content-length", length)];
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let response = client.ask("POST", "/none", &length("5"));
    assert!(is_refused(&response), "{response:?}");
    let ends: [(&str, &[&str], bool); 8] = [
        ("5", &["abcd"], false),
        ("5", &["ab", "cd", ""], false),
        ("5", &[""], false),
        ("5", &["abcd"], true),
        ("5", &["abcdef"], false),
        ("5", &["abcde", smuggled], false),
        ("0", &[smuggled], false),
        ("5", &["abc", smuggled], true),
    ];
    for (length, parts, with_trailers) in ends {
        let stream = client.open("POST", "/bad", &[("content-length", length)]);
        for (number, part) in parts.iter().enumerate() {
            let is_last = number + 1 == parts.len() && !with_trailers;
            if number > 0 {
                // The server has seen what it can see before.
                std::thread::sleep(Duration::from_millis(30));
            }
            client.send(data(stream, part, is_last));
        }
        if with_trailers {
            client.send(headers(stream, &[("x-a", "b")], true));
        }
        let response = client.response(stream);
        let name = format!("{length} {parts:?}");
        assert_eq!(response.reset, Some(PROTOCOL_ERROR), "{name}: {response:?}");
        assert!(response.head.is_empty(), "{name}: {response:?}");
    }
    until("the ends of the server connections", || {
        origin.server.current() == 0
    });
    let good = client.open("POST", "/good", &length("5"));
    client.send(data(good, "ab", false));
    client.send(data(good, "cde", false));
    client.send(data(good, "", true));
    assert_eq!(client.response(good).text(), "/good");
    assert_eq!(origin.only().body, b"abcde");
    assert_eq!(client.go_away, vec![]);
}

fn bodies_and_trailers_pass_in_both_directions(io: &str) {
    let origin = Origin::new(|seen| {
        let body = String::from_utf8_lossy(&seen.body).into_owned();
        let chunk = match body.len() {
            0 => String::new(),
            length => format!("{length:x};a=b\r\n{body}\r\n"),
        };
        Some(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n{chunk}\
             0\r\nX-Sum: 7\r\nContent-Length: 3\r\n\r\n"
        ))
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for body in ["", "hello", &"x".repeat(16_384)] {
        let stream = client.open("POST", "/up", &[("te", "trailers")]);
        client.send(data(stream, body, false));
        let trailers = [("x-md", "abc"), ("authorization", "no")];
        client.send(headers(stream, &trailers, true));
        let response = client.response(stream);
        assert_eq!((response.status(), response.text()), (200, body.to_owned()));
        assert_eq!(response.trailers, [("x-sum".to_owned(), "7".to_owned())]);
        assert_eq!(response.field("transfer-encoding"), None);
        let seen = origin.seen().pop().unwrap();
        assert_eq!(seen.body, body.as_bytes());
        assert_eq!(seen.trailers, "x-md: abc\r\n");
        assert_eq!(seen.field("TE").as_deref(), Some("trailers"));
        assert_eq!(seen.field("Transfer-Encoding").as_deref(), Some("chunked"));
    }
    for (method, length) in [("GET", None), ("DELETE", None), ("POST", Some("0"))] {
        assert_eq!(client.ask(method, "/", &[]).status(), 200);
        let seen = origin.seen().pop().unwrap();
        assert_eq!(seen.field("Content-Length").as_deref(), length, "{method}");
        assert_eq!(seen.field("Transfer-Encoding"), None, "{method}");
    }
}

fn a_reset_upload_ends_the_server_connection(io: &str) {
    let origin = strict();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for (number, more) in [&[("content-length", "10")][..], &[]]
        .into_iter()
        .enumerate()
    {
        let stream = client.open("POST", "/cut", more);
        client.send(data(stream, "abc", false));
        until("the server connection", || {
            origin.server.total() == number + 1
        });
        client.send(reset(stream, CANCEL));
        until("its end", || origin.server.current() == 0);
    }
    assert_eq!(origin.seen(), vec![]);
    assert_eq!(client.ask("GET", "/next", &[]).text(), "/next");
}

fn a_cut_response_is_reset(io: &str) {
    let cut = [
        ("/length", "Content-Length: 10\r\n\r\nabc"),
        ("/none", "Content-Length: 10\r\n\r\n"),
        ("/chunk", "Transfer-Encoding: chunked\r\n\r\n5\r\nabc"),
        ("/last", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        (
            "/trailer",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n",
        ),
        (
            "/size",
            "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n\r\n",
        ),
    ];
    let origin = Origin::scripted(move |incoming, log| {
        if let Some(seen) = incoming.request() {
            log(&seen);
            let found = cut.iter().find(|(path, _)| *path == seen.path());
            let rest = found.map_or("Content-Length: 0\r\n\r\n", |(_, rest)| rest);
            reply(incoming.socket, format!("HTTP/1.1 200 OK\r\n{rest}"));
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for (path, _) in cut {
        let response = client.ask("GET", path, &[]);
        assert!(!response.is_complete, "{path}: {response:?}");
        assert!(
            response.reset.is_some_and(|code| code != NO_ERROR),
            "{path}"
        );
    }
    assert!(client.ask("GET", "/whole", &[]).is_complete);
    assert_eq!(client.go_away, vec![]);
}

/// RFC 9113 §8.1: RST_STREAM with NO_ERROR after the end of the response.
fn an_early_answer_stops_the_upload(io: &str) {
    let origin = Origin::scripted(|incoming, log| {
        if let Some(seen) = incoming.head() {
            log(&seen);
            let head = "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n";
            reply(
                incoming.socket,
                format!("{head}Content-Length: 3\r\n\r\nbig"),
            );
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for _ in 0..3 {
        let stream = client.open("POST", "/up", &[("content-length", "1000000")]);
        client.send(data(stream, [0; 1_000], false));
        client.until(|own| own.so_far(stream).reset.is_some());
        let response = client.so_far(stream);
        assert_eq!(
            (response.status(), response.text()),
            (413, "big".to_owned())
        );
        assert!(response.is_complete, "{response:?}");
        assert_eq!(response.reset, Some(NO_ERROR));
        // What the client had sent before it knew of the reset is no fault.
        client.send(data(stream, [0; 1_000], false));
    }
    assert_eq!(client.go_away, vec![]);
    assert_eq!(origin.seen().len(), 3);
}

/// Fields that make a request malformed.
const MALFORMED_FIELDS: &[(&str, &str)] = &[
    ("connection", "close"),
    ("proxy-connection", "close"),
    ("keep-alive", "timeout=5"),
    ("transfer-encoding", "chunked"),
    ("upgrade", "h2c"),
    ("te", "gzip"),
    ("te", "trailers, gzip"),
    ("X-Upper", "a"),
    ("x a", "b"),
    ("x:a", "b"),
    ("", "b"),
    ("x\r\na", "b"),
    ("x-\u{e9}", "b"),
    ("x-a", "b\r\nSmuggled: c"),
    ("x-a", "b\0"),
    ("x-a", " b"),
    ("x-a", "b\t"),
    (":unknown", "a"),
    (":path", "/second"),
    ("content-length", "5x"),
    ("host", "other.example"),
];

/// Values of :method, :scheme, :authority and :path that make a request malformed; `-` leaves the
/// pseudo-field out.
const MALFORMED_HEADS: &[[&str; 4]] = &[
    ["GET", "http", "a", ""],
    ["GET", "http", "a", "-"],
    ["GET", "-", "a", "/bad"],
    ["-", "http", "a", "/bad"],
    ["GET", "http", "a", "bad"],
    ["G T", "http", "a", "/bad"],
    ["GET", "http", "a", "/a b"],
    ["GET", "http", "u@a", "/bad"],
];

fn malformed_heads_reach_no_server(io: &str) {
    let origin = strict();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for field in MALFORMED_FIELDS {
        let response = client.ask("GET", "/bad", &[*field]);
        assert!(is_refused(&response), "{field:?}: {response:?}");
    }
    for values in MALFORMED_HEADS {
        let names = [":method", ":scheme", ":authority", ":path"];
        let mut head: Vec<(&str, &str)> = names.into_iter().zip(*values).collect();
        head.retain(|(_, value)| *value != "-");
        let stream = client.stream();
        client.send(headers(stream, &head, true));
        let response = client.response(stream);
        assert!(is_refused(&response), "{head:?}: {response:?}");
    }
    let stream = client.stream();
    let late = request("GET", "/bad", &[("x-a", "b"), (":authority", "a")]);
    client.send(headers(stream, &late, true));
    assert!(is_refused(&client.response(stream)));
    assert_eq!(client.ask("GET", "/good", &[]).text(), "/good");
    assert_eq!(origin.paths(), ["/good"]);
}

fn the_authority_becomes_the_host(io: &str) {
    let origin = strict();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    client.ask("GET", "/both", &[("host", "web.example")]);
    let stream = client.stream();
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/host"),
        ("host", "b.example"),
    ];
    client.send(headers(stream, &fields, true));
    assert_eq!(client.response(stream).status(), 200);
    client.ask(
        "GET",
        "/twice",
        &[("host", "web.example"), ("host", "web.example")],
    );
    let hosts: Vec<_> = origin
        .seen()
        .iter()
        .map(|seen| seen.field("Host"))
        .collect();
    let expected = ["web.example", "b.example"];
    assert_eq!(hosts, expected.map(|host| Some(host.to_owned())));
}

fn crumbs_of_cookies_are_joined(io: &str) {
    let origin = strict();
    let bed = Bed::new(io, &[&origin], "");
    let crumbs = [
        ("cookie", "a=1"),
        ("x-a", "b"),
        ("cookie", "b=2"),
        ("cookie", "c=3; d=4"),
    ];
    bed.client().ask("GET", "/", &crumbs);
    let cookie = origin.only().field("Cookie");
    assert_eq!(cookie.as_deref(), Some("a=1; b=2; c=3; d=4"));
}

fn interim_responses_pass(io: &str) {
    let origin = Origin::new(|seen| {
        let early = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\n\r\n";
        Some([early, &ok(seen.path())].concat())
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let response = client.ask("GET", "/hints", &[]);
    assert_eq!(response.text(), "/hints");
    let hints = [(":status", "103"), ("link", "</a.css>")];
    let hints = hints.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(response.interim, [hints.to_vec()]);
}

/// The server is not read faster than the client takes its response.
fn a_window_holds_a_response_back(io: &str) {
    let origin = Origin::new(|_| Some(ok(&"x".repeat(1_000_000))));
    let bed = Bed::new(io, &[&origin], "");
    let mut client = crate::Http2::with_settings(&bed.listen, &[(4, 10)]);
    let stream = client.stream();
    client.send(headers(stream, &request("GET", "/", &[]), true));
    let length = |own: &crate::Http2| own.so_far(stream).body.len();
    client.until(|own| length(own) == 10);
    for step in 1..=20 {
        client.send(crate::frames::window(stream, 1));
        client.until(|own| length(own) >= 10 + step);
        assert_eq!(length(&client), 10 + step);
    }
    client.send(crate::frames::window(0, 1_000_000));
    client.send(crate::frames::window(stream, 1_000_000));
    let response = client.response(stream);
    assert!(response.is_complete && response.body.len() == 1_000_000);
}

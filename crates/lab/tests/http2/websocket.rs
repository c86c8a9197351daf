//! Tests of WebSockets of clients of HTTP/2 (RFC 8441), whose servers speak HTTP/1.1.

use std::io::Read;
use std::time::Duration;

use evenkeel_lab::Balancer;
use evenkeel_wire::http::WebSocketKey;
use serde_json::Value;

use crate::frames::{
    CANCEL, Http2, NO_ERROR, PROTOCOL_ERROR, data, headers, request, reset, window,
};
use crate::origin::{Incoming, Origin, Seen, ok, reply};
use crate::peer::{self, stays, until};
use crate::{Bed, on_both_drivers, service};

on_both_drivers! {
    a_websocket_passes_bytes_both_ways
    a_server_sees_the_opening_request_of_http_1
    bytes_before_the_answer_reach_the_server_after_it
    each_side_ends_alone
    a_reset_of_one_side_resets_the_other
    trailers_in_a_websocket_reset_it
    a_wrong_accept_key_is_a_502
    a_refused_websocket_is_an_ordinary_response
    only_websockets_of_version_13_are_opened
    a_connect_that_breaks_the_grammar_is_reset
    routes_and_passwords_hold_for_websockets
    a_websocket_has_its_own_idle_limits
    a_reload_and_a_stop_leave_websockets
    a_stop_cuts_websockets_at_its_limit
    the_access_log_states_a_websocket
    a_client_that_reads_nothing_is_not_read_for
    a_server_that_reads_nothing_gets_no_more
}

/// Fields of an opening request besides the pseudo-fields of each request.
const OPENING: [(&str, &str); 3] = [
    (":protocol", "websocket"),
    ("sec-websocket-version", "13"),
    ("origin", "https://page.example"),
];

/// Returns the response of a server that accepts an opening request.
pub(crate) fn switching(seen: &Seen) -> String {
    let key = seen.field("Sec-WebSocket-Key").unwrap_or_default();
    let key = WebSocketKey::read(key.as_bytes()).unwrap();
    let accept = String::from_utf8(key.accept().to_vec()).unwrap();
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: chat\r\nX-Of: server\r\n\r\n"
    )
}

/// Accepts each WebSocket, and lets the script go on; answers other requests with their path.
fn accepting(script: impl Fn(&mut Incoming<'_>) + Send + Sync + 'static) -> Origin {
    Origin::scripted(move |incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
            if seen.field("Upgrade").is_some() {
                reply(incoming.socket, switching(&seen));
                return script(incoming);
            }
            reply(incoming.socket, ok(seen.path()));
        }
    })
}

/// Echoes bytes until the client ends its side.
pub(crate) fn echo(incoming: &mut Incoming<'_>) {
    while let Some(mut bytes) = incoming.take(1) {
        let more = incoming.buffered().len();
        bytes.extend(incoming.take(more).unwrap_or_default());
        if !reply(incoming.socket, bytes) {
            return;
        }
    }
}

/// Returns a frame that opens a WebSocket.
fn opening(stream: u32, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = request("CONNECT", path, &OPENING);
    // Pseudo-fields come first.
    fields.extend_from_slice(more);
    headers(stream, &fields, false)
}

/// Opens a WebSocket on a new stream, and reads the answer.
#[track_caller]
fn open(client: &mut Http2, path: &str) -> u32 {
    let stream = client.stream();
    client.send(opening(stream, path, &[("sec-websocket-protocol", "chat")]));
    client.until(|own| !own.so_far(stream).head.is_empty() || own.so_far(stream).reset.is_some());
    let answer = client.so_far(stream);
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(!answer.is_complete, "{answer:?}");
    stream
}

/// Sends bytes, and reads as many.
#[track_caller]
fn assert_echo(client: &mut Http2, stream: u32, bytes: &[u8]) {
    let before = client.so_far(stream).body.len();
    bytes.chunks(16_384).for_each(|part| {
        client.send(data(stream, part, false));
    });
    let goal = before + bytes.len();
    client.until(|own| own.length(stream) >= goal);
    assert!(client.so_far(stream).body[before..] == *bytes);
}

fn a_websocket_passes_bytes_both_ways(io: &str) {
    let origin = accepting(echo);
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let streams = [open(&mut client, "/a"), open(&mut client, "/b")];
    for length in [1, 100, 10_000, 60_000] {
        for stream in streams {
            assert_echo(&mut client, stream, &vec![0xFE; length]);
        }
    }
    // Other requests share the connection.
    assert_eq!(client.ask("GET", "/plain", &[]).text(), "/plain");
    for stream in streams {
        client.send(data(stream, "last", true));
        let end = client.response(stream);
        assert!(end.is_complete && end.reset.is_none(), "{:?}", end.reset);
        assert!(end.body.ends_with(b"last"));
    }
    assert_eq!(client.ask("GET", "/plain", &[]).text(), "/plain");
    assert!(client.go_away.is_empty());
    until("only the idle connections", || origin.server.current() == 1);
}

fn a_server_sees_the_opening_request_of_http_1(io: &str) {
    let origin = accepting(echo);
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let own_key = ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
    let extensions = ("sec-websocket-extensions", "permessage-deflate");
    for _ in 0..2 {
        let stream = client.stream();
        client.send(opening(stream, "/chat?room=1", &[own_key, extensions]));
        client.until(|own| !own.so_far(stream).head.is_empty());
        let answer = client.so_far(stream);
        assert_eq!(answer.status(), 200);
        assert_eq!(
            answer.field("sec-websocket-protocol").as_deref(),
            Some("chat")
        );
        assert_eq!(answer.field("x-of").as_deref(), Some("server"));
        for name in [
            "upgrade",
            "connection",
            "sec-websocket-accept",
            "content-length",
            "transfer-encoding",
        ] {
            assert_eq!(answer.field(name), None, "{name}");
        }
    }
    let seen = origin.seen();
    for seen in &seen {
        assert!(
            seen.head.starts_with("GET /chat?room=1 HTTP/1.1\r\n"),
            "{}",
            seen.head
        );
        for (name, value) in [
            ("Host", "web.example"),
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Extensions", "permessage-deflate"),
            ("Origin", "https://page.example"),
            ("X-Forwarded-Proto", "http"),
        ] {
            assert_eq!(seen.field(name).as_deref(), Some(value), "{}", seen.head);
        }
        assert_eq!(seen.field("Content-Length"), None);
        assert_eq!(seen.field("Transfer-Encoding"), None);
    }
    let keys: Vec<_> = seen
        .iter()
        .map(|seen| seen.field("Sec-WebSocket-Key"))
        .collect();
    assert_ne!(keys[0], keys[1]);
    assert!(!keys.contains(&Some(own_key.1.to_owned())));
}

fn bytes_before_the_answer_reach_the_server_after_it(io: &str) {
    let origin = Origin::scripted(|incoming, _| {
        if let Some(seen) = incoming.request() {
            std::thread::sleep(Duration::from_millis(200));
            assert!(incoming.buffered().is_empty());
            let first = format!("{}server's first", switching(&seen));
            reply(incoming.socket, first);
            let taken = incoming.take(5);
            reply(incoming.socket, taken.unwrap_or_default());
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let stream = client.stream();
    client.send([opening(stream, "/", &[]), data(stream, "early", true)].concat());
    let answer = client.response(stream);
    assert_eq!(answer.text(), "server's firstearly");
    assert!(answer.is_complete);
}

fn each_side_ends_alone(io: &str) {
    // The end of the client is passed on, and the server still sends.
    let origin = accepting(|incoming| {
        assert_eq!(incoming.take(3).unwrap(), b"end");
        assert_eq!(incoming.take(1), None);
        reply(incoming.socket, "last words");
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let stream = open(&mut client, "/");
    client.send(data(stream, "end", true));
    let end = client.response(stream);
    assert_eq!(end.text(), "last words");
    assert_eq!((end.is_complete, end.reset), (true, None));

    // The end of the server is passed on, and the client still sends.
    let origin = accepting(|incoming| {
        reply(incoming.socket, "bye");
        let _ = incoming.socket.shutdown(std::net::Shutdown::Write);
        assert_eq!(incoming.take(4).unwrap(), b"late");
        assert_eq!(incoming.take(1), None);
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let stream = open(&mut client, "/");
    let end = client.response(stream);
    assert_eq!(
        (end.text().as_str(), end.is_complete, end.reset),
        ("bye", true, None)
    );
    client.send(data(stream, "late", true));
    until("the end of the server connection", || {
        origin.server.current() == 0
    });
    assert_eq!(client.ask("GET", "/", &[]).status(), 200);
    assert_eq!(client.so_far(stream).reset, None);
}

fn a_reset_of_one_side_resets_the_other(io: &str) {
    let origin = accepting(|incoming| {
        incoming.take(1);
        // The close is a reset.
        let linger = incoming.socket.set_linger(Some(Duration::ZERO));
        linger.unwrap();
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let stream = open(&mut client, "/");
    client.send(data(stream, "x", false));
    assert_eq!(client.response(stream).reset, Some(CANCEL));
    let stream = open(&mut client, "/");
    client.send(reset(stream, CANCEL));
    until("the end of the server connection", || {
        origin.server.current() == 0
    });
    assert_eq!(client.ask("GET", "/", &[]).status(), 200);
    // The end of the whole connection ends its WebSockets.
    open(&mut client, "/");
    drop(client);
    until("no server connection in use", || {
        origin.server.current() <= 1
    });
}

fn trailers_in_a_websocket_reset_it(io: &str) {
    let origin = accepting(echo);
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let stream = open(&mut client, "/");
    client.send(headers(stream, &[("x-md", "abc")], true));
    assert_eq!(client.response(stream).reset, Some(PROTOCOL_ERROR));
    until("the end of the server connection", || {
        origin.server.current() == 0
    });
}

fn a_wrong_accept_key_is_a_502(io: &str) {
    let origin = Origin::new(|seen| {
        let right = switching(seen);
        let accept = right.find("Sec-WebSocket-Accept: ").unwrap() + 22;
        let (before, after) = right.split_at(accept);
        Some(match seen.path() {
            "/wrong" => format!("{before}A{}", &after[1..]),
            "/missing" => right.replace("Sec-WebSocket-Accept", "X-Accept"),
            "/other" => right.replace("Upgrade: websocket", "Upgrade: h2c"),
            _ => right,
        })
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for path in ["/wrong", "/missing", "/other"] {
        let stream = client.stream();
        client.send(opening(stream, path, &[]));
        let answer = client.response(stream);
        assert_eq!((answer.status(), answer.is_complete), (502, true), "{path}");
    }
    open(&mut client, "/right");
}

fn a_refused_websocket_is_an_ordinary_response(io: &str) {
    let origin = Origin::new(|seen| {
        let status = match seen.path() {
            "/403" => "403 Forbidden",
            "/302" => "302 Found\r\nLocation: /there",
            _ => "200 OK",
        };
        Some(format!(
            "HTTP/1.1 {status}\r\nContent-Length: 2\r\nX-Of: server\r\n\r\nno"
        ))
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    for (path, status) in [("/403", 403), ("/302", 302)] {
        let stream = client.stream();
        // Bytes for a WebSocket are no second request.
        let early = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
        client.send([opening(stream, path, &[]), data(stream, early, false)].concat());
        let answer = client.response(stream);
        assert_eq!(answer.status(), status);
        assert_eq!(
            (answer.text().as_str(), answer.is_complete),
            ("no", true),
            "{answer:?}"
        );
        assert_eq!(answer.field("content-length").as_deref(), Some("2"));
        assert_eq!(answer.field("x-of").as_deref(), Some("server"));
    }
    assert_eq!(client.ask("GET", "/", &[]).text(), "no");
    assert_eq!(origin.paths(), ["/403", "/302", "/"]);
}

fn only_websockets_of_version_13_are_opened(io: &str) {
    let origin = accepting(echo);
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let rows = [
        ("connect-udp", "13", 501),
        ("websocket2", "13", 501),
        ("websocket", "8", 400),
        ("websocket", "13, 8", 400),
    ];
    for (protocol, version, status) in rows {
        let more = [(":protocol", protocol), ("sec-websocket-version", version)];
        let stream = client.stream();
        client.send(headers(stream, &request("CONNECT", "/", &more), false));
        let answer = client.response(stream);
        assert_eq!(answer.status(), status, "{protocol} {version}");
        let own = answer.field("sec-websocket-version");
        assert_eq!(own.is_some(), status == 400, "{own:?}");
    }
    let stream = client.stream();
    let upper = [(":protocol", "WebSocket"), ("sec-websocket-version", "13")];
    client.send(headers(stream, &request("CONNECT", "/", &upper), false));
    client.until(|own| own.so_far(stream).status() == 200);
    assert_eq!(origin.seen().len(), 1);
}

fn a_connect_that_breaks_the_grammar_is_reset(io: &str) {
    let origin = accepting(echo);
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let version = ("sec-websocket-version", "13");
    let connect = |more: &[(&'static str, &'static str)]| request("CONNECT", "/", more);
    let rows = [
        connect(&[version]),
        vec![(":method", "CONNECT"), (":authority", "web.example:443")],
        request("GET", "/", &[(":protocol", "websocket"), version]),
        connect(&[(":protocol", ""), version]),
        connect(&[(":protocol", "web socket"), version]),
        connect(&[(":protocol", "websocket"), (":protocol", "websocket")]),
        connect(&[version, (":protocol", "websocket")]),
        connect(&[(":protocol", "websocket"), ("content-length", "0"), version]),
        connect(&[(":protocol", "websocket"), ("upgrade", "websocket")]),
        connect(&[(":protocol", "websocket"), ("connection", "upgrade")]),
    ];
    for fields in rows {
        let stream = client.stream();
        client.send(headers(stream, &fields, false));
        assert_eq!(
            client.response(stream).reset,
            Some(PROTOCOL_ERROR),
            "{fields:?}"
        );
    }
    assert!(origin.seen().is_empty());
    open(&mut client, "/");
}

fn routes_and_passwords_hold_for_websockets(io: &str) {
    // "U*U" with cost 5, of the test vectors of crypt_blowfish; `ann:U*U`, `ann:wrong`.
    let hash = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
    let [right, wrong] = ["Basic YW5uOlUqVQ==", "Basic YW5uOndyb25n"];
    let origin = accepting(echo);
    let routes = format!(
        "[[service.route]]\npath = \"/admin\"\nstrip_prefix = \"/admin\"\n\
         set_request = {{ X-Route = \"admin\" }}\n\
         basic_auth = {{ realm = \"Work\", users = {{ ann = \"{hash}\" }} }}\n\
         [[service.route]]\npath = \"/gone\"\nrespond = {{ status = 410 }}\n\
         [[service.route]]\npath = \"/posts\"\nmethods = [\"POST\"]\nrespond = {{ status = 403 }}\n"
    );
    let bed = Bed::new(io, &[&origin], &routes);
    let mut client = bed.client();
    let mut ask = |path: &str, more: &[(&str, &str)]| {
        let stream = client.stream();
        client.send(opening(stream, path, more));
        client.until(|own| !own.so_far(stream).head.is_empty());
        client.so_far(stream)
    };
    assert_eq!(ask("/gone", &[]).status(), 410);
    assert_eq!(ask("/admin/a", &[]).status(), 401);
    assert_eq!(ask("/admin/a", &[("authorization", wrong)]).status(), 401);
    assert!(origin.seen().is_empty());
    assert_eq!(ask("/admin/a", &[("authorization", right)]).status(), 200);
    let seen = origin.only();
    assert_eq!(seen.path(), "/a");
    assert_eq!(seen.field("X-Route").as_deref(), Some("admin"));
    assert_eq!(seen.field("Authorization"), None);
    // For routes, the method is that of HTTP/1.1: GET.
    assert_eq!(ask("/posts", &[]).status(), 200);
}

fn a_websocket_has_its_own_idle_limits(io: &str) {
    let origin = accepting(echo);
    let times = "[service.times]\ntunnel_idle_ms = 600\nkeepalive_ms = 100\n\
                 first_byte_ms = 100\nbody_idle_ms = 100\n";
    let bed = Bed::new(io, &[&origin], times);
    let mut client = bed.client();
    let stream = open(&mut client, "/");
    let start = std::time::Instant::now();
    while start.elapsed().as_millis() < 1_500 {
        assert_echo(&mut client, stream, b"still here");
        std::thread::park_timeout(Duration::from_millis(200));
    }
    // Silence of both sides.
    assert_eq!(client.response(stream).reset, Some(CANCEL));
    until("the end of the server connection", || {
        origin.server.current() == 0
    });

    // A server that does not end after its client has less time.
    let origin = accepting(|incoming| {
        let _ = incoming.take(1);
        std::thread::park_timeout(Duration::from_secs(20));
    });
    let times = "[service.times]\nbody_idle_ms = 300\n";
    let bed = Bed::new(io, &[&origin], times);
    let mut client = bed.client();
    let stream = open(&mut client, "/");
    client.send(data(stream, "", true));
    assert_eq!(client.response(stream).reset, Some(CANCEL));
}

fn config(io: &str, listen: &str, origin: &Origin, limit_ms: u32, more: &str) -> String {
    let engine = format!("[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = {limit_ms}\n");
    format!("{engine}{}", service(listen, &[origin], more))
}

fn a_reload_and_a_stop_leave_websockets(io: &str) {
    let origin = accepting(echo);
    let listen = peer::own_address(peer::Kind::V4);
    let balancer = Balancer::start(&config(io, &listen, &origin, 60_000, "")).unwrap();
    let mut client = Http2::connect(&listen);
    let stream = open(&mut client, "/");
    let other = "[[service.route]]\npath = \"/b\"\nrespond = { status = 410 }\n";
    let changed = config(io, &listen, &origin, 60_000, other);
    balancer.reload(&changed).unwrap();
    assert_echo(&mut client, stream, b"after the reload");
    assert_eq!(client.ask("GET", "/b", &[]).status(), 410);
    balancer.signal(libc::SIGTERM);
    client.until(|own| own.go_away.len() == 2);
    let last = client.go_away.last().map(|end| end.code);
    assert_eq!(last, Some(NO_ERROR));
    assert_echo(&mut client, stream, b"while the process stops");
    stays("it waits", Duration::from_millis(200), || {
        balancer.is_running()
    });
    client.send(data(stream, "", true));
    let end = client.response(stream);
    assert_eq!((end.is_complete, end.reset), (true, None));
    client.end();
    until("the end of the process", || !balancer.is_running());
}

fn a_stop_cuts_websockets_at_its_limit(io: &str) {
    let origin = accepting(echo);
    let listen = peer::own_address(peer::Kind::V4);
    let balancer = Balancer::start(&config(io, &listen, &origin, 1_500, "")).unwrap();
    let mut client = Http2::connect(&listen);
    let stream = open(&mut client, "/");
    balancer.signal(libc::SIGTERM);
    client.end();
    assert!(!client.so_far(stream).is_complete);
    until("the end of the process", || !balancer.is_running());
}

/// Returns the requests of the access log.
pub(crate) fn logged(balancer: &Balancer) -> Vec<Value> {
    let log = balancer.log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &Value| line["event"] == "request")
        .collect()
}

fn the_access_log_states_a_websocket(io: &str) {
    let origin = accepting(echo);
    let bed = Bed::new(io, &[&origin], "access_log = \"json\"\n");
    let mut client = bed.client();
    let stream = open(&mut client, "/chat");
    assert_echo(&mut client, stream, &[7; 1_000]);
    client.send(data(stream, "", true));
    client.response(stream);
    let cut = open(&mut client, "/cut");
    client.send(reset(cut, CANCEL));
    let refused = client.stream();
    let more = [(":protocol", "other")];
    client.send(headers(refused, &request("CONNECT", "/no", &more), true));
    assert_eq!(client.response(refused).status(), 501);
    until("the lines of the log", || logged(&bed.balancer).len() == 3);
    let find = |path: &str| {
        let lines = logged(&bed.balancer);
        lines.into_iter().find(|line| line["target"] == path)
    };
    let line = find("/chat").unwrap();
    assert_eq!(line["version"], "2", "{line}");
    assert_eq!(line["method"], "GET", "{line}");
    assert_eq!(line["status"], 200, "{line}");
    assert_eq!(line["end"], "complete", "{line}");
    for key in ["from_client_bytes", "to_client_bytes"] {
        let bytes = line[key].as_u64().unwrap();
        assert!((1_000..1_500).contains(&bytes), "{line}");
    }
    let line = find("/cut").unwrap();
    assert_eq!(
        (&line["end"], &line["phase"]),
        (&"client left".into(), &"tunnel".into())
    );
    let line = find("/no").unwrap();
    assert_eq!(
        (&line["status"], &line["end"]),
        (&501.into(), &"refused".into())
    );
}

/// Bytes that a peer may be ahead of the other: windows, and buffers of the kernel and ours.
const AHEAD_MAX: usize = 16 * 1024 * 1024;

fn a_client_that_reads_nothing_is_not_read_for(io: &str) {
    let (count, sent) = std::sync::mpsc::channel();
    let origin = accepting(move |incoming| {
        let part = vec![5; 64 * 1024];
        while reply(incoming.socket, &part) {
            if count.send(part.len()).is_err() {
                return;
            }
        }
    });
    let bed = Bed::new(io, &[&origin], "");
    // The windows are those of the beginning: 65,535 bytes.
    let mut client = Http2::with_settings(&bed.listen, &[]);
    let stream = client.stream();
    client.send(opening(stream, "/", &[]));
    client.until(|own| own.length(stream) == 65_535);
    let mut total = 0;
    while let Ok(length) = sent.recv_timeout(Duration::from_millis(500)) {
        total += length;
        assert!(total < AHEAD_MAX, "{total} bytes");
    }
    // What the client takes is what the server may send.
    client.send(window(0, 1_000_000));
    client.send(window(stream, 1_000_000));
    client.until(|own| own.length(stream) == 1_065_535);
}

fn a_server_that_reads_nothing_gets_no_more(io: &str) {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = accepting(move |incoming| {
        let _ = gate.lock().unwrap().recv();
        let mut socket = incoming.socket;
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(1..) = socket.read(&mut bytes) {}
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    let stream = open(&mut client, "/");
    // The window of a stream when SETTINGS have been read: 256 kB.
    let mut sent = 0_u64;
    let part = vec![3; 16_384];
    let mut pump = |client: &mut Http2, goal: u64| {
        while sent + 16_384 <= client.credit(stream, 262_144).min(goal) {
            client.send(data(stream, &part, false));
            sent += 16_384;
            client.poll(Duration::ZERO);
        }
        sent
    };
    let mut before = 0;
    loop {
        let now = pump(&mut client, u64::MAX);
        assert!(now < AHEAD_MAX as u64, "{now} bytes");
        if now == before && !client.poll(Duration::from_millis(500)) {
            break;
        }
        before = now;
    }
    go.send(()).unwrap();
    let goal = before + 4_000_000;
    while pump(&mut client, goal) + 16_384 <= goal {
        client.poll(Duration::from_secs(1));
    }
}

//! Tests of floods: frames that cost much work and cost the client little (RFC 9113 §10.5). They
//! end their connection, and no other one.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use socket2::Socket;

use crate::frames::{
    CALM, CANCEL, CONTINUATION, GoAway, HEADERS, Http2, PING, SETTINGS, STREAM_CLOSED, block, data,
    frame, headers, request, reset, window,
};
use crate::origin::{Origin, ok};
use crate::peer::{self, until};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    floods_of_resets_end_the_connection
    resets_beside_their_requests_reach_no_server
    floods_of_resets_by_the_server_end_the_connection
    floods_of_frames_end_the_connection
    an_address_is_refused_after_its_floods
    floods_through_a_trusted_proxy_refuse_no_client
    field_blocks_that_grow_are_bounded
    clients_that_take_nothing_are_bounded
    what_waits_too_long_is_ended
}

/// Frames of a flood: several times the burst of each budget.
const FLOOD: u32 = 1_000;

/// Memory in kB that a flood may take, with two workers.
const GROWTH_MAX_KB: u64 = 40 << 10;

/// A balancer, a server of which `/hold` is never answered, and a client that has no fault.
struct Field {
    bed: Bed,
    origin: Origin,
    other: Http2,
}

impl Field {
    fn new(io: &str) -> Field {
        Field::with(io, "")
    }

    fn with(io: &str, more: &str) -> Field {
        let origin = Origin::scripted(|incoming, log| {
            while let Some(seen) = incoming.request() {
                log(&seen);
                let answer = match seen.path() {
                    "/hold" => {
                        let _ = incoming.request();
                        return;
                    }
                    "/large" => ok(&"x".repeat(1_000_000)),
                    path => ok(path),
                };
                if !crate::origin::reply(incoming.socket, answer) {
                    return;
                }
            }
        });
        let bed = Bed::new(io, &[&origin], more);
        let mut other = bed.client();
        assert_eq!(other.ask("GET", "/other", &[]).text(), "/other");
        Field { bed, origin, other }
    }

    fn memory_kb(&self) -> u64 {
        self.bed.balancer.memory_kb()
    }

    /// Sends a flood that must end its connection, and returns the GOAWAY frame.
    #[track_caller]
    fn ends(&mut self, name: &str, flood: impl FnOnce(&mut Http2)) -> GoAway {
        let before = self.memory_kb();
        let mut client = self.bed.client();
        flood(&mut client);
        let end = client.end().unwrap_or_else(|| panic!("{name}: no GOAWAY"));
        // A slow balancer refuses streams above 100. A frame after the end of a refused request is
        // an error of the connection (RFC 9113 §5.1).
        let is_late = end.code == STREAM_CLOSED && end.last > 200;
        assert!(end.code == CALM || is_late, "{name}: {end:?}");
        let reason = format!("HTTP/2 connection ended: {}", end.why);
        until("the reason in the log", || {
            self.bed.balancer.log().contains(&reason)
        });
        self.others_go_on(name);
        let grown = self.memory_kb().saturating_sub(before);
        assert!(grown < GROWTH_MAX_KB, "{name}: {grown} kB more");
        end
    }

    #[track_caller]
    fn others_go_on(&mut self, name: &str) {
        let began = Instant::now();
        for client in [&mut self.other, &mut self.bed.client()] {
            let response = client.ask("GET", "/other", &[]);
            assert_eq!(response.text(), "/other", "{name}: {response:?}");
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{name}: {took:?}");
    }
}

fn floods_of_resets_end_the_connection(io: &str) {
    let mut field = Field::new(io);
    let end = field.ends("rapid reset", |client| {
        for _ in 0..FLOOD {
            let stream = client.stream();
            let head = headers(stream, &request("GET", "/hold", &[]), true);
            client.send([head, reset(stream, CANCEL)].concat());
        }
    });
    assert!(end.last < 2 * FLOOD, "{end:?}");
    let seen = field.origin.seen().len();
    assert!(seen < 250, "{seen} requests at the server");
    field.ends("resets of closed streams", |client| {
        assert_eq!(client.ask("GET", "/a", &[]).text(), "/a");
        for _ in 0..FLOOD {
            client.send(reset(1, CANCEL));
        }
    });
}

/// A request that is reset before its task begins is not sent to a server.
fn resets_beside_their_requests_reach_no_server(io: &str) {
    let mut field = Field::new(io);
    let seen = field.origin.seen().len();
    let mut client = field.bed.client();
    let pairs = (0..50).map(|_| {
        let stream = client.stream();
        let head = headers(stream, &request("GET", "/hold", &[]), true);
        [head, reset(stream, CANCEL)].concat()
    });
    let pairs = pairs.collect::<Vec<_>>().concat();
    client.send(pairs);
    assert_eq!(client.ask("GET", "/after", &[]).text(), "/after");
    field.others_go_on("resets");
    assert_eq!(field.origin.seen().len(), seen + 3);
}

/// The client provokes the resets by faults (CVE-2025-8671).
fn floods_of_resets_by_the_server_end_the_connection(io: &str) {
    type Fault = fn(u32) -> Vec<u8>;
    let faults: [(&str, Fault); 6] = [
        ("WINDOW_UPDATE of 0", |stream| window(stream, 0)),
        ("a window above the largest", |stream| {
            window(stream, 0x7fff_ffff)
        }),
        ("DATA after the end", |stream| data(stream, "a", false)),
        ("HEADERS after the end", |stream| {
            headers(stream, &[("x-a", "b")], true)
        }),
        ("PRIORITY of a wrong length", |stream| {
            frame(2, 0, stream, &[0; 4])
        }),
        ("a malformed head", |_| Vec::new()),
    ];
    let mut field = Field::new(io);
    for (name, fault) in faults {
        field.ends(name, |client| {
            for _ in 0..FLOOD {
                let stream = client.stream();
                let more = [("connection", "a")];
                let fault = fault(stream);
                let more = &more[..usize::from(fault.is_empty())];
                let head = headers(stream, &request("GET", "/hold", more), true);
                client.send([head, fault].concat());
            }
        });
    }
}

fn floods_of_frames_end_the_connection(io: &str) {
    let repeated: [(&str, Vec<u8>); 5] = [
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("SETTINGS of the table", {
            let sizes = [0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 16, 0];
            frame(SETTINGS, 0, 0, &sizes.repeat(100))
        }),
        ("an unknown type", frame(0xbe, 0, 0, b"grease")),
        ("WINDOW_UPDATE", window(0, 1)),
    ];
    let mut field = Field::new(io);
    for (name, bytes) in repeated {
        field.ends(name, |client| {
            // With the largest window, one more would be another fault.
            *client = Http2::with_settings(&client.listen(), &[]);
            client.send(bytes.repeat(FLOOD as usize));
        });
    }
    field.ends("empty DATA", |client| {
        let stream = client.open("POST", "/upload", &[]);
        client.send(data(stream, "", false).repeat(FLOOD as usize));
    });
    field.ends("CONTINUATION", |client| {
        let block = block(&request("GET", "/", &[]));
        client.send(frame(HEADERS, 1, 1, &block));
        let more = frame(CONTINUATION, 0, 1, &[]);
        client.send(more.repeat(FLOOD as usize));
    });
    field.ends("large CONTINUATION", |client| {
        client.send(frame(HEADERS, 1, 1, &[]));
        client.send(frame(CONTINUATION, 0, 1, &[0; 16_384]).repeat(FLOOD as usize));
    });
}

/// References to one large entry of the table, and many small fields: each is refused with 431.
fn field_blocks_that_grow_are_bounded(io: &str) {
    let mut field = Field::new(io);
    let before = field.memory_kb();
    let mut client = field.bed.client();
    let entry = {
        let mut bytes = vec![0x40];
        bytes.extend(&block(&[("x-a", &"b".repeat(4_000))])[1..]);
        bytes
    };
    let pseudo = block(&request("GET", "/bomb", &[]));
    let large = [&pseudo[..], &entry, &[0xbe; 12_000]].concat();
    let small = [&pseudo[..], &block(&[("c", "")]).repeat(3_000)].concat();
    let crumbs = [&pseudo[..], &block(&[("cookie", "")]).repeat(1_500)].concat();
    for block in [large, small, crumbs] {
        for _ in 0..50 {
            let stream = client.stream();
            client.send(frame(HEADERS, 5, stream, &block));
            let response = client.response(stream);
            assert_eq!(response.status(), 431, "{response:?} {:?}", client.go_away);
        }
    }
    field.others_go_on("a growing block");
    let grown = field.memory_kb().saturating_sub(before);
    assert!(grown < GROWTH_MAX_KB, "{grown} kB more");
    assert!(!field.origin.paths().contains(&"/bomb".to_owned()));
}

/// One has shut windows, the other one does not read from its socket.
fn clients_that_take_nothing_are_bounded(io: &str) {
    let mut field = Field::new(io);
    let before = field.memory_kb();
    let shut = Http2::with_settings(&field.bed.listen, &[(4, 0)]);
    let deaf = field.bed.client();
    let mut clients = [shut, deaf];
    for client in &mut clients {
        for _ in 0..100 {
            let stream = client.stream();
            client.send(headers(stream, &request("GET", "/large", &[]), true));
        }
    }
    // A client that does not read its socket is not read either, once the socket is full.
    let mut seen = (0, Instant::now());
    until("the requests", || {
        let now = field.origin.seen().len();
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        now > 101 && seen.1.elapsed() > Duration::from_millis(500)
    });
    field.others_go_on("shut windows");
    let grown = field.memory_kb().saturating_sub(before);
    println!(
        "{io}: {grown} kB for {} responses of 1 MB that wait",
        seen.0
    );
    assert!(grown < GROWTH_MAX_KB, "{grown} kB more");
    drop(clients);
    until("the ends of the server connections", || {
        field.origin.server.current() <= 4
    });
}

/// A field block without its end, and data for which the window is never opened.
fn what_waits_too_long_is_ended(io: &str) {
    let mut field = Field::with(io, "[service.times]\nbody_idle_ms = 3600000\n");
    let began = Instant::now();
    let mut slow = field.bed.client();
    // The SETTINGS of the server are acknowledged before.
    assert_eq!(slow.ask("GET", "/other", &[]).status(), 200);
    slow.send(frame(HEADERS, 1, 3, &block(&request("GET", "/slow", &[]))));
    let mut shut = Http2::with_settings(&field.bed.listen, &[(4, 0)]);
    shut.send(headers(1, &request("GET", "/large", &[]), true));
    // The windows of its streams are open, that of its connection is shut after 65,535 bytes.
    let mut full = Http2::with_settings(&field.bed.listen, &[(4, 1_000_000)]);
    full.send(headers(1, &request("GET", "/large", &[]), true));
    let end = slow.end().unwrap();
    assert_eq!((end.code, &*end.why), (CALM, "a field block took too long"));
    assert!(began.elapsed() >= Duration::from_secs(9));
    for client in [&shut, &full] {
        let limit = Some(Duration::from_secs(60));
        client.socket.set_read_timeout(limit).unwrap();
    }
    let response = shut.response(1);
    assert_eq!(response.reset, Some(CALM), "{response:?}");
    let end = full.end().unwrap();
    assert_eq!(end.code, CALM, "{end:?}");
    assert!(began.elapsed() >= Duration::from_secs(29));
    assert_eq!(shut.ask("HEAD", "/again", &[]).status(), 200);
    field.others_go_on("a shut window");
}

/// Ends a number of connections of the own address by floods.
fn flood(field: &mut Field, times: u32) {
    for _ in 0..times {
        field.ends("PING", |client| {
            client.send(frame(PING, 0, 0, &[0; 8]).repeat(FLOOD as usize));
        });
    }
}

/// Returns whether a client of HTTP/1.1 gets a response. A refused one may see a failed connect.
fn is_served(connected: io::Result<Socket>) -> bool {
    let request = b"GET /1 HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n";
    let served = connected.and_then(|mut socket| {
        socket.write_all(request)?;
        io::read_to_string(socket)
    });
    served.is_ok_and(|text| text.starts_with("HTTP/1.1 200 OK\r\n"))
}

fn an_address_is_refused_after_its_floods(io: &str) {
    let mut field = Field::with(io, "http2_floods_per_minute = 6\n");
    flood(&mut field, 5);
    let mut last = field.bed.client();
    last.send(frame(PING, 0, 0, &[0; 8]).repeat(FLOOD as usize));
    assert_eq!(last.end().unwrap().code, CALM);
    // Its old connections are served, and those of another address.
    assert_eq!(field.other.ask("GET", "/old", &[]).text(), "/old");
    let elsewhere = peer::connect_from([127, 0, 0, 9], &field.bed.listen);
    assert!(is_served(Ok(elsewhere)));
    assert!(!is_served(peer::try_connect(&field.bed.listen)));
    until("the refusal in the log", || {
        let log = field.bed.balancer.log();
        log.contains("(http2_floods_per_minute)")
    });
    assert_eq!(field.bed.status()["errors"]["flooding"], 1);
    // Ten seconds later, there is room for one.
    until("a connection", || {
        is_served(peer::try_connect(&field.bed.listen))
    });
}

fn floods_through_a_trusted_proxy_refuse_no_client(io: &str) {
    let more = "http2_floods_per_minute = 1\nforwarded_from = [\"127.0.0.1\"]\n";
    flood(&mut Field::with(io, more), 3);
}

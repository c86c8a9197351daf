//! Tests of arbitrary input before login, and the answers to it. None of it reaches a server.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Once;
use std::time::{Duration, Instant};

use evenkeel_wire::mysql::Parsed;
use evenkeel_wire::mysql::build::{self, ResponseFields};
use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame;
use evenkeel_wire::mysql::frontend::Code;

use super::client::USUAL;
use super::lines;
use super::stage::{ONE, Setup, TestBed, sql};
use crate::harness::rng::TestRng;
use crate::harness::{DRIVERS, LIMIT, wait_until};

/// Time after which an unauthenticated client is disconnected, whatever it does: the login limit
/// and some processing time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Upper limit of all answers before login, in bytes.
const SAID_MAX: usize = 4096;

/// Number of concurrent connections.
const CROWD: usize = 16;

const SETUP: Setup<'_> = Setup {
    service: "login_timeout_ms = 400",
    ..ONE
};

const ABLE: Capabilities = USUAL
    .with(Capabilities::PROTOCOL_41)
    .with(Capabilities::SECURE_CONNECTION)
    .with(Capabilities::PLUGIN_AUTH)
    .with(Capabilities::PLUGIN_AUTH_LENENC);

fn response(sequence: u8, plugin: &[u8], proof: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = ResponseFields {
        capabilities: ABLE.with(Capabilities::CONNECT_WITH_DB),
        collation: 45,
        user: b"victim",
        proof,
        schema: b"sbtest",
        plugin,
        ..ResponseFields::default()
    };
    build::response(&mut out, sequence, &fields);
    out
}

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    build::packet(&mut out, sequence, |out| out.extend_from_slice(payload));
    out
}

fn tls_request() -> Vec<u8> {
    let mut out = Vec::new();
    build::ssl_request(&mut out, 1, ABLE, 45);
    out
}

fn query() -> Vec<u8> {
    let mut out = Vec::new();
    build::command(
        &mut out,
        Code::Query,
        b"create table sbtest.reached (a int)",
    );
    out
}

/// Returns valid packets, which are then changed at random.
fn seeds() -> Vec<Vec<u8>> {
    let native: &[u8] = b"mysql_native_password";
    let sha2: &[u8] = b"caching_sha2_password";
    let mut seeds = vec![
        Vec::new(),
        query(),
        tls_request(),
        packet(1, &[]),
        packet(1, &[0xff; 40]),
        packet(255, b"anything"),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        [0xff; 64].to_vec(),
    ];
    for plugin in [
        native,
        sha2,
        b"client_ed25519",
        b"mysql_clear_password",
        b"",
    ] {
        for proof in [&b""[..], &[7; 20], &[7; 32], &[7; 200]] {
            let first = response(1, plugin, proof);
            seeds.push(first.clone());
            seeds.push([&first[..], &query()].concat());
            for answer in [&b""[..], b"\0", b"\x02", &[7; 20], &[7; 32], &[7; 256]] {
                let second = packet(3, answer);
                let third = packet(5, &[9; 256]);
                seeds.push([&first[..], &second, &third, &query()].concat());
            }
        }
    }
    seeds
}

fn changed(seed: &[u8], rng: &mut TestRng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..rng.below(4) {
        let at = rng.index(bytes.len());
        match rng.below(6) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
            1 if !bytes.is_empty() => bytes[at] = rng.below(256) as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.below(256) as u8),
            4 => bytes.extend_from_within(at..),
            // Lengths and numbers are the most sensitive bytes.
            5 if bytes.len() > 4 => bytes[rng.index(4)] = rng.below(256) as u8,
            _ => {}
        }
    }
    bytes
}

/// Returns all bytes received until the connection is closed, which it must be.
fn receive_replies(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut piece = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        assert!(
            !left.is_zero(),
            "a stranger is still in the door: {received:?}"
        );
        stream.set_read_timeout(Some(left)).unwrap();
        match stream.read(&mut piece) {
            Ok(0) => return received,
            Ok(length) => received.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Unread input results in a reset.
            Err(_) => return received,
        }
        assert!(received.len() < SAID_MAX, "the door talks on and on");
    }
}

/// Returns the greeting and the answer to these bytes, which are sent in pieces.
fn send_in_pieces(address: SocketAddr, bytes: &[u8], piece: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in bytes.chunks(piece.max(1)) {
        // The client may already have been refused.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    receive_replies(&mut stream)
}

/// Returns the message of the last packet.
fn last_word(received: &[u8]) -> String {
    let (mut rest, mut last) = (received, None);
    while let Parsed::Frame(found, length) = frame::frame(rest, u32::MAX) {
        last = Some(found.payload.to_vec());
        rest = &rest[length..];
    }
    match last {
        Some(payload) if payload.first() == Some(&0x0a) => "greeting".to_owned(),
        Some(payload) => lines::word(&payload, ABLE).0,
        None => "end".to_owned(),
    }
}

/// Creates the user once: the tests of this file run concurrently.
fn set_up_victim() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        sql("create user victim@'127.0.0.1' identified by 'unknown'");
        sql("grant all on sbtest.* to victim@'127.0.0.1'");
        sql("set global userstat = 1");
    });
}

/// Returns the number of logins as that user.
fn visits() -> String {
    sql(
        "select coalesce(sum(total_connections), 0) from information_schema.user_statistics \
         where user = 'victim'",
    )
}

#[test]
fn a_stranger_who_says_anything_at_all_is_gone_in_time_and_reaches_no_server() {
    set_up_victim();
    for (number, io) in DRIVERS.into_iter().enumerate() {
        let bed = TestBed::set_up(io, SETUP);
        let mut rng = TestRng(0x9e37_79b9_7f4a_7c15 + number as u64);
        let seeds = seeds();
        let mut inputs = seeds.clone();
        for _ in 0..2 {
            inputs.extend(seeds.iter().map(|seed| changed(seed, &mut rng)));
        }
        std::thread::scope(|scope| {
            for strangers in inputs.chunks(inputs.len().div_ceil(CROWD)) {
                let address = bed.address;
                scope.spawn(move || {
                    for bytes in strangers {
                        let word = last_word(&send_in_pieces(address, bytes, 1 + bytes.len() / 3));
                        assert!(!word.starts_with("ok "), "{bytes:?}: {word}");
                    }
                });
            }
        });
        assert_eq!(visits(), "0", "{io}");
        // Logins still work.
        assert_eq!(bed.client().value("select 1"), "1", "{io}");
    }
    assert_eq!(sql("show tables from sbtest like 'reached'"), "");
}

#[test]
fn each_fault_has_its_number() {
    set_up_victim();
    for io in DRIVERS {
        let bed = TestBed::set_up(io, SETUP);
        let received = |bytes: &[u8]| last_word(&send_in_pieces(bed.address, bytes, usize::MAX));
        let native = b"mysql_native_password";
        let refused_with = |bytes: &[u8], number: &str| {
            let word = received(bytes);
            assert!(
                word.starts_with(&format!("error {number} ")),
                "{io}: {number}: {word}"
            );
        };
        refused_with(&packet(1, &[b'x'; 20_000]), "1153");
        refused_with(&response(2, native, &[7; 20]), "1156");
        refused_with(&packet(1, &[0, 2, 0]), "1043");
        // Without CLIENT_PROTOCOL_41.
        refused_with(&packet(1, &[0; 40]), "1251");
        // This service has no certificate.
        refused_with(&tls_request(), "1043");
        let wrong = response(1, native, &[7; 20]);
        refused_with(&wrong, "1045");
        refused_with(&[&wrong[..], &query()].concat(), "1045");
        // Nothing, or half of a packet, until the login limit.
        refused_with(b"", "1159");
        refused_with(&wrong[..20], "1159");
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_login_leaves_nothing_behind() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let first = response(1, b"mysql_native_password", &[7; 20]);
        for cut in 0..first.len() {
            let mut stream = TcpStream::connect(bed.address).unwrap();
            stream.write_all(&first[..cut]).unwrap();
            stream.shutdown(Shutdown::Both).unwrap();
        }
        assert_eq!(bed.client().value("select 1"), "1", "{io}");
        let gone = || {
            let status = bed.status();
            let clients = status["clients"].as_u64().or(status["sessions"].as_u64());
            Ok((clients.unwrap_or_default() <= 1).then_some(()))
        };
        evenkeel_lab::eventually(PATIENCE, "nobody in the door", gone).unwrap();
    }
}

#[test]
fn strangers_who_say_nothing_keep_others_out_for_as_long_as_a_login_may_take() {
    for io in DRIVERS {
        let setup = Setup {
            service: "login_timeout_ms = 1500\nlogins_per_address = 2",
            ..ONE
        };
        let bed = TestBed::set_up(io, setup);
        let mut inside = bed.client();
        let reach = || TcpStream::connect(bed.address).unwrap();
        let mut strangers: Vec<TcpStream> = (0..6).map(|_| reach()).collect();
        assert_eq!(inside.value("select 'at work'"), "at work", "{io}");
        // Only strangers within the limit are greeted; the others wait.
        let greeted = || {
            let greeted = strangers.iter().filter(|stranger| {
                stranger
                    .set_read_timeout(Some(Duration::from_millis(20)))
                    .unwrap();
                stranger.peek(&mut [0]).is_ok_and(|length| length > 0)
            });
            greeted.count()
        };
        wait_until(&bed.balancer, "two greetings", || greeted() >= 2);
        assert_eq!(greeted(), 2, "{io}");
        let mut refused = 0;
        for stranger in &mut strangers {
            stranger.set_read_timeout(Some(LIMIT)).unwrap();
            let mut received = Vec::new();
            stranger.read_to_end(&mut received).unwrap();
            // ER_CON_COUNT_ERROR instead of a greeting. A stranger that waited may get a permit
            // just before its own limit, and then receives the error for a login that is too slow.
            let is_refused = received.get(4..7) == Some(&[0xff, 0x10, 0x04]);
            let is_too_slow = String::from_utf8_lossy(&received).contains("login not completed");
            assert!(is_refused || is_too_slow, "{io}: {received:?}");
            refused += usize::from(is_refused);
        }
        assert!(refused <= 4, "{io}: {refused}");
        assert_eq!(bed.client().value("select 'in'"), "in", "{io}");
    }
}

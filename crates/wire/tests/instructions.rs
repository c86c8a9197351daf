//! Bounds the instructions that the codecs execute per message of captured conversations.
//!
//! valgrind counts them, so that the figure is the same on each run, also on machines without
//! hardware counters. A case runs in a process of its own, once for few repetitions and once for
//! more: the difference has no part of the start. Where valgrind is missing, a test says so and is
//! skipped. The bounds are the measured figures and a tenth, without optimisation, as tests are
//! built; `cargo test --release` prints the product's figures.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use std::cell::RefCell;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use evenkeel_wire::http;
use evenkeel_wire::http::chunked::{self, ChunkDecoder, ChunkLimits};
use evenkeel_wire::mysql::conversation as mysql_conversation;
use evenkeel_wire::mysql::frame::{PAYLOAD_LENGTH_MAX, frame};
use evenkeel_wire::mysql::{self, flags::Capabilities, flags::Status, frontend};
use evenkeel_wire::postgres::client_scanner::{self, ClientScanner};
use evenkeel_wire::postgres::conversation::{Conversation, Origin, RequestToken};
use evenkeel_wire::postgres::server_scanner::{ServerScanner, Step};
use evenkeel_wire::proxy_header;

/// Name of the case, and how often it is repeated, in the process that valgrind runs.
const CASE: &str = "EVENKEEL_CODEC_CASE";
const TIMES: &str = "EVENKEEL_CODEC_TIMES";

const FEW: u64 = 50;
const MORE: u64 = 250;

fn corpus(target: &str, name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    fs::read(folder.join(target).join(name)).unwrap()
}

/// Scans a client's messages and passes them to a conversation. Returns their number.
fn postgres_client(bytes: &[u8], conversation: &mut Conversation) -> u64 {
    let (mut scanner, mut at, mut messages) = (ClientScanner::new(1 << 20), 0, 0);
    while at < bytes.len() {
        at += match scanner.next(&bytes[at..]) {
            client_scanner::Step::Message {
                passed,
                request,
                length,
                ..
            } => {
                messages += 1;
                let _ = conversation.sent(request, Origin::Client, RequestToken(0));
                passed + length
            }
            client_scanner::Step::Wait { passed, .. } if passed > 0 => passed,
            other => panic!("{other:?}"),
        };
    }
    messages
}

/// Scans the messages of a client and the replies of its server. Returns the number of both.
fn postgres_server(client: &[u8], server: &[u8]) -> u64 {
    let mut conversation = Conversation::new();
    let mut messages = postgres_client(client, &mut conversation);
    let (mut scanner, mut at) = (ServerScanner::new(), 0);
    while at < server.len() {
        let Step::Event {
            passed,
            event,
            length,
        } = scanner.next(&server[at..])
        else {
            break;
        };
        black_box(conversation.reply(&event).unwrap());
        while conversation.due().is_some() {}
        at += passed + length;
        messages += 1;
    }
    messages
}

/// Reads a MySQL client's packets as commands. Returns their number.
fn mysql_client(bytes: &[u8]) -> u64 {
    let (mut rest, mut packets) = (bytes, 0);
    while let mysql::Parsed::Frame(packet, length) = frame(rest, PAYLOAD_LENGTH_MAX) {
        // The first one is the login.
        if packets > 0 {
            let _ = black_box(frontend::request(packet.payload, Capabilities::SPOKEN));
        }
        rest = &rest[length..];
        packets += 1;
    }
    packets
}

/// Scans the replies to a MySQL client's commands. Returns the number of the server's events.
fn mysql_server(bytes: &[u8]) -> u64 {
    let (agreed, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (length, rest) = rest.split_first_chunk::<4>().unwrap();
    let agreed = Capabilities(u64::from_le_bytes(*agreed)).both(Capabilities::SPOKEN);
    let (mut client, server) = rest.split_at(u32::from_le_bytes(*length) as usize);
    let mut conversation = mysql_conversation::Conversation::new(Status::AUTOCOMMIT);
    let mut scanner = mysql::server_scanner::ServerScanner::new(agreed);
    let (mut at, mut events) = (0, 0);
    loop {
        while let Some(expected) = conversation.expected_reply() {
            let mysql::server_scanner::Step::Event {
                passed,
                event,
                length,
            } = scanner.next(&server[at..], expected)
            else {
                return events;
            };
            black_box(conversation.reply(&event).unwrap());
            at += passed + length;
            events += 1;
        }
        let mysql::Parsed::Frame(packet, length) = frame(client, PAYLOAD_LENGTH_MAX) else {
            return events;
        };
        client = &client[length..];
        let request = frontend::request(packet.payload, agreed).unwrap();
        let request = mysql_conversation::Request::of(&request);
        conversation.sent(
            request,
            mysql_conversation::Origin::Client,
            mysql_conversation::RequestToken(0),
        );
    }
}

/// Parses the head of an HTTP request and writes it with forwarded fields.
fn http_request(bytes: &[u8], head: &mut http::RequestHead, out: &mut Vec<u8>) -> u64 {
    let parsed = head.parse(bytes, &http::HeadLimits::default());
    assert_eq!(black_box(parsed), http::Parsed::Complete);
    let edit = http::RequestEdit {
        remove: &[b"Forwarded", b"X-Real-IP"],
        forwarded: &[(b"X-Forwarded-For", b"192.0.2.1")],
        ..http::RequestEdit::default()
    };
    out.clear();
    black_box(http::write_request(out, head, bytes, &edit));
    1
}

/// Parses the head of an HTTP response and writes it.
fn http_response(bytes: &[u8], head: &mut http::ResponseHead, out: &mut Vec<u8>) -> u64 {
    let parsed = head.parse(bytes, &http::HeadLimits::default(), http::Method::Get);
    assert_eq!(black_box(parsed), http::Parsed::Complete);
    out.clear();
    let edit = http::ResponseEdit::default();
    black_box(http::write_response(out, head, bytes, &edit));
    1
}

/// Decodes a body of chunks. Returns their number.
fn http_chunks(bytes: &[u8], decoder: &mut ChunkDecoder) -> u64 {
    let (mut at, mut chunks) = (0, 0);
    decoder.restart();
    while let chunked::Step::Data(range) = decoder.next(&bytes[at..]) {
        at += range.end;
        chunks += 1;
    }
    assert!(decoder.is_complete());
    chunks
}

fn proxy_header(bytes: &[u8]) -> u64 {
    assert!(matches!(
        black_box(proxy_header::parse(bytes)),
        proxy_header::Parsed::Frame(..)
    ));
    1
}

/// Runs a case `times` times, and returns the number of messages of each time.
fn run(case: &str, times: u64) -> u64 {
    let repeat = |act: &dyn Fn() -> u64| (0..times).map(|_| act()).last().unwrap_or(0);
    match case {
        "postgres_client" => {
            let bytes = corpus("postgres_client", "extended");
            repeat(&|| postgres_client(black_box(&bytes), &mut Conversation::new()))
        }
        "postgres_server" => {
            let client = corpus("postgres_client", "extended");
            let server = corpus("postgres_server", "extended");
            repeat(&|| postgres_server(black_box(&client), black_box(&server)))
        }
        "mysql_client" => {
            let bytes = corpus("mysql_client", "prepared_mysql");
            repeat(&|| mysql_client(black_box(&bytes)))
        }
        "mysql_server" => {
            let bytes = corpus("mysql_server", "prepared_mysql");
            repeat(&|| mysql_server(black_box(&bytes)))
        }
        "http_request_3" | "http_request_16" => {
            let name = match case {
                "http_request_3" => "ok-three-fields",
                _ => "ok-browser",
            };
            let bytes = corpus("http_request", name);
            let parts = RefCell::new((http::RequestHead::new(), Vec::new()));
            repeat(&|| {
                let (head, out) = &mut *parts.borrow_mut();
                http_request(black_box(&bytes), head, out)
            })
        }
        "http_response" => {
            let bytes = corpus("http_response", "ok-eight-fields");
            let parts = RefCell::new((http::ResponseHead::new(), Vec::new()));
            repeat(&|| {
                let (head, out) = &mut *parts.borrow_mut();
                http_response(black_box(&bytes), head, out)
            })
        }
        "http_chunks" => {
            let bytes = [&b"10\r\n0123456789abcdef\r\n".repeat(8), &b"0\r\n\r\n"[..]].concat();
            let decoder = RefCell::new(ChunkDecoder::new(ChunkLimits::default()));
            repeat(&|| http_chunks(black_box(&bytes), &mut decoder.borrow_mut()))
        }
        "proxy_header_v1" => {
            let bytes = b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n";
            repeat(&|| proxy_header(black_box(bytes)))
        }
        "proxy_header_v2" => {
            let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
            bytes.extend_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 0x04, 0x01, 0xbb]);
            repeat(&|| proxy_header(black_box(&bytes)))
        }
        _ => panic!("no case {case}"),
    }
}

#[test]
fn the_case_of_this_process() {
    if let (Ok(case), Ok(times)) = (env::var(CASE), env::var(TIMES)) {
        assert!(run(&case, times.parse().unwrap()) > 0);
    }
}

/// Returns the instructions of a process that runs a case `times` times. `None`: valgrind is
/// missing.
fn instructions(case: &str, times: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "the_case_of_this_process", "--test-threads=1"])
        .env(CASE, case)
        .env(TIMES, times.to_string())
        .output()
        .ok()?;
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{report}");
    let collected = report
        .lines()
        .find_map(|line| line.split("Collected :").nth(1));
    let count = collected.unwrap_or_else(|| panic!("no count in {report}"));
    Some(count.trim().parse().unwrap())
}

/// Checks the instructions per message of a case.
fn check(case: &str, instructions_max: u64) {
    let (Some(few), Some(more)) = (instructions(case, FEW), instructions(case, MORE)) else {
        println!("skipped: valgrind, which counts the instructions, is missing");
        return;
    };
    let messages = run(case, 1) * (MORE - FEW);
    let each = (more - few) / messages;
    println!("{case}: {each} instructions per message");
    if cfg!(debug_assertions) {
        assert!(
            each <= instructions_max,
            "{case}: {each} instructions per message"
        );
    }
}

#[test]
fn reading_a_client_of_postgresql_takes_few_instructions() {
    check("postgres_client", 907);
}

#[test]
fn following_a_conversation_of_postgresql_takes_few_instructions() {
    check("postgres_server", 1_004);
}

#[test]
fn reading_a_client_of_mysql_takes_few_instructions() {
    check("mysql_client", 632);
}

#[test]
fn following_a_conversation_of_mysql_takes_few_instructions() {
    check("mysql_server", 1_826);
}

#[test]
fn reading_a_proxy_header_takes_few_instructions() {
    check("proxy_header_v1", 3_250);
    check("proxy_header_v2", 1_195);
}

#[test]
fn reading_and_writing_heads_of_http_takes_few_instructions() {
    check("http_request_3", 19_596);
    check("http_request_16", 53_358);
    check("http_response", 27_647);
}

#[test]
fn reading_chunks_of_http_takes_few_instructions() {
    check("http_chunks", 842);
}

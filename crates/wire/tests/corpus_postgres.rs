//! Replays the PostgreSQL fuzzers' corpora, and whole captured conversations.

use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::client_scanner::{self, ClientScanner};
use evenkeel_wire::postgres::conversation::{Conversation, Delivery, Origin, RequestToken};
use evenkeel_wire::postgres::server_scanner::{ServerScanner, Step};

#[path = "../../../fuzz/invariants/postgres_client.rs"]
mod client;
#[path = "../../../fuzz/invariants/postgres_conversation.rs"]
mod conversation;
#[path = "harness/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/invariants/postgres_login.rs"]
mod login;
#[path = "../../../fuzz/invariants/postgres_server.rs"]
mod server;
#[path = "../../../fuzz/invariants/postgres_startup.rs"]
mod startup;

use corpus::corpus;

/// Checks every file, and every beginning of the short ones.
fn replay(target: &str, at_least: usize, check: impl Fn(&[u8])) {
    let inputs = corpus(target).expect("a corpus");
    assert!(
        inputs.len() >= at_least,
        "{} seeds of {target}",
        inputs.len()
    );
    for (name, bytes) in inputs {
        println!("{target}/{name}");
        check(&bytes);
        for cut in 0..bytes.len().min(1_000) {
            check(&bytes[..cut]);
        }
    }
}

#[test]
fn every_corpus_file_keeps_the_codecs_promises() {
    replay("postgres_startup", 10, startup::check);
    replay("postgres_client", 17, client::check);
    replay("postgres_server", 20, server::check);
    replay("postgres_login", 10, login::check);
    replay("postgres_conversation", 3, conversation::check);
}

fn read(target: &str, name: &str) -> Vec<u8> {
    let inputs = corpus(target).expect("a corpus");
    let found = inputs.into_iter().find(|(found, _)| found == name);
    found.unwrap_or_else(|| panic!("no {target}/{name}")).1
}

/// Passes to a conversation the messages of a client that sent all of them together, and the
/// replies of PostgreSQL 15.
fn follow(name: &str, piece: usize) -> (Conversation, Vec<u8>) {
    let mut conversation = Conversation::new();
    let sent = read("postgres_client", name);
    let (mut client_scanner, mut at) = (ClientScanner::new(1 << 20), 0);
    while at < sent.len() {
        let (passed, length) = match client_scanner.next(&sent[at..]) {
            client_scanner::Step::Message {
                passed,
                request,
                length,
                ..
            } => {
                let _ = conversation.sent(request, Origin::Client, RequestToken(0));
                (passed, length)
            }
            client_scanner::Step::Wait { passed, .. } if passed > 0 => (passed, 0),
            other => panic!("{name}: {other:?}"),
        };
        at += passed + length;
    }
    let bytes = read("postgres_server", name);
    let mut boundaries = ServerScanner::new();
    let (mut consumed, mut end, mut forwarded) = (0, 0, Vec::new());
    while end < bytes.len() {
        end = (end + piece).min(bytes.len());
        loop {
            let step = boundaries.next(&bytes[consumed..end]);
            let (passed, length) = match step {
                Step::Event { passed, length, .. } => (passed, length),
                Step::Wait { passed, .. } => (passed, 0),
                Step::Invalid(fault) => panic!("{name}: {fault}"),
            };
            assert_eq!(conversation.delivery(), Delivery::Forward);
            forwarded.extend_from_slice(&bytes[consumed..consumed + passed + length]);
            consumed += passed + length;
            let Step::Event { event, .. } = step else {
                break;
            };
            let reply = conversation.reply(&event);
            assert_eq!(
                reply
                    .unwrap_or_else(|error| panic!("{name}: {error} {event:?}"))
                    .delivery,
                Delivery::Forward
            );
            while conversation.due().is_some() {}
        }
    }
    assert_eq!(forwarded, bytes);
    (conversation, bytes)
}

#[test]
fn captured_conversations_end_idle_however_they_are_cut() {
    for name in [
        "simple",
        "extended",
        "extended_error_skips",
        "pipeline_queries",
        "copy_in_query",
        "copy_in_fails_late_data",
        "copy_in_extended",
        "copy_in_extended_fails",
        "copy_out",
        "function_call",
        "transaction_pipeline_implicit",
        "long_error",
        "big_row",
    ] {
        for piece in [1, 5, 100, 100_000] {
            let (conversation, _) = follow(name, piece);
            assert!(conversation.is_idle(), "{name}: {conversation:?}");
            assert_eq!(conversation.status(), TransactionStatus::Idle);
        }
    }
}

#[test]
fn a_captured_replication_stream_is_followed_to_its_end() {
    for piece in [1, 10, 100_000] {
        let (conversation, _) = follow("replication_copy_both", piece);
        assert!(conversation.is_certain(), "{conversation:?}");
        assert!(!conversation.is_streaming(), "{conversation:?}");
    }
}

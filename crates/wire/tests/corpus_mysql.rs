//! Replays the MySQL fuzzers' corpora, and whole captured conversations.

#[path = "../../../fuzz/invariants/mysql_client.rs"]
mod client;
#[path = "harness/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/invariants/mysql_login.rs"]
mod login;
#[path = "../../../fuzz/invariants/mysql_server.rs"]
mod server;

use corpus::corpus;

/// Checks every file, and beginnings of it.
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
        for cut in (0..bytes.len().min(1_000)).step_by(7) {
            check(&bytes[..cut]);
        }
    }
}

#[test]
fn every_corpus_file_keeps_the_codecs_promises() {
    replay("mysql_server", 30, server::check);
    replay("mysql_client", 12, client::check);
    replay("mysql_login", 30, login::check);
}

/// Returns the corpus without the files that the fuzzer found, whose names begin with `found_`.
fn captures() -> Vec<(String, Vec<u8>)> {
    let mut inputs = corpus("mysql_server").expect("a corpus");
    inputs.retain(|(name, _)| !name.starts_with("found_"));
    assert!(inputs.len() >= 30);
    inputs
}

#[test]
fn captured_conversations_end_idle_however_they_are_cut() {
    for (name, bytes) in captures() {
        let input = server::Input::read(&bytes).expect("an input");
        for piece in [1, 5, 100, 100_000] {
            let seen = server::follow(&input, input.agreed, input.server, piece);
            assert_eq!(seen.consumed, input.server.len(), "{name}: {seen:?}");
            assert!(seen.idle && seen.certain, "{name}: {seen:?}");
        }
    }
}

#[test]
fn captured_conversations_mean_the_same_in_every_form() {
    for (name, bytes) in captures() {
        let input = server::Input::read(&bytes).expect("an input");
        let whole = server::follow(&input, input.agreed, input.server, 4096);
        for other in server::others(input.agreed) {
            let there = server::transcode(&input, other, true);
            let heard = server::follow(&input, other, &there, 4096);
            assert_eq!(heard.settled, whole.settled, "{name} {other:?}");
            assert_eq!(heard.consumed, there.len(), "{name} {other:?}");
            assert_in_order(&name, &there);
        }
    }
}

/// Asserts that packet numbers are consecutive, or restart with a reply. In conversations with a
/// file or a login, they skip the client's packets.
fn assert_in_order(name: &str, bytes: &[u8]) {
    let (mut rest, mut last) = (bytes, 0_u8);
    while let Some(([a, b, c, sequence], behind)) = rest.split_first_chunk() {
        let passed_over = name.starts_with("infile") || name.starts_with("renew");
        let next = *sequence == last.wrapping_add(1) || *sequence == 1;
        assert!(next || passed_over, "{name}: {last} {sequence}");
        last = *sequence;
        rest = &behind[u32::from_le_bytes([*a, *b, *c, 0]) as usize..];
    }
}

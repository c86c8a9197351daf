//! Replays the MySQL fuzzers' corpora, and whole captured conversations.

use std::path::Path;
use std::{fs, io};

#[path = "../../../fuzz/invariants/mysql_server.rs"]
mod server;

fn corpus(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        inputs.push((name, fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}

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
}

#[test]
fn captured_conversations_end_idle_however_they_are_cut() {
    for (name, bytes) in corpus("mysql_server").expect("a corpus") {
        let input = server::Input::read(&bytes).expect("an input");
        for piece in [1, 5, 100, 100_000] {
            let seen = server::follow(&input, input.agreed, input.server, piece);
            assert_eq!(seen.consumed, input.server.len(), "{name}: {seen:?}");
            assert!(seen.idle && seen.certain, "{name}: {seen:?}");
        }
    }
}

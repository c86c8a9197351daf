//! Replays the corpora of the fuzzers that read SQL.

use std::path::Path;
use std::{fs, io};

#[path = "../../../fuzz/invariants/sql_mysql.rs"]
mod mysql;
#[path = "../../../fuzz/invariants/sql_postgres.rs"]
mod postgres;

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

/// Checks every file, and beginnings of it: one of `step`.
fn replay(target: &str, at_least: usize, step: usize, check: impl Fn(&[u8])) {
    let inputs = corpus(target).expect("a corpus");
    assert!(
        inputs.len() >= at_least,
        "{} seeds of {target}",
        inputs.len()
    );
    for (name, bytes) in inputs {
        println!("{target}/{name}");
        check(&bytes);
        for cut in (0..bytes.len().min(1_000)).step_by(step) {
            check(&bytes[..cut]);
        }
    }
}

#[test]
fn every_corpus_file_keeps_the_readers_promises() {
    replay("sql_mysql", 12, 7, mysql::check);
    replay("sql_postgres", 12, 1, postgres::check);
}

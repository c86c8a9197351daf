//! Replays the fuzzer's corpus of GTIDs and log positions, whole and truncated at every byte.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/invariants/gtid.rs"]
mod invariants;

#[test]
fn every_corpus_file_keeps_the_readers_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gtid");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        let bytes = fs::read(&path).unwrap();
        for cut in 0..=bytes.len() {
            invariants::check(&bytes[..cut]);
        }
        count += 1;
    }
    assert!(count >= 14, "{count} files");
}

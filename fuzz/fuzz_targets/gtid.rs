//! Parses any bytes as GTIDs of either database and as a log position.
#![no_main]

#[path = "../invariants/gtid.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

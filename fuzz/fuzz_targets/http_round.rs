//! Parses any bytes as a head, writes it with edits, and parses it again.
#![no_main]

#[path = "../invariants/http_round.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

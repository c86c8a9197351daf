//! Decodes any bytes as field blocks, and makes heads of the fields.
#![no_main]

#[path = "../invariants/hpack.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

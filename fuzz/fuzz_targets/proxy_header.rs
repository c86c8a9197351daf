//! Parses any bytes as a PROXY header.
#![no_main]

#[path = "../invariants/proxy_header.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

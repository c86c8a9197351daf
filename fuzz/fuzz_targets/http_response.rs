//! Parses any bytes as the head of an HTTP response.
#![no_main]

#[path = "../invariants/http_response.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

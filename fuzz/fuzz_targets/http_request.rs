//! Parses any bytes as the head of an HTTP request.
#![no_main]

#[path = "../invariants/http_request.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

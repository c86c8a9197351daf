//! Decodes any bytes as a chunked body.
#![no_main]

#[path = "../invariants/http_chunked.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

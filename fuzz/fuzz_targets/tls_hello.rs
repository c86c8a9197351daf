//! Parses any bytes as the ClientHello of a TLS client.
#![no_main]

#[path = "../invariants/tls_hello.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

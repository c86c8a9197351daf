//! Has a server of HTTP/2 read any bytes after the preface.
#![no_main]

#[path = "../invariants/http2_frames.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

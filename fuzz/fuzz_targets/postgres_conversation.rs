//! Runs any sequence of requests and replies.
#![no_main]

#[path = "../invariants/postgres_conversation.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

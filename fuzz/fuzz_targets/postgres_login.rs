//! Reads any messages in the logins of both sides.
#![no_main]

#[path = "../invariants/postgres_login.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

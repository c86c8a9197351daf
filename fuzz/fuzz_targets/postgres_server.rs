//! Reads any bytes as messages of a PostgreSQL server.
#![no_main]

#[path = "../invariants/postgres_server.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

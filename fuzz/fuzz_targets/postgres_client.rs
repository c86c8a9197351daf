//! Reads any bytes as messages of a PostgreSQL client.
#![no_main]

#[path = "../invariants/postgres_client.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

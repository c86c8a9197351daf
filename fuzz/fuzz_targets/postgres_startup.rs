//! Reads any bytes as the beginning of a PostgreSQL connection.
#![no_main]

#[path = "../invariants/postgres_startup.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

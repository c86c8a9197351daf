//! Reads any bytes as a SQL text.
#![no_main]

#[path = "../invariants/sql_postgres.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

//! Reads any bytes as a text in MySQL's dialect.
#![no_main]

#[path = "../invariants/sql_mysql.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

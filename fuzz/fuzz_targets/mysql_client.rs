//! Reads any bytes as those of a MySQL client.
#![no_main]

#[path = "../invariants/mysql_client.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

//! Reads any bytes as those of an unauthenticated client and of a server at a MySQL login.
#![no_main]

#[path = "../invariants/mysql_login.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

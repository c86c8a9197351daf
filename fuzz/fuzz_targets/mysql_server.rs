//! Reads any bytes as those of a MySQL server, in any conversation.
#![no_main]

#[path = "../invariants/mysql_server.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

//! Any bytes at all, as what a PostgreSQL connection begins with.
#![no_main]

#[path = "../invariants/postgres_startup.rs"]
mod invariants;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| invariants::check(bytes));

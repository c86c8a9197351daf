//! Writes the parts of the documentation that the keys of the configuration determine.

use std::process::{Command, ExitCode};

/// Runs the tests that compare these parts with the program, so that they write them.
pub(crate) fn run() -> ExitCode {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "test",
            "-p",
            "evenkeel-config",
            "--test",
            "config",
            "of_the_program",
        ])
        .env("EVENKEEL_WRITE_REFERENCE", "1");
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

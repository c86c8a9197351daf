//! The `evenkeel` program: its command line, and nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    evenkeel::cli::main()
}

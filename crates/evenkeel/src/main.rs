//! Starts the `evenkeel` program: runs its command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    evenkeel::cli::main()
}

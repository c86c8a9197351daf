//! Chores of the repository, as `cargo xtask <chore>`.

use std::process::ExitCode;

mod tidy;

const USAGE: &str = "usage: cargo xtask tidy    checks the rules of CONTRIBUTING.md";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::run(),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

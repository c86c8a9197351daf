//! Chores of the repository, as `cargo xtask <chore>`.

use std::process::ExitCode;

mod rivals;
mod tidy;

const USAGE: &str = "\
usage: cargo xtask tidy              checks the rules of CONTRIBUTING.md
       cargo xtask rivals            makes the root file system with the lab's newest servers
       cargo xtask rivals --check    lists what is in it
       cargo xtask rivals --renew    makes it again, with today's versions";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rivals"] => rivals::run(false),
        ["rivals", "--renew"] => rivals::run(true),
        ["rivals", "--check"] => rivals::check(),
        ["tidy"] => tidy::run(),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

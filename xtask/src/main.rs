//! Tasks of the repository, run as `cargo xtask <task>`.

use std::path::Path;
use std::process::ExitCode;

mod lines;
mod package;
mod reference;
mod rivals;
mod tidy;

const USAGE: &str = "\
usage: cargo xtask tidy              checks the rules of CONTRIBUTING.md
       cargo xtask lines             counts the production lines of each crate
       cargo xtask reference         writes the tables of keys and the schema in docs/
       cargo xtask package [--binary FILE] [--out DIRECTORY]
                                     builds the .deb: of a release build, or of this binary
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
        ["lines"] => lines::run(),
        ["reference"] => reference::run(),
        ["package", ref options @ ..] => package::run(options),
        _ => wrong_usage(),
    }
}

fn wrong_usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// Returns the repository that this program was built from.
fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}

//! Implements `evenkeel manual DIRECTORY`: writes man pages and shell completions.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

#[derive(Debug, Args)]
pub(super) struct ManualArgs {
    /// Existing directory for the man pages (evenkeel.1, evenkeel-run.1, …) and shell completions.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

pub(super) fn manual(args: &ManualArgs) -> ExitCode {
    match write(&args.directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let directory = args.directory.display();
            eprintln!("error: cannot write man pages to {directory}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(directory: &Path) -> io::Result<()> {
    // Pages about `help` would only repeat the others.
    let pages = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(pages, directory)?;
    let mut command = Cli::command();
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut command, "evenkeel", directory)?;
    }
    Ok(())
}

//! `evenkeel upgrade`: has the running process start the new one and hand over to it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::{Where, ask};
use crate::upgrade::{LIMIT_MS_DEFAULT, LIMIT_MS_MAX};

#[derive(Debug, Args)]
pub(super) struct UpgradeArgs {
    /// The new program; when nothing is said, the one that runs, as its path leads to it now.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// How long the new process may take until it serves.
    #[arg(
        long,
        value_name = "MILLISECONDS",
        default_value_t = LIMIT_MS_DEFAULT,
        value_parser = clap::value_parser!(u64).range(1..=LIMIT_MS_MAX)
    )]
    limit_ms: u64,
    #[command(flatten)]
    place: Where,
}

pub(super) fn upgrade(args: &UpgradeArgs) -> ExitCode {
    // The running process may be somewhere else.
    let binary = args.binary.as_ref();
    let binary = binary.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    let body = json!({ "binary": binary, "limit_ms": args.limit_ms });
    ask::command(&args.place, "/api/v1/upgrade", &body)
}

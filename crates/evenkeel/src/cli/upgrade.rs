//! Implements `evenkeel upgrade`: requests the running process to start a new one and to hand over
//! to it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::{ProcessArgs, requests};
use crate::upgrade::{LIMIT_MS_DEFAULT, LIMIT_MS_MAX};

#[derive(Debug, Args)]
pub(super) struct UpgradeArgs {
    /// New binary [default: the path the running process was started from].
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Time the new process may take to start serving.
    #[arg(
        long,
        value_name = "MILLISECONDS",
        default_value_t = LIMIT_MS_DEFAULT,
        value_parser = clap::value_parser!(u64).range(1..=LIMIT_MS_MAX)
    )]
    limit_ms: u64,
    /// Terminate the sessions of a process that still drains after the last upgrade.
    #[arg(long)]
    end_draining: bool,
    #[command(flatten)]
    process: ProcessArgs,
}

pub(super) fn upgrade(args: &UpgradeArgs) -> ExitCode {
    // The running process may have another working directory.
    let binary = args.binary.as_ref();
    let binary = binary.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    let body = json!({
        "binary": binary,
        "limit_ms": args.limit_ms,
        "end_draining": args.end_draining,
    });
    requests::command(&args.process, "/api/v1/upgrade", &body)
}

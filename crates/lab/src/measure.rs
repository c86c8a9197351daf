//! `evenkeel-lab measure`: see below.
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
/// x
#[derive(Args)]
pub(crate) struct Options {}
pub(crate) fn run(_: &Options) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}

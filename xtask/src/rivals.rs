//! `cargo xtask rivals`: creates a root file system with the servers that Debian stable lacks.
//!
//! The packages come from Debian unstable, through the package mirror that this machine is
//! configured for. The lab runs the programs in it; none of them is installed on the machine
//! itself.

use std::process::ExitCode;
use std::time::Instant;

mod build;
mod mirror;
mod packages;
mod rootfs_dir;
mod step;

use rootfs_dir::RootfsDir;

/// Runs `cargo xtask rivals [--check | --renew]`.
pub(crate) fn run(renew: bool) -> ExitCode {
    report(RootfsDir::of_this_machine().and_then(|rootfs| make(&rootfs, renew)))
}

/// Prints the installed packages; fails if there is no complete root file system.
pub(crate) fn check() -> ExitCode {
    let versions = RootfsDir::of_this_machine().and_then(|rootfs| {
        rootfs.versions().ok_or_else(|| {
            let path = rootfs.path().display();
            format!("{path} is not there or not whole: cargo xtask rivals makes it")
        })
    });
    report(versions.map(|versions| print!("{versions}")))
}

fn make(rootfs: &RootfsDir, renew: bool) -> Result<(), String> {
    if !renew && rootfs.versions().is_some() {
        println!("{} is complete", rootfs.path().display());
        return Ok(());
    }
    step::require_root_and_programs()?;
    let _lock = rootfs.lock()?;
    // The process that held the lock may have created it meanwhile.
    if !renew && rootfs.versions().is_some() {
        return Ok(());
    }
    let start = Instant::now();
    let mirror = mirror::find(rootfs)?;
    rootfs.clear_half_made()?;
    println!("making {} from Debian unstable", rootfs.path().display());
    build::base(rootfs, &mirror)?;
    let outcome = build::install(rootfs)?;
    build::tidy_up(rootfs, &outcome)?;
    rootfs.put_in_place()?;
    print!("{}", rootfs.versions().unwrap_or_default());
    println!("made in {} s", start.elapsed().as_secs());
    Ok(())
}

fn report(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("rivals: {message}");
            ExitCode::FAILURE
        }
    }
}

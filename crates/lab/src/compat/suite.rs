//! PostgreSQL's own regression tests, fetched from Debian's source package and kept.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

/// Where fetched suites are kept: `EVENKEEL_SUITES`, or the machine's or the user's usual place.
pub(super) fn home() -> PathBuf {
    if let Some(chosen) = env::var_os("EVENKEEL_SUITES") {
        return chosen.into();
    }
    if process::is_root() {
        return "/var/lib/evenkeel/suites".into();
    }
    let user = env::var_os("HOME").map_or_else(env::temp_dir, PathBuf::from);
    user.join(".cache/evenkeel/suites")
}

/// The directory with `sql`, `expected`, `data`, `parallel_schedule` and `lib` of this version.
pub(super) fn postgres(version: u32) -> Result<PathBuf> {
    let place = home().join(format!("postgresql-{version}"));
    if place.is_dir() {
        return Ok(place);
    }
    let parent = home();
    fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    eprintln!("fetching PostgreSQL {version}'s regression tests");
    let said = parent.join(format!("postgresql-{version}.log"));
    let log = File::create(&said)?;
    let status = Command::new("/bin/sh")
        .args(["-c", include_str!("fetch.sh"), "fetch-suite"])
        .arg(version.to_string())
        .arg(&place)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()?;
    if !status.success() || !place.is_dir() {
        bail!(
            "PostgreSQL {version}'s regression tests cannot be fetched from this machine's Debian \
             mirror; {} ends with:\n{}",
            said.display(),
            process::tail(&said)
        );
    }
    Ok(place)
}

/// Copies a directory with all that is in it.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

//! Suites that are fetched, of Debian's source packages or another registry of packages, and kept.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

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

/// A suite that is fetched once, by a script.
pub(super) struct Source<'a> {
    /// Its directory in [`home`].
    pub(super) name: &'a str,
    /// What it is called in words.
    pub(super) title: &'a str,
    /// Makes the directory that is its first argument, behind `debian.sh`.
    pub(super) script: &'a str,
    pub(super) arguments: &'a [String],
}

impl Source<'_> {
    /// The directory with what was fetched, now or earlier.
    pub(super) fn fetched(&self) -> Result<PathBuf> {
        /// Whoever wants the same meanwhile finds it when it is there.
        static FETCHING: Mutex<()> = Mutex::new(());
        let _fetching = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
        let (parent, title) = (home(), self.title);
        let place = parent.join(self.name);
        if place.is_dir() {
            return Ok(place);
        }
        fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
        eprintln!("fetching {title}");
        let said = parent.join(format!("{}.log", self.name));
        let log = File::create(&said)?;
        let script = [include_str!("debian.sh"), self.script].concat();
        let status = Command::new("/bin/sh")
            .args(["-c", &script, "fetch-suite"])
            .arg(&place)
            .args(self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()?;
        if !status.success() || !place.is_dir() {
            bail!(
                "{title} cannot be fetched; {} ends with:\n{}",
                said.display(),
                process::tail(&said)
            );
        }
        Ok(place)
    }
}

/// The directory with `sql`, `expected`, `data`, `parallel_schedule` and `lib` of this version.
pub(super) fn postgres(version: u32) -> Result<PathBuf> {
    let source = Source {
        name: &format!("postgresql-{version}"),
        title: &format!("PostgreSQL {version}'s regression tests"),
        script: include_str!("fetch-postgres.sh"),
        arguments: &[version.to_string()],
    };
    source.fetched()
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

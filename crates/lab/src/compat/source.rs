//! Fetches suites from Debian's source packages or other package registries, and caches them.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::{process, tool};

/// Version of Pebble.
const PEBBLE: &str = "2.10.3";

/// Returns the cache directory: `EVENKEEL_SUITES`, or the usual place of the machine or the user.
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

/// A suite that a script fetches once.
pub(super) struct Source<'a> {
    /// Directory in [`home`].
    pub(super) name: &'a str,
    /// Title for messages.
    pub(super) title: &'a str,
    /// Script that creates the directory in its first argument, run after `debian.sh`.
    pub(super) script: &'a str,
    pub(super) arguments: &'a [String],
}

impl Source<'_> {
    /// Returns the directory of the suite, and fetches it if necessary.
    pub(super) fn fetched(&self) -> Result<PathBuf> {
        /// Held during a fetch, so that a concurrent caller finds the result.
        static FETCHING: Mutex<()> = Mutex::new(());
        let _fetching = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
        let (parent, title) = (home(), self.title);
        let place = parent.join(self.name);
        if place.is_dir() {
            return Ok(place);
        }
        fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
        eprintln!("fetching {title}");
        let log_path = parent.join(format!("{}.log", self.name));
        let log = File::create(&log_path)?;
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
                log_path.display(),
                process::tail(&log_path)
            );
        }
        Ok(place)
    }
}

/// Returns the directory with `sql`, `expected`, `data`, `parallel_schedule` and `lib` of this
/// version.
pub(super) fn postgres(version: u32) -> Result<PathBuf> {
    let source = Source {
        name: &format!("postgresql-{version}"),
        title: &format!("PostgreSQL {version}'s regression tests"),
        script: include_str!("fetch-postgres.sh"),
        arguments: &[version.to_string()],
    };
    source.fetched()
}

/// Returns the program Pebble, the authority for tests of ACME.
pub fn pebble() -> Result<PathBuf> {
    tool::find_go()?;
    let source = Source {
        name: &format!("pebble-{PEBBLE}"),
        title: &format!("Pebble {PEBBLE}"),
        script: include_str!("fetch-pebble.sh"),
        arguments: &[
            home().join("go").display().to_string(),
            format!("github.com/letsencrypt/pebble/v2/cmd/pebble@v{PEBBLE}"),
        ],
    };
    Ok(source.fetched()?.join("pebble"))
}

/// Copies a directory recursively.
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

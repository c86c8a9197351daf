//! Creates a temporary directory that is removed with the processes in it, even if its owner is
//! killed.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Maximum length: Unix socket paths are limited to 107 bytes, and the longest name of a lab's
/// socket takes 65 of them.
const PARENT_BYTES_MAX: usize = 40;

/// Returns the parent directory of labs: TMPDIR, or /tmp if its name is too long for sockets.
pub fn home() -> PathBuf {
    let temporary = std::env::temp_dir();
    let fits = temporary.as_os_str().len() <= PARENT_BYTES_MAX;
    if fits {
        temporary
    } else {
        PathBuf::from("/tmp")
    }
}

pub(crate) struct Scratch {
    path: PathBuf,
    reaper: Child,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Scratch> {
        let parent = home();
        let prefix = format!("evenkeel-{name}-");
        let made = tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent);
        let path = made
            .with_context(|| format!("no directory in {}", parent.display()))?
            .keep();
        // PostgreSQL runs as another user if the lab is root, and needs search permission.
        let mode = if crate::process::is_root() {
            0o711
        } else {
            0o700
        };
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        fs::create_dir(path.join(".running"))?;
        let reaper = start_reaper(&path)?;
        Ok(Scratch { path, reaper })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file in which the process with this name records its id, for the reaper.
    pub(crate) fn note(&self, name: &str) -> PathBuf {
        self.path.join(".running").join(name)
    }

    /// Schedules the removal of the control group at the end.
    pub(crate) fn remove_group_at_end(work_dir: &Path, group: &Path) -> Result<()> {
        let mut list = OpenOptions::new()
            .create(true)
            .append(true)
            .open(work_dir.join(".groups"))?;
        Ok(writeln!(list, "{}", group.display())?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.reaper.stdin.take());
        let _ = self.reaper.wait();
    }
}

/// Starts the reaper in its own process group, so that a Ctrl-C for the lab does not end it first.
fn start_reaper(path: &Path) -> Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", include_str!("reap.sh"), "evenkeel-lab-reaper"])
        .arg(path)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("cannot start /bin/sh, which cleans up after the lab")
}

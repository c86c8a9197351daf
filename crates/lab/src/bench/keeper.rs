//! The directory of a run: its results, the generators' own output, what it was asked for.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::outcome::{FORMAT, Outcome};
use super::runner::Limits;

/// With less than this left on the disk nothing more is begun.
const DISK_MB_MIN: u64 = 300;

/// The results, relative to the directory.
pub(crate) const RESULTS: &str = "outcome.json";

/// What was asked for, relative to the directory.
const ORDER: &str = "order.json";

/// What a run that is resumed must know again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Order {
    /// As they were named: built-in ones by name, those of the user by the full path.
    pub(crate) experiments: Vec<String>,
    pub(crate) limits: Limits,
    /// What was run, by name: what has changed since cannot be gone on with.
    #[serde(default)]
    pub(crate) marks: BTreeMap<String, u64>,
    /// Parts that were gone through, as `experiment/part`: they are not begun again.
    #[serde(default)]
    pub(crate) finished: Vec<String>,
}

/// The results of a run and where they are kept.
pub(crate) struct Keeper {
    directory: PathBuf,
    /// Why output could not be kept; said once.
    complaint: Option<String>,
}

impl Keeper {
    /// Makes the directory, which may exist if it holds no other run's results.
    pub(crate) fn create(directory: &Path) -> Result<Keeper> {
        if directory.join(RESULTS).exists() {
            bail!(
                "{} holds the results of a run already: name another --out, or go on with it by \
                 --resume",
                directory.display()
            );
        }
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Keeper::at(directory))
    }

    /// The results that are to be gone on with.
    pub(crate) fn open(directory: &Path) -> Result<(Keeper, Outcome)> {
        let path = directory.join(RESULTS);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("no results to go on with in {}", directory.display()))?;
        let outcome: Outcome = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a run's results", path.display()))?;
        if outcome.format != FORMAT {
            bail!(
                "{} was written by another version (format {}, this one has {FORMAT})",
                path.display(),
                outcome.format
            );
        }
        Ok((Keeper::at(directory), outcome))
    }

    /// Notes what was asked for.
    pub(crate) fn remember(&self, order: &Order) -> Result<()> {
        let path = self.directory.join(ORDER);
        fs::write(&path, serde_json::to_vec_pretty(order)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// What was asked for.
    pub(crate) fn order(&self) -> Result<Order> {
        let path = self.directory.join(ORDER);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("no {ORDER} in {}: it is no run", self.directory.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    fn at(directory: &Path) -> Keeper {
        Keeper {
            directory: directory.to_owned(),
            complaint: None,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the results beside the old ones and puts them in their place: a kill or a full disk
    /// in the middle leaves the old ones whole.
    pub(crate) fn save(&self, outcome: &Outcome) -> Result<()> {
        let path = self.directory.join(RESULTS);
        let new = self.directory.join("outcome.json.new");
        let text = serde_json::to_vec(outcome)?;
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&new, &path)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Keeps a generator's output; the answer is its path relative to the results, or nothing when
    /// it cannot be written: the numbers are kept all the same.
    pub(crate) fn keep_raw(&mut self, path: &str, text: &str) -> String {
        let full = self.directory.join(path);
        let write = || -> std::io::Result<()> {
            if let Some(parent) = full.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&full, text)
        };
        match write() {
            Ok(()) => path.to_owned(),
            Err(error) => {
                let complaint = format!("cannot write {}: {error}", full.display());
                self.complaint.get_or_insert(complaint);
                String::new()
            }
        }
    }

    /// Why some output could not be kept, the first time it is asked.
    pub(crate) fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// An error when the disk of the results or that of the servers is nearly full.
    pub(crate) fn check_disk(&self) -> Result<()> {
        for path in [self.directory.as_path(), &crate::home()] {
            let free_mb = free_mb(path);
            if free_mb.is_some_and(|free_mb| free_mb < DISK_MB_MIN) {
                bail!(
                    "the disk of {} is nearly full ({} MB left, {DISK_MB_MIN} needed): free some \
                     and go on with --resume {}",
                    path.display(),
                    free_mb.unwrap_or(0),
                    self.directory.display()
                );
            }
        }
        Ok(())
    }
}

fn free_mb(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    #[expect(unsafe_code, reason = "statvfs has no wrapper in the standard library")]
    // SAFETY: the path is a C string that lives, and the struct is ours to be filled.
    let (failed, stat) = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut stat) != 0, stat)
    };
    (!failed).then(|| (stat.f_bavail * stat.f_frsize) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_not_written_over_another_and_what_is_no_run_is_not_resumed() {
        let room = tempfile::tempdir().expect("a directory");
        let keeper = Keeper::create(room.path()).expect("it is empty");
        assert!(Keeper::open(room.path()).is_err());
        fs::write(keeper.directory().join(RESULTS), "{}").expect("it can be written");
        let error = Keeper::create(room.path()).err().expect("it is taken");
        assert!(error.to_string().contains("--resume"), "{error}");
        let error = Keeper::open(room.path()).err().expect("it is no run");
        assert!(error.to_string().contains("not a run's results"), "{error}");
    }

    #[test]
    fn output_that_cannot_be_kept_is_complained_of_once_and_harms_nothing() {
        let room = tempfile::tempdir().expect("a directory");
        let mut keeper = Keeper::create(room.path()).expect("it is empty");
        assert_eq!(keeper.keep_raw("raw/a.txt", "text"), "raw/a.txt");
        fs::write(room.path().join("file"), "").expect("it can be written");
        assert_eq!(keeper.keep_raw("file/a.txt", "text"), "");
        assert!(keeper.take_complaint().is_some());
        assert!(keeper.take_complaint().is_none());
    }

    #[test]
    fn this_disk_has_room() {
        assert!(free_mb(Path::new("/")).is_some_and(|mb| mb > 0));
    }
}

//! The directory of a run: its results, the generators' own output, what it was asked for.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
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
    /// Why nothing more can be kept, and what to do about it.
    full: Option<String>,
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
    pub(crate) fn remember(&mut self, order: &Order) -> Result<()> {
        let path = self.directory.join(ORDER);
        let written = replace(&path, &serde_json::to_vec_pretty(order)?);
        self.noted(&path, written)
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
            full: None,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the results.
    pub(crate) fn save(&mut self, outcome: &Outcome) -> Result<()> {
        let path = self.directory.join(RESULTS);
        let written = replace(&path, &serde_json::to_vec(outcome)?);
        self.noted(&path, written)
    }

    /// Keeps a generator's output; the answer is its path relative to the results, or nothing when
    /// it cannot be written: the numbers are kept all the same.
    pub(crate) fn keep_raw(&mut self, path: &str, text: &str) -> String {
        let full = self.directory.join(path);
        let write = || -> io::Result<()> {
            if let Some(parent) = full.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&full, text).inspect_err(|_| {
                let _ = fs::remove_file(&full);
            })
        };
        let written = write();
        match self.noted(&full, written) {
            Ok(()) => path.to_owned(),
            Err(error) => {
                self.complaint.get_or_insert(format!("{error:#}"));
                String::new()
            }
        }
    }

    /// Why some output could not be kept, the first time it is asked.
    pub(crate) fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// Looks whether the disk of the results or that of the servers is nearly full.
    pub(crate) fn look_at_disks(&mut self) {
        for path in [self.directory.clone(), crate::home()] {
            let left_mb = free_mb(&path).filter(|left_mb| *left_mb < DISK_MB_MIN);
            if let Some(left_mb) = left_mb {
                let left = format!("nearly full ({left_mb} MB left, {DISK_MB_MIN} needed)");
                self.note_full(&path, &left);
            }
        }
    }

    /// Why the run must end here: there was no room for something, or there is hardly any left.
    pub(crate) fn full(&self) -> Option<&str> {
        self.full.as_deref()
    }

    /// What there was no room for is the end of the run.
    fn noted(&mut self, path: &Path, written: io::Result<()>) -> Result<()> {
        let kind = written.as_ref().err().map(io::Error::kind);
        if let Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) = kind {
            self.note_full(path, "full");
        }
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    fn note_full(&mut self, path: &Path, how: &str) {
        let (path, directory) = (path.display(), self.directory.display());
        self.full.get_or_insert(format!(
            "the disk of {path} is {how}: free some and go on with --resume {directory}"
        ));
    }
}

/// Writes beside what was there and puts it in its place: a kill or a full disk in the middle
/// leaves the old file whole.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(text)?;
        file.sync_data()?;
        fs::rename(&beside, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
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

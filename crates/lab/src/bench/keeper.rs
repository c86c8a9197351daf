//! Manages the directory of a run: results, the generators' output, and the requested experiments.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::outcome::{FORMAT, Outcome};
use super::runner::Limits;

/// Free disk space in MB below which the run stops.
const DISK_MB_MIN: u64 = 300;

/// File of the results, relative to the directory.
pub(crate) const RESULTS: &str = "outcome.json";

/// File of the request, relative to the directory.
const ORDER: &str = "order.json";

/// The request of a run, saved so that the run can be resumed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The experiments as named: built-in ones by name, those of the user by full path.
    pub(crate) experiments: Vec<String>,
    pub(crate) limits: Limits,
    /// Hash of each experiment and program; a run cannot be resumed after a change.
    #[serde(default)]
    pub(crate) marks: BTreeMap<String, u64>,
    /// Parts that are complete, as `experiment/part`; a resumed run skips them.
    #[serde(default)]
    pub(crate) finished: Vec<String>,
}

/// The results of a run and their directory.
pub(crate) struct Keeper {
    directory: PathBuf,
    /// Reason why output could not be saved; reported once.
    write_error: Option<String>,
    /// Reason why nothing more can be saved, with advice.
    full: Option<String>,
}

impl Keeper {
    /// Creates the directory, which may exist unless it holds another run's results.
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

    /// Opens the results of a run that is to be resumed.
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

    /// Saves the request.
    pub(crate) fn remember(&mut self, order: &Order) -> Result<()> {
        let path = self.directory.join(ORDER);
        let written = replace(&path, &serde_json::to_vec_pretty(order)?);
        self.noted(&path, written)
    }

    /// Reads the request.
    pub(crate) fn order(&self) -> Result<Order> {
        let path = self.directory.join(ORDER);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("no {ORDER} in {}: it is no run", self.directory.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))
    }

    fn at(directory: &Path) -> Keeper {
        Keeper {
            directory: directory.to_owned(),
            write_error: None,
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

    /// Saves a generator's output and returns its path relative to the results. Returns an empty
    /// path if it cannot be written, since the numbers are saved elsewhere.
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
                self.write_error.get_or_insert(format!("{error:#}"));
                String::new()
            }
        }
    }

    /// Returns why some output could not be saved, on the first call only.
    pub(crate) fn take_write_error(&mut self) -> Option<String> {
        self.write_error.take()
    }

    /// Checks whether the disk of the results or of the servers is nearly full.
    pub(crate) fn check_disks(&mut self) {
        for path in [self.directory.clone(), crate::home()] {
            let left_mb = free_mb(&path).filter(|left_mb| *left_mb < DISK_MB_MIN);
            if let Some(left_mb) = left_mb {
                let left = format!("nearly full ({left_mb} MB left, {DISK_MB_MIN} needed)");
                self.note_full(&path, &left);
            }
        }
    }

    /// Returns why the run must end: a write failed for lack of space, or hardly any space is left.
    pub(crate) fn full(&self) -> Option<&str> {
        self.full.as_deref()
    }

    /// Records a full disk, which ends the run.
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

/// Replaces a file by a rename: after a kill or on a full disk, the old file remains complete.
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
    // SAFETY: the path is a live C string, and the struct is ours to fill.
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
        let work_dir = tempfile::tempdir().expect("a directory");
        let keeper = Keeper::create(work_dir.path()).expect("it is empty");
        assert!(Keeper::open(work_dir.path()).is_err());
        fs::write(keeper.directory().join(RESULTS), "{}").expect("it can be written");
        let error = Keeper::create(work_dir.path()).err().expect("it is taken");
        assert!(error.to_string().contains("--resume"), "{error}");
        let error = Keeper::open(work_dir.path()).err().expect("it is no run");
        assert!(error.to_string().contains("not a run's results"), "{error}");
    }

    #[test]
    fn output_that_cannot_be_kept_is_complained_of_once_and_harms_nothing() {
        let work_dir = tempfile::tempdir().expect("a directory");
        let mut keeper = Keeper::create(work_dir.path()).expect("it is empty");
        assert_eq!(keeper.keep_raw("raw/a.txt", "text"), "raw/a.txt");
        fs::write(work_dir.path().join("file"), "").expect("it can be written");
        assert_eq!(keeper.keep_raw("file/a.txt", "text"), "");
        assert!(keeper.take_write_error().is_some());
        assert!(keeper.take_write_error().is_none());
    }

    #[test]
    fn this_disk_has_room() {
        assert!(free_mb(Path::new("/")).is_some_and(|mb| mb > 0));
    }
}

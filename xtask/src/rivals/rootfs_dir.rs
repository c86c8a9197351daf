//! Manages the directory of the root file system, which is complete or absent, never partial.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::{env, io};

use super::packages;

/// Default path, outside `target`, so that `cargo clean` keeps it.
const DEFAULT: &str = "/var/lib/evenkeel/rivals";

/// File that is written last, so that its presence proves that all earlier steps are complete.
const STAMP: &str = "etc/evenkeel-rivals";

pub(crate) struct RootfsDir {
    path: PathBuf,
}

impl RootfsDir {
    /// Returns the directory `EVENKEEL_RIVALS`, or the default one.
    pub(crate) fn of_this_machine() -> Result<RootfsDir, String> {
        let path = env::var_os("EVENKEEL_RIVALS").map_or_else(|| DEFAULT.into(), PathBuf::from);
        RootfsDir::at(path)
    }

    fn at(path: PathBuf) -> Result<RootfsDir, String> {
        if !path.is_absolute() || path.components().count() < 3 {
            return Err(format!(
                "EVENKEEL_RIVALS is {}: name a directory of its own, by its full path",
                path.display()
            ));
        }
        Ok(RootfsDir { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory in which it is created; it is renamed when it is complete.
    pub(crate) fn staging_dir(&self) -> PathBuf {
        self.path.with_extension("making")
    }

    /// Returns the file with the package manager's output during the creation.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.with_extension("log")
    }

    /// Returns the packages with their versions, one per line; `None` unless it is complete and has
    /// the requested packages.
    pub(crate) fn versions(&self) -> Option<String> {
        let stamp = fs::read_to_string(self.path.join(STAMP)).ok()?;
        let (requested, versions) = stamp.split_once('\n')?;
        (requested == packages::requested_packages()).then(|| versions.to_owned())
    }

    pub(crate) fn write_stamp(&self, versions: &str) -> Result<(), String> {
        let stamp = self.staging_dir().join(STAMP);
        fs::write(
            &stamp,
            format!("{}\n{versions}", packages::requested_packages()),
        )
        .map_err(|error| format!("cannot write {}: {error}", stamp.display()))
    }

    /// Locks out other processes that would create it; released when the file is closed, however
    /// the process ends.
    pub(crate) fn lock(&self) -> Result<File, String> {
        let path = self.path.with_extension("lock");
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let locked = fs::create_dir_all(parent)
            .and_then(|()| File::create(&path))
            .and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| format!("cannot lock {}: {error}", path.display()))
    }

    /// Removes the files of an interrupted run.
    pub(crate) fn clear_half_made(&self) -> Result<(), String> {
        remove(&self.staging_dir())?;
        self.clear_old()
    }

    /// Replaces the previous root file system by the new one.
    pub(crate) fn put_in_place(&self) -> Result<(), String> {
        if !is_empty(&self.path) && !self.path.join(STAMP).is_file() {
            return Err(format!(
                "{} holds something else: move it away, or set EVENKEEL_RIVALS",
                self.path.display()
            ));
        }
        let moved = match fs::rename(&self.path, self.old()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::rename(self.staging_dir(), &self.path),
        };
        moved.map_err(|error| format!("cannot make {}: {error}", self.path.display()))?;
        self.clear_old()
    }

    fn clear_old(&self) -> Result<(), String> {
        remove(&self.old())
    }

    fn old(&self) -> PathBuf {
        self.path.with_extension("old")
    }
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Removes a directory, unless a file system is mounted in it: a user may have mounted /dev or a
/// home directory there.
fn remove(path: &Path) -> Result<(), String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(mount) = mount_below(path, &mounts) {
        return Err(format!(
            "{mount} is mounted: umount it, then run this again"
        ));
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn mount_below<'a>(path: &Path, mountinfo: &'a str) -> Option<&'a str> {
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .find(|mount| Path::new(mount).starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rootfs(name: &str) -> RootfsDir {
        let directory = env::temp_dir().join(format!("evenkeel-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        RootfsDir::at(directory.join("rivals")).unwrap()
    }

    fn make(rootfs: &RootfsDir, versions: &str) {
        fs::create_dir_all(rootfs.staging_dir().join("etc")).unwrap();
        rootfs.write_stamp(versions).unwrap();
    }

    #[test]
    fn what_is_half_made_does_not_count_and_what_is_whole_replaces_the_old() {
        let rootfs = rootfs("half-made");
        make(&rootfs, "haproxy 1\n");
        assert_eq!(rootfs.versions(), None);
        rootfs.put_in_place().unwrap();
        assert_eq!(rootfs.versions().as_deref(), Some("haproxy 1\n"));
        make(&rootfs, "haproxy 2\n");
        rootfs.put_in_place().unwrap();
        assert_eq!(rootfs.versions().as_deref(), Some("haproxy 2\n"));
        assert!(!rootfs.old().exists() && !rootfs.staging_dir().exists());
        remove(rootfs.path().parent().unwrap()).unwrap();
    }

    #[test]
    fn a_stamp_with_other_wishes_is_not_complete() {
        let rootfs = rootfs("wishes");
        fs::create_dir_all(rootfs.path().join("etc")).unwrap();
        fs::write(rootfs.path().join(STAMP), "haproxy\nhaproxy 1\n").unwrap();
        assert_eq!(rootfs.versions(), None);
        remove(rootfs.path().parent().unwrap()).unwrap();
    }

    #[test]
    fn a_directory_that_holds_something_else_is_left_alone() {
        let rootfs = rootfs("other");
        fs::create_dir_all(rootfs.path().join("photographs")).unwrap();
        make(&rootfs, "");
        let refusal = rootfs.put_in_place().unwrap_err();
        assert!(refusal.contains("something else"), "{refusal}");
        assert!(rootfs.path().join("photographs").exists());
        remove(rootfs.path().parent().unwrap()).unwrap();
    }

    #[test]
    fn a_path_that_is_relative_or_the_root_is_refused() {
        for path in ["rivals", "/", "/var"] {
            assert!(RootfsDir::at(path.into()).is_err(), "{path}");
        }
    }

    #[test]
    fn a_mount_inside_is_found() {
        let mounts = "30 29 0:26 / /r/dev rw - devtmpfs none rw\n31 29 0:27 / /rx rw - t n rw\n";
        assert_eq!(mount_below(Path::new("/r"), mounts), Some("/r/dev"));
        assert_eq!(mount_below(Path::new("/q"), mounts), None);
    }
}

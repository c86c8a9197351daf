//! Runs programs in the rivals' root file system, which `cargo xtask rivals` creates.
//!
//! A program sees that file system as its read-only root, with this machine's processes, devices,
//! accounts and temporary directory. A path of the lab therefore names the same file inside and
//! outside. Otherwise the program is an ordinary child: same process ids, network and signals.

use std::env;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null;

use anyhow::{Result, bail};

use crate::mariadb::Programs;
use crate::process;
use crate::program::Program;
use crate::scratch::home;

const DEFAULT: &str = "/var/lib/evenkeel/rivals";

/// List of packages and versions, which `cargo xtask rivals` writes last.
const STAMP: &str = "etc/evenkeel-rivals";

/// Directory with a separate root file system for MariaDB's packages, which conflict with MySQL's.
const OF_MARIADB: &str = "opt/mariadb";

/// Directory with a separate root file system for web servers and proxies.
const OF_WEB: &str = "opt/web";

const DIRECTORIES: [&str; 2] = ["usr/sbin", "usr/bin"];

/// Returns why no program in it can run here; `None` if they can.
pub fn missing() -> Option<String> {
    let path = path();
    if !path.join(STAMP).is_file() {
        let path = path.display();
        return Some(format!(
            "no root file system in {path}: cargo xtask rivals makes it"
        ));
    }
    if !process::is_root() {
        return Some("programs of another root file system need root".to_owned());
    }
    None
}

/// Returns why this program in it cannot run here; `None` if it can.
pub fn missing_program(name: &str) -> Option<String> {
    find(name).err().map(|error| error.to_string())
}

/// Returns the version of a package in it, from its list.
pub(crate) fn version(package: &str) -> Option<String> {
    let list = fs::read_to_string(path().join(STAMP)).ok()?;
    // The first line has the requested packages, the others the installed ones.
    let mut lines = list.lines().skip(1).filter_map(|line| line.split_once(' '));
    let found = lines.find(|(name, _)| *name == package)?;
    Some(found.1.to_owned())
}

/// Returns why no MariaDB of this version can run here; `None` if it can.
pub fn missing_mariadb(version: u32) -> Option<String> {
    let found = Programs(Some(version)).find("mariadbd");
    found.err().map(|error| error.to_string())
}

/// Returns the program with this name in it.
pub(crate) fn find(name: &str) -> Result<Program> {
    find_below(path(), name)
}

/// Returns MariaDB's program with this name, from the separate root file system.
pub(crate) fn find_of_mariadb(name: &str) -> Result<Program> {
    find_below(path().join(OF_MARIADB), name)
}

/// Returns the web server or proxy with this name, from the separate root file system.
pub(crate) fn find_of_web(name: &str) -> Result<Program> {
    find_below(path().join(OF_WEB), name)
}

/// Returns the program in a directory of it, for example `usr/lib/postgresql/18/bin`.
pub(crate) fn find_in(directory: &str, name: &str) -> Result<Option<Program>> {
    program_in(path(), directory, name)
}

fn find_below(root: PathBuf, name: &str) -> Result<Program> {
    DIRECTORIES
        .iter()
        .find_map(|directory| program_in(root.clone(), directory, name).transpose())
        .unwrap_or_else(|| {
            bail!("the root file system has no {name}: `cargo xtask rivals --check` says why")
        })
}

fn program_in(root: PathBuf, directory: &str, name: &str) -> Result<Option<Program>> {
    if let Some(why) = missing() {
        bail!("{name}: {why}");
    }
    let inside = Path::new(directory).join(name);
    // Alternatives of Debian are links to absolute paths, which are valid inside only.
    let outside = root.join(&inside);
    let is_there = outside.is_file() || outside.is_symlink();
    Ok(is_there.then(|| Program {
        path: Path::new("/").join(inside),
        root: Some(root),
    }))
}

/// Returns `EVENKEEL_RIVALS`, or the default path.
fn path() -> PathBuf {
    env::var_os("EVENKEEL_RIVALS").map_or_else(|| DEFAULT.into(), PathBuf::from)
}

/// Runs the command with `root` as its root, as this user; `None` keeps the current one.
///
/// The user is changed here: the command itself would change it earlier, and the mounts would then
/// be refused.
pub(crate) fn enter(
    command: &mut Command,
    root: &Path,
    user: Option<(u32, u32)>,
) -> io::Result<()> {
    let home = home();
    fs::create_dir_all(root.join(home.strip_prefix("/").unwrap_or(&home)))?;
    let chroot = Chroot {
        root: c_string(root)?,
        shared: ["/proc", "/sys", "/dev", "/tmp", "/etc/passwd", "/etc/group"]
            .iter()
            .map(Path::new)
            .chain([home.as_path()])
            .map(|path| Ok((c_string(path)?, c_string(&below(root, path))?)))
            .collect::<io::Result<_>>()?,
    };
    #[expect(
        unsafe_code,
        reason = "the root can only be changed between fork and exec"
    )]
    // SAFETY: the closure makes system calls only; all its memory was allocated before.
    unsafe {
        command.pre_exec(move || {
            chroot.enter()?;
            user.map_or(Ok(()), |(uid, gid)| become_user(uid, gid))
        });
    }
    Ok(())
}

/// Arguments of the mounts, as C strings.
struct Chroot {
    root: CString,
    /// Directories of this machine and their places inside.
    shared: Vec<(CString, CString)>,
}

impl Chroot {
    /// Enters a private mount namespace, so that the mounts end with the process and its children.
    /// System V shared memory gets a private namespace too, since a killed Pgpool-II would leave
    /// segments.
    fn enter(&self) -> io::Result<()> {
        #[expect(
            unsafe_code,
            reason = "these calls have no wrapper in the standard library"
        )]
        // SAFETY: all pointers are to strings that live in `self`, or null where that is allowed.
        unsafe {
            done(libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC))?;
            mount(null(), c"/".as_ptr(), libc::MS_REC | libc::MS_PRIVATE)?;
            let root = self.root.as_ptr();
            mount(root, root, libc::MS_BIND)?;
            mount(
                null(),
                root,
                libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY,
            )?;
            for (outside, inside) in &self.shared {
                let how = libc::MS_BIND | libc::MS_REC;
                mount(outside.as_ptr(), inside.as_ptr(), how)?;
            }
            done(libc::chroot(root))?;
            done(libc::chdir(c"/".as_ptr()))
        }
    }
}

#[expect(unsafe_code, reason = "mount has no wrapper in the standard library")]
/// Mounts `what` at `place`.
///
/// # Safety
///
/// `what` is null or a C string, `place` is a C string.
unsafe fn mount(
    what: *const libc::c_char,
    place: *const libc::c_char,
    flags: libc::c_ulong,
) -> io::Result<()> {
    // SAFETY: the caller guarantees the two strings; the others may be null.
    done(unsafe { libc::mount(what, place, null(), flags, null()) })
}

fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    #[expect(
        unsafe_code,
        reason = "these calls have no wrapper in the standard library"
    )]
    // SAFETY: setgroups reads one group from a live variable; the others take no pointer.
    unsafe {
        done(libc::setgroups(1, &raw const gid))?;
        done(libc::setgid(gid))?;
        done(libc::setuid(uid))
    }
}

fn done(code: libc::c_int) -> io::Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}

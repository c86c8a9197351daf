//! Runs programs of the rivals' root file system, which `cargo xtask rivals` makes.
//!
//! A program sees that file system as its root, read-only, with this machine's processes, devices,
//! accounts and temporary directory in it, so that a path of the lab names the same file inside and
//! outside. It is an ordinary child otherwise: same process ids, same network, same signals.

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

/// Written last by `cargo xtask rivals`: packages and versions.
const STAMP: &str = "etc/evenkeel-rivals";

/// MySQL's packages and MariaDB's exclude one another: these have a root file system of their own.
const OF_MARIADB: &str = "opt/mariadb";

const DIRECTORIES: [&str; 2] = ["usr/sbin", "usr/bin"];

/// Why no program of it can be run here; `None` when they can.
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

/// Why this one program of it cannot be run here; `None` when it can.
pub fn missing_program(name: &str) -> Option<String> {
    find(name).err().map(|error| error.to_string())
}

/// The version of a package in it, as its list has it.
pub(crate) fn version(package: &str) -> Option<String> {
    let list = fs::read_to_string(path().join(STAMP)).ok()?;
    // The first line names what was wanted, the others what there is.
    let mut lines = list.lines().skip(1).filter_map(|line| line.split_once(' '));
    let found = lines.find(|(name, _)| *name == package)?;
    Some(found.1.to_owned())
}

/// Why no MariaDB of this version can be run here; `None` when it can.
pub fn missing_mariadb(version: u32) -> Option<String> {
    let found = Programs(Some(version)).find("mariadbd");
    found.err().map(|error| error.to_string())
}

/// The program of this name in it.
pub(crate) fn find(name: &str) -> Result<Program> {
    find_below(path(), name)
}

/// MariaDB's program of this name, in the root file system within it that is MariaDB's own.
pub(crate) fn find_of_mariadb(name: &str) -> Result<Program> {
    find_below(path().join(OF_MARIADB), name)
}

/// The program in this directory of it, for example `usr/lib/postgresql/18/bin`.
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
    Ok(root.join(&inside).is_file().then(|| Program {
        path: Path::new("/").join(inside),
        root: Some(root),
    }))
}

/// `EVENKEEL_RIVALS`, or the usual place.
fn path() -> PathBuf {
    env::var_os("EVENKEEL_RIVALS").map_or_else(|| DEFAULT.into(), PathBuf::from)
}

/// Has the command run with `root` as its root, as this user; `None` stays who we are.
///
/// The user is changed here and not by the command, which would do it before: then the mounts
/// would be refused.
pub(crate) fn enter(
    command: &mut Command,
    root: &Path,
    user: Option<(u32, u32)>,
) -> io::Result<()> {
    let home = home();
    fs::create_dir_all(root.join(home.strip_prefix("/").unwrap_or(&home)))?;
    let room = Room {
        root: c_string(root)?,
        shared: ["/proc", "/sys", "/dev", "/etc/passwd", "/etc/group"]
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
    // SAFETY: the closure makes system calls only; all that it needs was allocated before.
    unsafe {
        command.pre_exec(move || {
            room.enter()?;
            user.map_or(Ok(()), |(uid, gid)| become_user(uid, gid))
        });
    }
    Ok(())
}

/// What is mounted where, as the kernel wants to be told.
struct Room {
    root: CString,
    /// What of this machine appears inside, and where.
    shared: Vec<(CString, CString)>,
}

impl Room {
    /// In a mount namespace of its own: the mounts end with the process and its children. So does
    /// System V shared memory, also in one of its own: a killed Pgpool-II would leave some.
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
/// # Safety
/// `what` is null or a C string, `place` is a C string.
unsafe fn mount(
    what: *const libc::c_char,
    place: *const libc::c_char,
    flags: libc::c_ulong,
) -> io::Result<()> {
    // SAFETY: the caller vouches for the two strings; the others may be null.
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

//! A rival's own directory and files, readable by the user that it runs as.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::postgres::server_user;
use crate::process::Launch;
use crate::program::Program;
use crate::rootfs;
use crate::scratch::Scratch;

/// Made before the rival starts; its files may hold passwords, so nobody else reads them.
pub(super) struct Room {
    pub(super) scratch: Scratch,
    directory: PathBuf,
    user: Option<(u32, u32)>,
}

impl Room {
    /// For a rival that refuses to run as root, or need not: it runs as the databases' user.
    pub(super) fn new(name: &str) -> Result<Room> {
        let scratch = Scratch::new(name)?;
        let room = Room {
            directory: scratch.path().join("room"),
            scratch,
            user: server_user()?,
        };
        fs::create_dir(&room.directory)?;
        fs::set_permissions(&room.directory, Permissions::from_mode(0o700))?;
        room.give(&room.directory)?;
        Ok(room)
    }

    pub(super) fn path(&self) -> &Path {
        &self.directory
    }

    /// Writes a file and gives its full path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.directory.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        self.give(&path)?;
        Ok(path.display().to_string())
    }

    pub(super) fn launch(&self, program: Program, arguments: &[&str]) -> Launch {
        Launch {
            program: program.path,
            root: program.root,
            user: self.user,
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            ..Launch::default()
        }
    }

    fn give(&self, path: &Path) -> Result<()> {
        if let Some((uid, gid)) = self.user {
            chown(path, Some(uid), Some(gid))?;
        }
        Ok(())
    }
}

/// The program, in the rivals' root file system; `None` when it cannot be had.
pub(super) fn program(name: &str) -> Option<Program> {
    rootfs::find(name).ok()
}

//! Creates a rival's own directory and files, readable by the user that it runs as.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::postgres::server_user;
use crate::process::Launch;
use crate::program::Program;
use crate::rootfs;
use crate::scratch::Scratch;

/// A directory created before the rival starts; its files may contain passwords, so only the
/// rival's user can read them.
pub(super) struct Workspace {
    pub(super) scratch: Scratch,
    directory: PathBuf,
    user: Option<(u32, u32)>,
}

impl Workspace {
    /// Creates the directory for a rival that does not run as root; it runs as the databases' user.
    pub(super) fn new(name: &str) -> Result<Workspace> {
        let scratch = Scratch::new(name)?;
        let workspace = Workspace {
            directory: scratch.path().join("room"),
            scratch,
            user: server_user()?,
        };
        fs::create_dir(&workspace.directory)?;
        fs::set_permissions(&workspace.directory, Permissions::from_mode(0o700))?;
        workspace.give(&workspace.directory)?;
        Ok(workspace)
    }

    pub(super) fn path(&self) -> &Path {
        &self.directory
    }

    /// Writes a file and returns its full path.
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

/// Returns the program in the rivals' root file system; `None` if it is unavailable.
pub(super) fn program(name: &str) -> Option<Program> {
    rootfs::find(name).ok()
}

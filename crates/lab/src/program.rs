//! Locates a program on this machine, or in the rivals' root file system.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::{process, rootfs};

/// Location of a program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// Root of the path; `None` means this machine's.
    pub(crate) root: Option<PathBuf>,
}

impl Program {
    /// Returns a program of this machine.
    pub(crate) fn here(path: PathBuf) -> Program {
        Program { path, root: None }
    }

    /// Returns a command that runs the program as this user; `None` keeps the current one.
    pub(crate) fn command(&self, user: Option<(u32, u32)>) -> io::Result<Command> {
        let mut command = Command::new(&self.path);
        process::plain_environment(&mut command);
        command.current_dir("/");
        match (&self.root, user) {
            (Some(root), user) => rootfs::enter(&mut command, root, user)?,
            (None, Some((uid, gid))) => {
                command.uid(uid).gid(gid);
            }
            (None, None) => {}
        }
        Ok(command)
    }
}

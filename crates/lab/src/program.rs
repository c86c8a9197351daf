//! A program of this machine, or of the rivals' root file system.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::{process, rootfs};

/// Where a program is.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// The root that the path starts from; `None` is this machine's.
    pub(crate) root: Option<PathBuf>,
}

impl Program {
    /// One of this machine.
    pub(crate) fn here(path: PathBuf) -> Program {
        Program { path, root: None }
    }

    /// A command that runs it as this user; `None` stays who we are.
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

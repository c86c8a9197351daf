//! PostgreSQL's programs of one version: of this machine, or of the rivals' root file system.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use super::server_user;
use crate::program::Program;
use crate::{rootfs, tool};

/// The programs of this version; `None` is the newest of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs(pub(crate) Option<u32>);

impl Programs {
    pub(crate) fn find(self, name: &str) -> Result<Program> {
        let Some(version) = self.0 else {
            return Ok(Program::here(tool::find_postgres(name)?));
        };
        let directory = format!("usr/lib/postgresql/{version}/bin");
        let here = PathBuf::from(format!("/{directory}/{name}"));
        if here.is_file() {
            return Ok(Program::here(here));
        }
        match rootfs::find_in(&directory, name)? {
            Some(program) => Ok(program),
            None => bail!(
                "no PostgreSQL {version}: neither this machine nor the rivals' root file system \
                 has /{directory}/{name}"
            ),
        }
    }

    /// A command that runs it as the servers' user.
    pub(crate) fn command(self, name: &str) -> Result<Command> {
        Ok(self.find(name)?.command(server_user()?)?)
    }
}

//! Finds PostgreSQL's programs of one version: on this machine, or in the rivals' root file system.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::server_user;
use crate::program::Program;
use crate::{rootfs, tool};

/// The programs of this version; `None` means the newest of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs(pub(crate) Option<u32>);

impl Programs {
    pub(crate) fn find(self, name: &str) -> Result<Program> {
        let Some(version) = self.0 else {
            return Ok(Program::here(tool::find_postgres(name)?));
        };
        Programs::of_version(version, "bin", name)
    }

    /// Returns the name of the installation that is copied.
    pub(super) fn template(self) -> String {
        match self.0 {
            Some(version) => format!("postgres-{version}-template"),
            None => "postgres-template".to_owned(),
        }
    }

    /// Returns the version.
    pub(crate) fn version(self) -> Result<u32> {
        if let Some(version) = self.0 {
            return Ok(version);
        }
        let server = tool::find_postgres("postgres")?;
        let number = server.ancestors().nth(2).and_then(|home| home.file_name());
        let number = number.and_then(|number| number.to_str()?.parse().ok());
        number.with_context(|| format!("{} names no version", server.display()))
    }

    /// Returns a file of this version's directory, such as `bin/postgres`.
    pub(crate) fn of_version(version: u32, directory: &str, name: &str) -> Result<Program> {
        let directory = format!("usr/lib/postgresql/{version}/{directory}");
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

    /// Returns a command that runs the program as the servers' user.
    pub(crate) fn command(self, name: &str) -> Result<Command> {
        Ok(self.find(name)?.command(server_user()?)?)
    }
}

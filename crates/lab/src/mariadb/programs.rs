//! Finds MariaDB's programs of one version: on this machine, or in the rivals' root file system.

use std::env;

use anyhow::{Result, bail};

use crate::program::Program;
use crate::{rootfs, tool};

/// Package with the programs' version.
const PACKAGE: &str = "mariadb-server";

/// The programs of this version, such as 11; `None` means this machine's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs(pub(crate) Option<u32>);

/// Returns the default version: that of `EVENKEEL_MARIADB`, or this machine's own.
pub(crate) fn wanted() -> Option<u32> {
    let wanted = env::var("EVENKEEL_MARIADB").ok()?;
    Some(wanted.parse().expect("EVENKEEL_MARIADB is a number"))
}

impl Programs {
    /// Returns the programs of the default version.
    pub(crate) fn wanted() -> Programs {
        Programs(wanted())
    }

    pub(crate) fn find(self, name: &str) -> Result<Program> {
        let Some(version) = self.0 else {
            return Ok(Program::here(tool::find(name)?));
        };
        let found = rootfs::find_of_mariadb(name)?;
        let package = rootfs::version(PACKAGE).unwrap_or_default();
        if major(&package) != Some(version) {
            bail!("no MariaDB {version}: the rivals' root file system has {package}");
        }
        Ok(found)
    }

    /// Returns the name of the installation that is copied.
    pub(crate) fn template(self) -> String {
        match self.0 {
            Some(version) => format!("mariadb-{version}-template"),
            None => "mariadb-template".to_owned(),
        }
    }
}

/// Returns the major version of a package's version, such as `1:11.8.9-4`.
fn major(package: &str) -> Option<u32> {
    let (_, upstream) = package.split_once(':')?;
    upstream.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn the_version_of_a_package_begins_behind_its_epoch() {
        assert_eq!(major("1:11.8.9+ds-4"), Some(11));
        assert_eq!(major("cannot be installed at present"), None);
    }
}

//! MariaDB's programs of one version: of this machine, or of the rivals' root file system.

use std::env;

use anyhow::{Result, bail};

use crate::program::Program;
use crate::{rootfs, tool};

/// The package whose version is that of the programs.
const PACKAGE: &str = "mariadb-server";

/// The programs of this version, such as 11; `None` is this machine's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs(pub(crate) Option<u32>);

/// The version that is meant where none is named: that of `EVENKEEL_MARIADB`, or this machine's
/// own.
pub(crate) fn wanted() -> Option<u32> {
    let wanted = env::var("EVENKEEL_MARIADB").ok()?;
    Some(wanted.parse().expect("EVENKEEL_MARIADB is a number"))
}

impl Programs {
    /// Those that are meant where none are named.
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

    /// The directory of a lab that an installation of it is copied from.
    pub(crate) fn template(self) -> String {
        match self.0 {
            Some(version) => format!("mariadb-{version}-template"),
            None => "mariadb-template".to_owned(),
        }
    }
}

/// Of a package's version, such as `1:11.8.9-4`.
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

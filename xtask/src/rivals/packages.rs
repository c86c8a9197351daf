//! Defines the requested packages, and records which of them were installed.

/// A root file system and the packages requested in it, which can be installed together.
pub(crate) struct RootfsSpec {
    /// Path within the first root file system; empty for the first one itself.
    pub(crate) directory: &'static str,
    /// Requested packages; one that Debian does not have is reported and left out.
    pub(crate) wanted: &'static [&'static str],
}

/// The lab's servers and rivals. The packages of MySQL and MariaDB conflict with each other.
pub(crate) const ROOTFS_SPECS: [RootfsSpec; 3] = [
    RootfsSpec {
        directory: "",
        wanted: &[
            "haproxy",
            "maxscale",
            "mysql-client-core",
            "mysql-router",
            "mysql-server-core",
            "odyssey",
            "pgbouncer",
            "pgpool2",
            "postgresql-18",
            "proxysql",
        ],
    },
    RootfsSpec {
        directory: "opt/mariadb",
        wanted: &["mariadb-server"],
    },
    // Servers of `evenkeel-lab attack`, and proxies in front of the balancer.
    RootfsSpec {
        directory: "opt/web",
        wanted: &[
            "apache2-bin",
            "caddy",
            "gunicorn",
            "haproxy",
            "lighttpd",
            "nginx",
            "php-cli",
            "puma",
            "python3-aiohttp",
            "python3-httptools",
            "python3-hypercorn",
            "python3-tornado",
            "python3-uvicorn",
            "python3-waitress",
            "ruby-webrick",
            "squid",
        ],
    },
];

/// Small packages for those that require "systemd or one of these".
pub(crate) const INSTEAD_OF_SYSTEMD: [&str; 2] =
    ["systemd-standalone-sysusers", "systemd-standalone-tmpfiles"];

/// Returns the first line of the stamp: a different list of packages makes the root file system
/// obsolete.
pub(crate) fn requested_packages() -> String {
    let all: Vec<&str> = ROOTFS_SPECS
        .iter()
        .flat_map(|spec| spec.wanted)
        .copied()
        .collect();
    all.join(" ")
}

impl RootfsSpec {
    /// Returns the version from a line of the installed packages, if the package was requested.
    fn version(&self, line: &str) -> Option<String> {
        let (name, rest) = line.strip_suffix(" installed")?.split_once(' ')?;
        let is_wanted = self.wanted.contains(&name);
        is_wanted.then(|| format!("{name} {rest}\n"))
    }

    /// Splits the requested packages into those that the index has, and the others.
    pub(crate) fn available(&self, index: &str) -> (Vec<&'static str>, Vec<&'static str>) {
        let named: Vec<&str> = index
            .lines()
            .filter_map(|line| line.strip_prefix("Package: "))
            .collect();
        self.wanted.iter().partition(|name| named.contains(*name))
    }
}

/// Requested packages that were not installed.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Packages that the distribution lacks.
    pub(crate) not_packaged: Vec<&'static str>,
    /// Packages of the distribution that cannot be installed at present.
    pub(crate) broken: Vec<&'static str>,
}

impl Outcome {
    /// Returns the versions, one per line, followed by the missing packages. `installed` has the
    /// lines `name version status` of each root file system.
    pub(crate) fn versions(&self, installed: &[String; ROOTFS_SPECS.len()]) -> String {
        let mut lines = String::new();
        for (spec, installed) in ROOTFS_SPECS.iter().zip(installed) {
            lines.extend(installed.lines().filter_map(|line| spec.version(line)));
        }
        for name in &self.not_packaged {
            lines.push_str(&format!("{name}: not packaged in Debian unstable\n"));
        }
        for name in &self.broken {
            lines.push_str(&format!("{name}: cannot be installed at present\n"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_index_lacks_is_told_apart_and_named() {
        let index = "Package: haproxy\nVersion: 3\n\nPackage: proxysql-doc\n";
        let (found, missing) = ROOTFS_SPECS[0].available(index);
        assert_eq!(found, ["haproxy"]);
        assert_eq!(missing.len(), ROOTFS_SPECS[0].wanted.len() - 1);
        let outcome = Outcome {
            not_packaged: vec!["proxysql"],
            broken: vec!["pgpool2"],
        };
        let installed = [
            "haproxy 3.2-1 installed\nperl 5.42 installed\npgpool2 4.7 half-configured\n",
            "mariadb-server 1:11.8 installed\nhaproxy 3.0 installed\n",
            "caddy 2.6 installed\nmaxscale 1 installed\n",
        ];
        assert_eq!(
            outcome.versions(&installed.map(str::to_owned)),
            "haproxy 3.2-1\nmariadb-server 1:11.8\ncaddy 2.6\n\
             proxysql: not packaged in Debian unstable\n\
             pgpool2: cannot be installed at present\n"
        );
    }
}

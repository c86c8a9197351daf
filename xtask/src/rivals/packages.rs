//! Which packages are wanted, which of them Debian unstable has, and what was installed.

/// The lab's servers and rivals. One that is not packaged is named and left out.
pub(crate) const WANTED: [&str; 10] = [
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
];

/// Several of them want "systemd or one of these"; these are small.
pub(crate) const INSTEAD_OF_SYSTEMD: [&str; 2] =
    ["systemd-standalone-sysusers", "systemd-standalone-tmpfiles"];

/// First line of the stamp: another list of wishes makes the root file system anew.
pub(crate) fn wishes() -> String {
    WANTED.join(" ")
}

/// Splits the wanted packages into those which the index has, and the others.
pub(crate) fn available(index: &str) -> (Vec<&'static str>, Vec<&'static str>) {
    let named: Vec<&str> = index
        .lines()
        .filter_map(|line| line.strip_prefix("Package: "))
        .collect();
    WANTED.iter().partition(|name| named.contains(*name))
}

/// What became of the wanted packages.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Not in the distribution at all.
    pub(crate) not_packaged: Vec<&'static str>,
    /// In the distribution, but today it cannot be installed.
    pub(crate) broken: Vec<&'static str>,
}

impl Outcome {
    /// The versions, a line each, and then what is missing. `installed` is `name version status`.
    pub(crate) fn versions(&self, installed: &str) -> String {
        let mut lines = String::new();
        for line in installed.lines() {
            let mut words = line.split(' ');
            let (Some(name), Some(version)) = (words.next(), words.next()) else {
                continue;
            };
            if WANTED.contains(&name) && line.ends_with(" installed") {
                lines.push_str(&format!("{name} {version}\n"));
            }
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
        let (found, missing) = available(index);
        assert_eq!(found, ["haproxy"]);
        assert_eq!(missing.len(), WANTED.len() - 1);
        let outcome = Outcome {
            not_packaged: vec!["proxysql"],
            broken: vec!["pgpool2"],
        };
        let installed =
            "haproxy 3.2-1 installed\nperl 5.42 installed\npgpool2 4.7 half-configured\n";
        assert_eq!(
            outcome.versions(installed),
            "haproxy 3.2-1\nproxysql: not packaged in Debian unstable\n\
             pgpool2: cannot be installed at present\n"
        );
    }
}

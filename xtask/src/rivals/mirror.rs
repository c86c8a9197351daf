//! Finds the Debian mirror that this machine's package manager is configured for.

use std::fs;
use std::path::Path;

use super::rootfs_dir::RootfsDir;
use super::step;

/// The source of Debian unstable.
pub(crate) struct Mirror {
    pub(crate) address: String,
    /// The proxy that the package manager is configured for, if any.
    pub(crate) proxy: Option<String>,
}

/// Queries the package manager, which supports all forms of its configuration, and checks that the
/// mirror answers.
pub(crate) fn find(rootfs: &RootfsDir) -> Result<Mirror, String> {
    let format = "$(REPO_URI)|$(ORIGIN)|$(LABEL)";
    let targets = query_apt(&["apt-get", "indextargets", "--format", format])?;
    let address = choose(&targets).ok_or(
        "the package manager of this machine is set up with no Debian mirror \
         (apt-get indextargets names none)",
    )?;
    let mirror = Mirror {
        address: first_of_a_list(&address)?,
        proxy: proxy()?,
    };
    mirror.answers(&rootfs.path().with_extension("release"))?;
    Ok(mirror)
}

impl Mirror {
    /// Checks that the mirror answers. `file` is used and removed; it must be no file of the
    /// machine, as the package manager replaces it.
    fn answers(&self, file: &Path) -> Result<(), String> {
        let release = format!("{}/dists/sid/InRelease", self.address);
        let mut fetch = step::program("/usr/lib/apt/apt-helper");
        fetch.args(["-o", "Acquire::Retries=1"]);
        for transport in ["http", "https"] {
            fetch.args(["-o", &format!("Acquire::{transport}::Timeout=10")]);
        }
        fetch.args(["download-file", &release]).arg(file);
        let output = fetch.output();
        let _ = fs::remove_file(file);
        let output = output.map_err(|error| format!("apt-helper: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let printed = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = printed
            .lines()
            .filter_map(|line| line.strip_prefix("E: "))
            .collect();
        Err(format!(
            "Debian unstable cannot be fetched from this machine's mirror: {}",
            errors.join("; ")
        ))
    }
}

/// Returns Debian's own archive; recognized by its address if the lists have not been fetched yet.
fn choose(targets: &str) -> Option<String> {
    let lines = || {
        targets.lines().filter_map(|line| {
            let mut fields = line.split('|');
            let address = fields.next()?.trim_end_matches('/').to_owned();
            Some((address, fields.next()?, fields.next()?))
        })
    };
    let known = lines().find(|(_, origin, label)| *origin == "Debian" && *label == "Debian");
    let named = || lines().find(|(address, ..)| address.ends_with("/debian"));
    known.or_else(named).map(|(address, ..)| address)
}

/// Returns the first mirror of a file: some images configure a file that lists mirrors.
fn first_of_a_list(address: &str) -> Result<String, String> {
    let Some(file) = address.strip_prefix("mirror+file:") else {
        return Ok(address.to_owned());
    };
    let list = fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
    first_mirror(&list).ok_or_else(|| format!("{file} lists no mirror"))
}

fn first_mirror(list: &str) -> Option<String> {
    list.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .find_map(|line| line.split_whitespace().next())
        .map(|address| address.trim_end_matches('/').to_owned())
}

fn proxy() -> Result<Option<String>, String> {
    let value = query_apt(&["apt-config", "shell", "proxy", "Acquire::http::Proxy"])?;
    let value = value.trim().trim_start_matches("proxy=").trim_matches('\'');
    Ok((!value.is_empty()).then(|| value.to_owned()))
}

fn query_apt(words: &[&str]) -> Result<String, String> {
    let mut command = step::program(words[0]);
    let output = command.args(&words[1..]).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", words[0]))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_itself_is_chosen_among_other_archives() {
        let targets = "https://other/apt/|Other|Other\nhttp://m/debian-security/|Debian|\
                       Debian-Security\nhttp://m/deb/|Debian|Debian\n";
        assert_eq!(choose(targets).as_deref(), Some("http://m/deb"));
    }

    #[test]
    fn without_lists_the_name_tells() {
        let targets = "http://m/debian-security/||\nhttp://m/debian/||\n";
        assert_eq!(choose(targets).as_deref(), Some("http://m/debian"));
        assert_eq!(choose("http://m/ubuntu/||\n"), None);
    }

    #[test]
    fn the_first_mirror_of_a_list_is_taken() {
        let list = "# ours\n\nhttp://m/debian/ priority:1\nhttp://n/debian\n";
        assert_eq!(first_mirror(list).as_deref(), Some("http://m/debian"));
    }
}

//! Runs the programs that create the root file system, in separate mount namespaces.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

/// Limit in seconds: a mirror that stops answering must not block a build machine forever.
const LIMIT_SECONDS: &str = "600";

const DIRECTORIES: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Required programs, and the Debian package of each.
const NEEDED: [(&str, &str); 5] = [
    ("debootstrap", "debootstrap"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("apt-get", "apt"),
    ("apt-config", "apt"),
];

pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub(crate) fn require_root_and_programs() -> Result<(), String> {
    for (program, package) in NEEDED {
        let found = DIRECTORIES
            .split(':')
            .any(|directory| Path::new(directory).join(program).is_file());
        if !found {
            return Err(format!("{program} not found: apt-get install {package}"));
        }
    }
    if !Path::new(KEYRING).is_file() {
        return Err(format!(
            "{KEYRING} not found: apt-get install debian-archive-keyring"
        ));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find(|line| line.starts_with("Uid:"));
    if uid.and_then(|line| line.split_whitespace().nth(2)) != Some("0") {
        return Err("making a root file system needs root: run this as root".to_owned());
    }
    Ok(())
}

/// Returns a command with a plain environment: messages in English, no questions.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command
        .env_clear()
        .env("PATH", DIRECTORIES)
        .env("LC_ALL", "C")
        .env("HOME", "/root")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null());
    command
}

/// Returns a command that runs a program in separate mount and process namespaces: its mounts and
/// its remaining processes end with it. It ends with this process, however that ends, and after ten
/// minutes.
pub(crate) fn apart(proc: &Path) -> Command {
    let mut command = program("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    command.args(["unshare", "--mount", "--pid", "--fork", "--kill-child"]);
    command.arg(format!("--mount-proc={}", proc.display()));
    command.args(["timeout", LIMIT_SECONDS]);
    command
}

/// Runs a command whose output goes to the log; an error contains the end of the log.
pub(crate) fn run(mut command: Command, what: &str, log: &Path) -> Result<(), String> {
    let failed = |why: String| format!("{what}: {why}");
    let output = File::options().create(true).append(true).open(log);
    let output = output.map_err(|error| failed(format!("{}: {error}", log.display())))?;
    let errors = output
        .try_clone()
        .map_err(|error| failed(error.to_string()))?;
    let status = command.stdout(output).stderr(errors).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(format!(
            "{status}; {} ends:\n{}",
            log.display(),
            tail(log)
        ))),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

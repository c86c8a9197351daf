//! Sets the program's version, with the commit that it is built from if the commit is known.

use std::env;
use std::path::Path;
use std::process::Command;

/// Environment variable that names the commit, for builds from a tarball.
const GIVEN: &str = "EVENKEEL_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={GIVEN}");
    let version = env!("CARGO_PKG_VERSION");
    let commit = env::var(GIVEN).ok().or_else(from_git);
    let suffix = commit.map_or(String::new(), |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=EVENKEEL_VERSION={version}{suffix}");
}

/// Returns the commit of the Git repository whose root is the root of this source tree. A tarball
/// may have been unpacked inside another repository.
fn from_git() -> Option<String> {
    let root = Path::new("../..").canonicalize().ok()?;
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    // Git writes to `logs/HEAD` whenever the commit changes. A path that does not exist would
    // trigger the build script at every build.
    for name in ["logs/HEAD", "HEAD", "packed-refs"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

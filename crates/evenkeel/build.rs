//! Gives a program its version with the commit that it is built from, where that can be known.

use std::env;
use std::path::Path;
use std::process::Command;

/// Whoever builds from a tarball can name the commit by this.
const GIVEN: &str = "EVENKEEL_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={GIVEN}");
    let version = env!("CARGO_PKG_VERSION");
    let commit = env::var(GIVEN).ok().or_else(from_git);
    let behind = commit.map_or(String::new(), |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=EVENKEEL_VERSION={version}{behind}");
}

/// Of the repository whose root is ours: a tarball may lie in somebody else's.
fn from_git() -> Option<String> {
    let root = Path::new("../..").canonicalize().ok()?;
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root {
        return None;
    }
    // The first is written to whenever the commit changes. What is not there would be looked for
    // at every build.
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

//! `cargo xtask package`: builds the .deb with dpkg's own tools from the results of a build.

mod layout;
mod licences;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use layout::Layout;

/// Revision of the packaging, increased when only the packaging has changed.
const DEBIAN_REVISION: u32 = 1;

/// Options of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    /// Program to package; `None` packages a release build, which takes minutes.
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
}

impl Options {
    fn read(mut words: &[&str]) -> Option<Options> {
        let mut options = Options::default();
        while let [name, value, rest @ ..] = words {
            match *name {
                "--binary" => options.binary = Some(value.into()),
                "--out" => options.out = Some(value.into()),
                _ => return None,
            }
            words = rest;
        }
        words.is_empty().then_some(options)
    }
}

/// Builds the package and prints its path.
pub(crate) fn run(words: &[&str]) -> ExitCode {
    let Some(options) = Options::read(words) else {
        return crate::wrong_usage();
    };
    match build(&options, crate::repository()) {
        Ok(package) => {
            println!("{}", package.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("package: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn build(options: &Options, root: &Path) -> Result<PathBuf> {
    let metadata = metadata(root)?;
    let target = metadata["target_directory"].as_str();
    let target = PathBuf::from(target.context("cargo metadata names no target directory")?);
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => release_build(root, &target)?,
    };
    let version = format!("{}-{DEBIAN_REVISION}", env!("CARGO_PKG_VERSION"));
    let architecture = printed(Command::new("dpkg").arg("--print-architecture"))?;
    let name = format!("evenkeel_{version}_{architecture}");
    let out = options.out.clone().unwrap_or(target.join("package"));
    let work_dir = out.join(&name);
    let _ = fs::remove_dir_all(&work_dir);
    let layout = Layout::new(root, &work_dir, date(root));
    layout.program(&binary)?;
    layout.files(&version)?;
    layout.manual(&binary)?;
    layout.gzip(
        "usr/share/doc/evenkeel/third-party",
        &licences::text(&metadata)?,
    )?;
    layout.control(&version, &architecture)?;
    let package = out.join(format!("{name}.deb"));
    layout.pack(&package)?;
    fs::remove_dir_all(&work_dir)?;
    Ok(package)
}

fn metadata(root: &Path) -> Result<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(cargo());
    command.args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
    ]);
    let json = printed(command.arg(platform).current_dir(root))?;
    Ok(serde_json::from_str(&json)?)
}

fn release_build(root: &Path, target: &Path) -> Result<PathBuf> {
    let mut command = Command::new(cargo());
    command.args(["build", "--release", "--locked", "--package", "evenkeel"]);
    done(command.current_dir(root))?;
    Ok(target.join("release/evenkeel"))
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or("cargo".into())
}

/// Returns the time of the last commit in seconds since 1970, so that a commit always gives the
/// same package.
fn date(root: &Path) -> u64 {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(root);
    let date = given.or_else(|| printed(&mut git).ok());
    date.and_then(|date| date.parse().ok()).unwrap_or(0)
}

/// Runs a command that must succeed; its messages are visible.
fn done(command: &mut Command) -> Result<()> {
    let name = name(command);
    let status = command.status().with_context(|| missing(&name))?;
    if !status.success() {
        bail!("{name}: {status}");
    }
    Ok(())
}

/// Returns the output of a command, without the final newline.
fn printed(command: &mut Command) -> Result<String> {
    let name = name(command);
    let output = command.output().with_context(|| missing(&name))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{name}: {}: {}", output.status, why.trim());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

fn name(command: &Command) -> String {
    let program: &OsStr = command.get_program();
    program.to_string_lossy().into_owned()
}

fn missing(name: &str) -> String {
    format!("cannot run {name}: Debian has it in dpkg, dpkg-dev or binutils")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_are_understood_and_nothing_else_is() {
        assert_eq!(Options::read(&[]), Some(Options::default()));
        let both = Options::read(&["--out", "a", "--binary", "b"]).unwrap();
        assert_eq!(both.out, Some("a".into()));
        assert_eq!(both.binary, Some("b".into()));
        for wrong in [&["--out"][..], &["--what", "a"], &["a"]] {
            assert_eq!(Options::read(wrong), None, "{wrong:?}");
        }
    }
}

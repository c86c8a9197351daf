//! Fetches drivers with the package manager of their language, and runs programs that use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::compat::source::{self, Source};
use crate::compat::step::{Ended, Step};
use crate::compat::{hikari, pq};
use crate::program::Program;
use crate::{process, tool};

/// Limit for a program, which takes some seconds if nothing is stuck.
const LIMIT: Duration = Duration::from_secs(400);

/// Language of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// Installed by pip, in an environment of its own.
    Python,
    /// Installed by npm.
    Node,
    /// Fetched by Maven, and HikariCP beside the driver. Words of a driver: group, artifact and
    /// version.
    Java,
    /// As Go modules.
    Go,
}

/// A run of a program.
pub(super) struct Run<'a> {
    /// Directory of the driver's packages.
    pub(super) place: &'a Path,
    /// Directory with the program's file.
    pub(super) directory: &'a Path,
    /// Name of the program's file.
    pub(super) file: &'static str,
    /// Arguments of the program.
    pub(super) arguments: Vec<String>,
}

impl Language {
    /// Returns the directory of the packages, and fetches them if necessary.
    pub(super) fn place(self, name: &str, packages: &[&str]) -> Result<PathBuf> {
        let (programs, script): (&[&str], &str) = match self {
            Language::Python => (&["python3"], include_str!("../fetch-python.sh")),
            Language::Node => (&["node", "npm"], include_str!("../fetch-npm.sh")),
            Language::Java => (
                &["java", "javac", "mvn"],
                include_str!("../fetch-hikari.sh"),
            ),
            Language::Go => (&[], include_str!("../fetch-go.sh")),
        };
        for program in programs {
            tool::find(program)?;
        }
        let mut arguments: Vec<String> = match self {
            Language::Python | Language::Node => Vec::new(),
            Language::Java => vec![hikari::HIKARI.to_owned(), "driver".to_owned()],
            Language::Go => vec![modules().display().to_string()],
        };
        if self == Language::Go {
            go()?;
        }
        arguments.extend(packages.iter().map(|word| (*word).to_owned()));
        let source = Source {
            name: &directory_name(name, packages),
            title: name,
            script,
            arguments: &arguments,
        };
        source.fetched()
    }

    /// Returns the files that programs of the language share.
    fn shared_files(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Language::Python => &[("check.py", include_str!("check.py"))],
            Language::Node => &[("check.js", include_str!("check.js"))],
            Language::Java => &[
                ("Idle.java", include_str!("Idle.java")),
                ("Report.java", include_str!("../hikari/Report.java")),
            ],
            Language::Go => &[("check.go", include_str!("check.go"))],
        }
    }

    /// Compiles the program if necessary, runs it, and returns its output.
    pub(super) fn run(self, run: &Run) -> Result<String> {
        for (name, text) in self.shared_files() {
            fs::write(run.directory.join(name), text)?;
        }
        let program = run.directory.join(run.file).display().to_string();
        match self {
            Language::Python => run.start(&run.place.join("python/bin/python3"), &[program]),
            Language::Node => run.start(&tool::find("node")?, &[program]),
            Language::Java => {
                let class_path = ["pool/*", "driver/*"].map(|jars| run.place.join(jars));
                let class_path = class_path.map(|jars| jars.display().to_string());
                let class_path = format!("{}:{}", class_path.join(":"), run.directory.display());
                let options = ["-cp", &class_path].map(str::to_owned);
                let mut files = vec![program];
                for (name, _) in self.shared_files() {
                    files.push(run.directory.join(name).display().to_string());
                }
                run.compile(&tool::find("javac")?, &[&options[..], &files].concat())?;
                let class = run.file.trim_end_matches(".java").to_owned();
                run.start(&tool::find("java")?, &[&options[..], &[class]].concat())
            }
            Language::Go => {
                for name in ["go.mod", "go.sum"] {
                    fs::copy(run.place.join(name), run.directory.join(name))?;
                }
                let binary = run.directory.join("program");
                let output = ["build", "-o", "program", "."].map(str::to_owned);
                run.compile(&go()?, &output)?;
                run.start(&binary, &[])
            }
        }
    }
}

impl Run<'_> {
    fn compile(&self, compiler: &Path, arguments: &[String]) -> Result<()> {
        let output = self.directory.join("compiler.log");
        if !self
            .step(compiler, arguments.to_vec(), &output)?
            .is_success()
        {
            bail!("the program does not compile:\n{}", process::tail(&output));
        }
        Ok(())
    }

    fn start(&self, program: &Path, first: &[String]) -> Result<String> {
        let output = self.directory.join("checks.log");
        let arguments = [first, &self.arguments].concat();
        Ok(self.step(program, arguments, &output)?.printed)
    }

    fn step(&self, program: &Path, arguments: Vec<String>, output: &Path) -> Result<Ended> {
        let home = source::home();
        let node_path = self.place.join("node_modules");
        let environment = [
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("HOME", self.directory.display().to_string()),
            // Environment that the drivers use is the same everywhere.
            ("LANG", "C.UTF-8".to_owned()),
            ("TZ", "UTC".to_owned()),
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ("NODE_PATH", node_path.display().to_string()),
            ("GOCACHE", home.join("go-build").display().to_string()),
            ("GOMODCACHE", modules().display().to_string()),
            ("GOFLAGS", "-mod=mod".to_owned()),
            ("GOPROXY", "off".to_owned()),
        ];
        Step {
            program: &Program::here(program.to_owned()),
            arguments,
            environment: environment
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            user: None,
            directory: self.directory,
            output: output.to_owned(),
            limit: LIMIT,
            child_limit: LIMIT,
        }
        .run()
    }
}

fn go() -> Result<PathBuf> {
    pq::go().context("go not found: apt-get install golang-go")
}

/// Returns the directory in which Go keeps modules.
fn modules() -> PathBuf {
    source::home().join("go")
}

/// Returns the directory name of a driver, which has the versions of its packages.
fn directory_name(name: &str, packages: &[&str]) -> String {
    let words = packages.join("-");
    let letters = words.chars().map(|letter| match letter {
        '.' | '-' => letter,
        letter if letter.is_ascii_alphanumeric() => letter,
        _ => '-',
    });
    format!("driver-{name}-{}", letters.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_of_another_version_has_another_directory() {
        let name = directory_name("psycopg3", &["psycopg[binary,pool]==3.3.9"]);
        assert_eq!(name, "driver-psycopg3-psycopg-binary-pool---3.3.9");
    }
}

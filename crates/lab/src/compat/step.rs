//! Runs a program of a suite, with time limits for it and for each of its children.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::program::Program;
use crate::{process, procfs};

const POLL: Duration = Duration::from_millis(20);

/// A program to run.
pub(super) struct Step<'a> {
    pub(super) program: &'a Program,
    pub(super) arguments: Vec<String>,
    /// Environment except PATH.
    pub(super) environment: Vec<(String, String)>,
    pub(super) user: Option<(u32, u32)>,
    pub(super) directory: &'a Path,
    /// File for its output.
    pub(super) output: PathBuf,
    /// Time after which it is killed.
    pub(super) limit: Duration,
    /// Time after which one of its children is killed, so that one stuck test does not end all
    /// others.
    pub(super) child_limit: Duration,
}

/// Exit status and output.
pub(super) struct Ended {
    /// Exit status; `None` if it was killed after the time limit.
    pub(super) status: Option<ExitStatus>,
    pub(super) printed: String,
}

impl Ended {
    pub(super) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

impl Step<'_> {
    pub(super) fn run(&self) -> Result<Ended> {
        let name = self.program.path.display();
        let log = File::create(&self.output)?;
        let mut child = self
            .spawn(log)
            .with_context(|| format!("cannot start {name}"))?;
        let status = self.wait(&mut child)?;
        let printed = fs::read(&self.output)?;
        Ok(Ended {
            status,
            printed: String::from_utf8_lossy(&printed).into_owned(),
        })
    }

    /// Starts the program through `env`, since processes of the lab do not inherit the environment.
    fn spawn(&self, log: File) -> Result<Child> {
        let env = Program {
            path: "/usr/bin/env".into(),
            root: self.program.root.clone(),
        };
        let mut command = env.command(self.user)?;
        command.arg(format!("--chdir={}", self.directory.display()));
        let variables = self.environment.iter();
        command.args(variables.map(|(name, value)| format!("{name}={value}")));
        command.arg(&self.program.path).args(&self.arguments);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(process::spawn_tied(command)?)
    }

    fn wait(&self, child: &mut Child) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + self.limit;
        let mut since: BTreeMap<u32, Instant> = BTreeMap::new();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            let now = Instant::now();
            let tree = procfs::tree(child.id());
            if now >= end {
                tree.iter()
                    .for_each(|pid| process::send(*pid, libc::SIGKILL));
                child.wait()?;
                return Ok(None);
            }
            since.retain(|pid, _| tree.contains(pid));
            for pid in tree.into_iter().skip(1) {
                if now - *since.entry(pid).or_insert(now) >= self.child_limit {
                    process::send(pid, libc::SIGKILL);
                }
            }
            sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step<'a>(script: &str, shell: &'a Program, directory: &'a Path) -> Step<'a> {
        Step {
            program: shell,
            arguments: vec!["-c".to_owned(), script.to_owned()],
            environment: vec![("WORD".to_owned(), "said".to_owned())],
            user: None,
            directory,
            output: directory.join("output"),
            limit: Duration::from_secs(20),
            child_limit: Duration::from_secs(20),
        }
    }

    #[test]
    fn a_child_that_takes_too_long_is_killed_and_the_program_goes_on() {
        let work_dir = tempfile::tempdir().expect("a directory");
        let shell = Program::here("/bin/sh".into());
        let mut step = step("sleep 60 & wait $!; echo $WORD $?", &shell, work_dir.path());
        step.child_limit = Duration::from_millis(50);
        let ended = step.run().expect("it runs");
        assert!(ended.is_success());
        assert!(ended.printed.ends_with("said 137\n"), "{}", ended.printed);
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed_with_its_children() {
        let work_dir = tempfile::tempdir().expect("a directory");
        let shell = Program::here("/bin/sh".into());
        let mut step = step("echo begun; sleep 60", &shell, work_dir.path());
        step.limit = Duration::from_millis(200);
        let ended = step.run().expect("it runs");
        assert!(ended.status.is_none() && !ended.is_success());
        assert_eq!(ended.printed, "begun\n");
    }
}

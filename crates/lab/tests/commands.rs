//! Tests the program as users run it: servers in one terminal, faults from another.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use evenkeel_lab::eventually;

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn servers_of_one_terminal_are_listed_killed_and_started_from_another_until_they_are_stopped() {
    let home = tempfile::tempdir().unwrap();
    let terminal = Terminal(home.path().to_owned());
    assert!(
        terminal
            .fails(&["list"])
            .contains("no lab of yours is running")
    );
    let mut up = terminal.start(&["up", "web", "--servers", "2"]);
    let list = eventually(LIMIT, "a list", || Ok(terminal.succeeds(&["list"]))).unwrap();
    assert!(list.contains("web-1") && list.contains("web-2"), "{list}");

    assert_eq!(
        terminal.succeeds(&["kill", "web-2"]).unwrap(),
        "web-2: kill done\n"
    );
    assert!(
        terminal
            .succeeds(&["list"])
            .unwrap()
            .contains("not running")
    );
    assert!(
        terminal
            .fails(&["freeze", "web-2"])
            .contains("web-2 is not running")
    );
    assert!(
        terminal
            .fails(&["kill", "web-3"])
            .contains("no running lab of yours has a server")
    );
    terminal.succeeds(&["start", "web-2"]).unwrap();
    terminal.succeeds(&["freeze", "web-2"]).unwrap();
    terminal.succeeds(&["thaw", "web-2"]).unwrap();
    assert!(
        !terminal
            .succeeds(&["list"])
            .unwrap()
            .contains("not running")
    );

    // A second lab has servers with the same names: none of them is affected.
    let mut twin = terminal.start(&["up", "web", "--servers", "2"]);
    let labs = eventually(LIMIT, "two labs", || {
        let list = terminal.succeeds(&["list"]).unwrap_or_default();
        let names = list.lines().filter_map(|line| line.strip_prefix("LAB "));
        let names: Vec<String> = names.map(str::to_owned).collect();
        Ok((names.len() == 2).then_some(names))
    })
    .unwrap();
    let refusal = terminal.fails(&["kill", "web-1"]);
    assert!(
        labs.iter()
            .all(|lab| refusal.contains(&format!("--lab {lab}"))),
        "{refusal}"
    );
    let chosen = terminal.succeeds(&["kill", "web-1", "--lab", &labs[0]]);
    assert_eq!(chosen.unwrap(), "web-1: kill done\n");
    let list = terminal.succeeds(&["list"]).unwrap();
    assert_eq!(list.matches("not running").count(), 1, "{list}");
    for lab in [&mut up, &mut twin] {
        let stopping = Command::new("kill").arg(lab.id().to_string()).status();
        assert!(stopping.unwrap().success());
        assert!(lab.wait().unwrap().success());
    }
    assert_eq!(home.path().read_dir().unwrap().count(), 0);
}

/// A user's terminal, whose labs are those in its temporary directory.
struct Terminal(PathBuf);

impl Terminal {
    fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().unwrap()
    }

    fn succeeds(&self, arguments: &[&str]) -> Option<String> {
        let output = self.run(arguments);
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .stderr(Stdio::piped())
            .output()
            .unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel-lab"));
        command.args(arguments).env("TMPDIR", &self.0);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }
}

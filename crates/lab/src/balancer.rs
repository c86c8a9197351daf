//! Runs the shipped `evenkeel` binary as a child process and reads its status and resource use.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::port::free_port;
use crate::process::{Launch, Process};
use crate::scratch::Scratch;
use crate::{eventually, procfs};

const READY_LIMIT: Duration = Duration::from_secs(20);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const KILL_LIMIT: Duration = Duration::from_secs(10);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A running balancer; it is killed and its files are removed on drop.
pub struct Balancer {
    process: Process,
    /// Process ids of the processes that took over by upgrades; they are not children of this
    /// process.
    successors: Mutex<Vec<u32>>,
    binary: PathBuf,
    socket: PathBuf,
    admin_port: Option<u16>,
    scratch: Scratch,
}

impl Balancer {
    /// Writes the config to a file, starts the binary and waits until it answers `status`. A
    /// missing `[admin]` section, or a missing `socket` in it, is added with a free address.
    pub fn start(config_toml: &str) -> Result<Balancer> {
        Balancer::start_in(None, config_toml)
    }

    /// Starts a balancer like [`start`](Balancer::start), from this binary.
    pub fn start_binary(binary: PathBuf, config_toml: &str) -> Result<Balancer> {
        Balancer::launch(binary, None, config_toml)
    }

    /// Starts a balancer like [`start`](Balancer::start), in a network namespace; `None` is the
    /// lab's own.
    pub(crate) fn start_in(namespace: Option<PathBuf>, config_toml: &str) -> Result<Balancer> {
        Balancer::launch(find_binary()?, namespace, config_toml)
    }

    fn launch(binary: PathBuf, namespace: Option<PathBuf>, config_toml: &str) -> Result<Balancer> {
        let scratch = Scratch::new("balancer")?;
        let (config, socket, admin_port) = with_admin(config_toml, scratch.path());
        let file = scratch.path().join("evenkeel.toml");
        write_whole(&file, &config)?;
        let process = Process::new(Launch {
            name: "evenkeel".to_owned(),
            program: binary.clone(),
            arguments: vec![
                "run".to_owned(),
                "-c".to_owned(),
                file.display().to_string(),
            ],
            log: scratch.path().join("stderr"),
            note: scratch.note("evenkeel"),
            stop_signal: libc::SIGTERM,
            keep_environment: true,
            namespace,
            ..Launch::default()
        });
        let balancer = Balancer {
            process,
            successors: Mutex::default(),
            binary,
            socket,
            admin_port,
            scratch,
        };
        balancer.process.start()?;
        balancer.wait_ready()?;
        Ok(balancer)
    }

    /// Returns the status that `evenkeel status --json` prints. It is read many times a second, too
    /// often to start a program each time.
    pub fn status(&self) -> Result<Value> {
        let (head, body) = self.get("/api/v1/status")?;
        if !head.starts_with("HTTP/1.1 200 ") {
            bail!("evenkeel status: {head} {body}");
        }
        serde_json::from_str(&body).context("the status is not JSON")
    }

    /// Returns head and body of the answer to a request on the control socket.
    fn get(&self, path: &str) -> Result<(String, String)> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        let options = "host: localhost\r\nconnection: close";
        write!(stream, "GET {path} HTTP/1.1\r\n{options}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        Ok((head.to_owned(), body.to_owned()))
    }

    /// Runs `evenkeel` with `arguments` and this balancer's `--socket`.
    pub fn command(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("--socket").arg(&self.socket);
        command
            .output()
            .with_context(|| format!("cannot run {}", self.binary.display()))
    }

    /// Runs `evenkeel upgrade` with further arguments. The error contains the program's message.
    pub fn upgrade(&self, arguments: &[&str]) -> Result<String> {
        // All processes are in the process group of the first one, whose id the file holds.
        let group = self.process.pid().map(|pid| pid.to_string());
        let note = self.scratch.note("evenkeel-upgraded");
        if let Some(group) = group.filter(|_| !note.exists()) {
            fs::write(note, group)?;
        }
        let output = self.command(&[&["upgrade"], arguments].concat())?;
        if !output.status.success() {
            bail!(
                "evenkeel upgrade: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let printed = String::from_utf8(output.stdout)?;
        let pid = printed.strip_prefix("pid ").and_then(|rest| {
            let (pid, _) = rest.split_once(' ')?;
            pid.parse().ok()
        });
        self.successors()
            .push(pid.with_context(|| format!("evenkeel upgrade printed no pid: {printed}"))?);
        Ok(printed)
    }

    /// Returns all processes that have not ended, the oldest first.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.process.pid().into_iter().collect();
        pids.extend(
            self.successors()
                .iter()
                .filter(|pid| procfs::is_alive(**pid)),
        );
        pids
    }

    /// Returns the text of the config file.
    pub fn config(&self) -> String {
        fs::read_to_string(self.scratch.path().join("evenkeel.toml")).unwrap_or_default()
    }

    /// Replaces the config file and reloads it. The error contains the message of `evenkeel
    /// reload`.
    pub fn reload(&self, config_toml: &str) -> Result<()> {
        self.write_config(config_toml)?;
        let output = self.command(&["reload"])?;
        if !output.status.success() {
            bail!(
                "evenkeel reload: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    /// Replaces the config file without a reload. The admin section keeps its address.
    pub fn write_config(&self, config_toml: &str) -> Result<()> {
        let (config, ..) = with_admin_at(config_toml, &self.socket, self.admin_port);
        write_whole(&self.scratch.path().join("evenkeel.toml"), &config)
    }

    /// Sends the current process a signal, for example SIGHUP.
    pub fn signal(&self, signal: i32) {
        match self.pid() {
            0 => {}
            pid => crate::process::send(pid, signal),
        }
    }

    /// Returns the process id, the youngest after upgrades; 0 after it has ended.
    pub fn pid(&self) -> u32 {
        let youngest = self.successors().last().copied();
        match youngest {
            Some(pid) if procfs::is_alive(pid) => pid,
            Some(_) => 0,
            None => self.process.pid().unwrap_or(0),
        }
    }

    /// Returns whether the balancer runs.
    pub fn is_running(&self) -> bool {
        self.pid() != 0
    }

    /// Returns the processor time used, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        procfs::cpu_us(&[self.pid()])
    }

    /// Returns the anonymous memory in kB.
    pub fn memory_kb(&self) -> u64 {
        procfs::memory_kb(&[self.pid()])
    }

    /// Returns the path of the admin API's Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the port of the status page; `None` if the config has an `[admin]` section without
    /// one.
    pub fn admin_port(&self) -> Option<u16> {
        self.admin_port
    }

    /// Returns everything the balancer has written to stderr and stdout.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("stderr")).unwrap_or_default()
    }

    /// Sends SIGTERM, after which the balancer drains, and waits for its end.
    pub fn stop(&self) -> Result<()> {
        self.signal_successors(libc::SIGTERM);
        self.process.stop(STOP_LIMIT)?;
        self.wait_gone(STOP_LIMIT)
    }

    /// Kills the balancer as `kill -9` does, including predecessors that still drain.
    pub fn kill(&self) -> Result<()> {
        self.signal_successors(libc::SIGKILL);
        self.process.kill()?;
        self.wait_gone(KILL_LIMIT)
    }

    fn signal_successors(&self, signal: i32) {
        let alive = self.successors().clone().into_iter();
        alive
            .filter(|pid| procfs::is_alive(*pid))
            .for_each(|pid| crate::process::send(pid, signal));
    }

    fn wait_gone(&self, limit: Duration) -> Result<()> {
        eventually(limit, "the end of evenkeel", || {
            Ok(self.pids().is_empty().then_some(()))
        })
    }

    fn successors(&self) -> MutexGuard<'_, Vec<u32>> {
        self.successors
            .lock()
            .expect("no holder of the lock panics")
    }

    fn wait_ready(&self) -> Result<()> {
        eventually(READY_LIMIT, "an answer of evenkeel status", || {
            if !self.process.is_running() {
                bail!("evenkeel exited during startup");
            }
            Ok((self.socket.exists() && self.status().is_ok()).then_some(()))
        })
        .with_context(|| format!("evenkeel log:\n{}", self.log()))
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Returns `EVENKEEL_BIN`, or `evenkeel` in this program's directory or one above it (tests run in
/// `deps`).
pub fn find_binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os("EVENKEEL_BIN") {
        return Ok(path.into());
    }
    let own = env::current_exe()?;
    let beside = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join("evenkeel"));
    let found = beside.into_iter().find(|path| path.is_file());
    found.with_context(|| {
        let profile = own
            .ancestors()
            .any(|part| part.file_name() == Some(OsStr::new("release")));
        let flag = if profile { " --release" } else { "" };
        format!(
            "no evenkeel binary beside {}: cargo build{flag} -p evenkeel, or set EVENKEEL_BIN",
            own.display()
        )
    })
}

fn with_admin(config: &str, work_dir: &Path) -> (String, PathBuf, Option<u16>) {
    with_admin_at(config, &work_dir.join("evenkeel.sock"), Some(free_port()))
}

/// Adds the admin section. A config that cannot be parsed stays unchanged, so that the binary
/// reports the error itself.
fn with_admin_at(config: &str, socket: &Path, port: Option<u16>) -> (String, PathBuf, Option<u16>) {
    let Ok(table) = config.parse::<toml::Table>() else {
        return (config.to_owned(), socket.to_owned(), None);
    };
    let line = format!("socket = {:?}", socket.display().to_string());
    let Some(admin) = table.get("admin") else {
        let listen = port
            .map(|port| format!("listen = \"127.0.0.1:{port}\"\n"))
            .unwrap_or_default();
        return (
            format!("{config}\n[admin]\n{listen}{line}\n"),
            socket.to_owned(),
            port,
        );
    };
    let text = |key: &str| admin.get(key).and_then(toml::Value::as_str);
    let own_port = text("listen").and_then(|listen| listen.rsplit(':').next()?.parse().ok());
    match text("socket") {
        Some(own) => (config.to_owned(), own.into(), own_port),
        None => (
            config.replacen("[admin]", &format!("[admin]\n{line}"), 1),
            socket.to_owned(),
            own_port,
        ),
    }
}

/// Replaces the file atomically, so that a balancer never reads half of it.
fn write_whole(file: &Path, text: &str) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    // The file may hold the monitor's password.
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    Ok(fs::rename(new, file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_without_admin_gets_one_at_its_end_and_one_without_a_socket_gets_that() {
        let (config, socket, _) = with_admin("[[service]]\nname = \"a\"\n", Path::new("/room"));
        assert!(
            config.ends_with("socket = \"/room/evenkeel.sock\"\n"),
            "{config}"
        );
        assert_eq!(socket, Path::new("/room/evenkeel.sock"));

        let (config, _, port) =
            with_admin("[admin]\nlisten = \"127.0.0.1:9\"\n", Path::new("/room"));
        assert_eq!(
            config,
            "[admin]\nsocket = \"/room/evenkeel.sock\"\nlisten = \"127.0.0.1:9\"\n"
        );
        assert_eq!(port, Some(9));
    }

    #[test]
    fn a_config_that_names_its_socket_or_cannot_be_read_is_left_alone() {
        for config in ["[admin]\nsocket = \"/own\"\n", "not toml at all ["] {
            assert_eq!(with_admin(config, Path::new("/room")).0, config);
        }
    }
}

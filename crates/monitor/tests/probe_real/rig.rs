//! Starts and stops real servers, each in its own directory.

use std::{
    fs::{File, Permissions},
    net::{SocketAddr, TcpListener},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Time limit that suffices on a loaded machine: a probe that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Running server. It is terminated when this value is dropped, or when the test process ends in
/// any way.
pub(crate) struct Server {
    pid: i32,
    waiter: JoinHandle<()>,
    pub(crate) dir: TempDir,
    pub(crate) port: u16,
    stop_signal: i32,
}

impl Server {
    /// Starts a server by the command that `start` returns for a directory and a port.
    pub(crate) fn start(stop_signal: i32, start: impl FnOnce(&Path, u16) -> Command) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("ek-probe-")
            .tempdir()
            .unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let port = free_port();
        let mut command = start(dir.path(), port);
        let log = File::create(dir.path().join("log")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let (pid, waiter) = spawn(command);
        Self {
            pid,
            waiter,
            dir,
            port,
            stop_signal,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path("log")).unwrap()).into_owned()
    }

    pub(crate) fn signal(&self, signal: i32) {
        if self.waiter.is_finished() {
            return;
        }
        #[expect(unsafe_code, reason = "std can only kill; this freezes too")]
        // SAFETY: the child was not yet waited for, so its pid was not reused.
        unsafe {
            libc::kill(self.pid, signal);
        }
    }

    pub(crate) fn kill(&self) {
        self.signal(libc::SIGKILL);
        until("the server's end", || self.waiter.is_finished());
    }

    /// Waits until the server responds, or fails with its log.
    pub(crate) fn until(&self, what: &str, mut ready: impl FnMut() -> bool) {
        until_or(what, &mut ready, || self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(libc::SIGCONT);
        self.signal(self.stop_signal);
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.waiter.is_finished() {
            if Instant::now() > deadline {
                self.signal(libc::SIGKILL);
            }
            thread::park_timeout(Duration::from_millis(10));
        }
    }
}

/// Spawns a child. The kernel kills it when the *thread* that made it ends, so each child has a
/// thread that waits for it.
fn spawn(mut command: Command) -> (i32, JoinHandle<()>) {
    #[expect(
        unsafe_code,
        reason = "there is no safe way to have a child die with its parent"
    )]
    // SAFETY: prctl is async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let (pid_tx, pid_rx) = mpsc::channel();
    let waiter = thread::spawn(move || {
        let mut child = command.spawn().unwrap();
        pid_tx.send(child.id() as i32).unwrap();
        child.wait().unwrap();
    });
    (pid_rx.recv().unwrap(), waiter)
}

pub(crate) fn until(what: &str, mut ready: impl FnMut() -> bool) {
    until_or(what, &mut ready, String::new);
}

fn until_or(what: &str, ready: &mut dyn FnMut() -> bool, detail: impl Fn() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        assert!(
            Instant::now() < deadline,
            "not in {PATIENCE:?}: {what}\n{}",
            detail()
        );
        thread::park_timeout(Duration::from_millis(20));
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Returns the path of a program, or fails with the name of the package to install.
pub(crate) fn program(name: &str, places: &[&str], package: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = path.split(':').map(PathBuf::from).collect();
    dirs.extend(["/usr/sbin", "/usr/bin"].map(PathBuf::from));
    dirs.extend(places.iter().map(PathBuf::from));
    let found = dirs
        .iter()
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: install the Debian package {package}"))
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}{errors}");
    text
}

pub(crate) fn is_root() -> bool {
    #[expect(unsafe_code, reason = "std does not report the user id")]
    // SAFETY: geteuid takes no arguments and cannot fail.
    let uid = unsafe { libc::geteuid() };
    uid == 0
}

//! Runs child processes that end with the lab: start, signals to the whole tree, end.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context, Result, bail};

use crate::program::Program;
use crate::{eventually, network, procfs};

const GONE_LIMIT: Duration = Duration::from_secs(10);

/// Scheduling groups of the programs that the lab starts. The kernel first shares processor time
/// among groups, then among the threads of a group.
///
/// systemd starts each service in a group of its own. Here a session has one, by the kernel's
/// automatic grouping: sched(7), "The autogroup feature".
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SchedulingGroup {
    /// One group for each program, as systemd starts them.
    Own,
    /// One group for all programs, as a shell starts them.
    Shared,
}

/// True if programs that start from now on share the lab's group.
static IS_SHARED: AtomicBool = AtomicBool::new(false);

impl SchedulingGroup {
    /// Sets the group of the programs that this process starts from now on.
    ///
    /// # Errors
    /// The kernel does not group sessions: `kernel.sched_autogroup_enabled` is off.
    pub fn set(self) -> Result<()> {
        let setting = "/proc/sys/kernel/sched_autogroup_enabled";
        let is_on = fs::read_to_string(setting).is_ok_and(|text| text.trim() == "1");
        if self == SchedulingGroup::Own && !is_on {
            bail!(
                "programs cannot have scheduling groups of their own: {setting} is not 1. \
                 Run `sysctl kernel.sched_autogroup_enabled=1`, or measure with --groups shared"
            );
        }
        IS_SHARED.store(self == SchedulingGroup::Shared, Ordering::Relaxed);
        Ok(())
    }

    /// Returns a sentence about the arrangement, for reports.
    pub fn description(self) -> &'static str {
        match self {
            Self::Own => "Each program has a scheduling group of its own, as systemd starts it.",
            Self::Shared => "All programs are in one scheduling group, as a shell starts them.",
        }
    }

    fn current() -> SchedulingGroup {
        match IS_SHARED.load(Ordering::Relaxed) {
            true => SchedulingGroup::Shared,
            false => SchedulingGroup::Own,
        }
    }

    /// Makes the program the leader of a process group; with a group of its own also of a session.
    fn apply(self, command: &mut Command) {
        if self == SchedulingGroup::Shared {
            command.process_group(0);
            return;
        }
        #[expect(
            unsafe_code,
            reason = "a session can only be created between fork and exec"
        )]
        // SAFETY: the closure makes one call, which is async-signal-safe and takes no pointer.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
    }
}

/// Parameters of a process.
#[derive(Clone, Default)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Root file system to run in, with `program` as a path inside; `None` means this machine's.
    pub(crate) root: Option<PathBuf>,
    /// User and group id to run as; `None` means the lab's own.
    pub(crate) user: Option<(u32, u32)>,
    /// File for stderr and stdout.
    pub(crate) log: PathBuf,
    /// File with the process id while it runs.
    pub(crate) note: PathBuf,
    /// Signal for a clean stop.
    pub(crate) stop_signal: i32,
    /// True if its children survive a killed parent, so that it must be stopped instead of killed.
    pub(crate) children_outlive_it: bool,
    /// True if the environment is inherited.
    pub(crate) keep_environment: bool,
    /// Network namespace; `None` means the lab's own.
    pub(crate) namespace: Option<PathBuf>,
}

impl Launch {
    fn command(&self) -> io::Result<Command> {
        if self.keep_environment {
            let mut command = Command::new(&self.program);
            command.current_dir("/");
            return Ok(command);
        }
        let program = Program {
            path: self.program.clone(),
            root: self.root.clone(),
        };
        program.command(self.user)
    }
}

/// A process that can be started, signaled and restarted.
pub(crate) struct Process {
    launch: Launch,
    child: Mutex<Option<Child>>,
    /// Control groups of the process.
    groups: Mutex<Vec<PathBuf>>,
}

impl Process {
    pub(crate) fn new(launch: Launch) -> Process {
        Process {
            launch,
            child: Mutex::new(None),
            groups: Mutex::default(),
        }
    }

    pub(crate) fn start(&self) -> Result<()> {
        self.start_with(Vec::new())
    }

    /// Returns the command, one option per line.
    pub(crate) fn command_line(&self) -> String {
        let mut text = self.launch.program.display().to_string();
        let mut is_value = false;
        for argument in &self.launch.arguments {
            text.push_str(if is_value { " " } else { "\n    " });
            text.push_str(argument);
            // `-c setting`: the argument after a single-letter option belongs to it.
            is_value = !is_value && argument.len() == 2 && argument.starts_with('-');
        }
        text
    }

    /// Starts the process; the `further` arguments apply to this start only.
    pub(crate) fn start_with(&self, further: Vec<String>) -> Result<()> {
        if self.is_running() {
            bail!("{} is already running", self.launch.name);
        }
        let name = &self.launch.name;
        let death_signal = if self.launch.children_outlive_it {
            self.launch.stop_signal
        } else {
            libc::SIGKILL
        };
        let namespace = self.launch.namespace.clone();
        let started = command(&self.launch).and_then(|mut command| {
            command.args(further);
            spawn(command, death_signal, namespace)
        });
        let child = started.with_context(|| format!("cannot start {name}"))?;
        fs::write(&self.launch.note, child.id().to_string())
            .with_context(|| format!("{name} belongs to a lab that has ended"))?;
        *self.child() = Some(child);
        self.enter_group()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.is_running()
            .then(|| self.child().as_ref().map(Child::id))
            .flatten()
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.pid().map(procfs::tree).unwrap_or_default()
    }

    pub(crate) fn is_running(&self) -> bool {
        let mut child = self.child();
        let running = child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !running && child.take().is_some() {
            let _ = fs::remove_file(&self.launch.note);
        }
        running
    }

    /// Kills the whole tree, the process itself first, so that it cannot react.
    pub(crate) fn kill(&self) -> Result<()> {
        let pids = self.pids();
        pids.iter().for_each(|pid| send(*pid, libc::SIGKILL));
        self.wait_gone(&pids, GONE_LIMIT)
    }

    /// Sends the stop signal and waits for the end.
    pub(crate) fn stop(&self, limit: Duration) -> Result<()> {
        let pids = self.pids();
        pids.iter()
            .take(1)
            .for_each(|pid| send(*pid, self.launch.stop_signal));
        self.wait_gone(&pids, limit)
    }

    /// Waits until the process has ended by itself.
    pub(crate) fn wait_end(&self, limit: Duration) -> Result<()> {
        self.wait_gone(&[], limit)
    }

    /// Sends a signal to the process and all its descendants, until no new one appears.
    pub(crate) fn signal(&self, signal: i32) {
        let mut done = Vec::new();
        loop {
            let new: Vec<u32> = self
                .pids()
                .into_iter()
                .filter(|pid| !done.contains(pid))
                .collect();
            if new.is_empty() {
                return;
            }
            new.iter().for_each(|pid| send(*pid, signal));
            done.extend(new);
        }
    }

    /// Puts the process into a control group, now and at every restart.
    pub(crate) fn join_group(&self, group: PathBuf) -> Result<()> {
        self.groups
            .lock()
            .expect("no holder of the lock panics")
            .push(group);
        self.enter_group()
    }

    pub(crate) fn log_tail(&self) -> String {
        tail(&self.launch.log)
    }

    pub(crate) fn log(&self) -> String {
        text(&self.launch.log)
    }

    fn enter_group(&self) -> Result<()> {
        let groups = self.groups.lock().expect("no holder of the lock panics");
        for group in groups.iter() {
            for pid in self.pids() {
                let moved = fs::write(group.join("cgroup.procs"), pid.to_string());
                // A server's process for one client may have ended in the meantime.
                let is_gone = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH);
                if !moved.as_ref().is_err_and(is_gone) {
                    moved.with_context(|| {
                        format!("cannot move {} to its group", self.launch.name)
                    })?;
                }
            }
        }
        Ok(())
    }

    fn wait_gone(&self, pids: &[u32], limit: Duration) -> Result<()> {
        let what = format!("end of {}", self.launch.name);
        let gone = eventually(limit, &what, || {
            let gone = !self.is_running() && !pids.iter().any(|pid| procfs::is_alive(*pid));
            Ok(gone.then_some(()))
        });
        gone.with_context(|| {
            let left: Vec<String> = self.pids().into_iter().map(procfs::described).collect();
            let left = left.join("; ");
            format!(
                "remaining processes: {left}; last output:\n{}",
                self.log_tail()
            )
        })
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().expect("no holder of the lock panics")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Raises the limit of open files to the machine's maximum, for this process and its future
/// children.
pub fn raise_open_files_limit() {
    #[expect(
        unsafe_code,
        reason = "the limit has no wrapper in the standard library"
    )]
    // SAFETY: both calls only use the struct passed to them.
    unsafe {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Returns whether the lab itself runs as root.
pub(crate) fn is_root() -> bool {
    own_uid() == 0
}

/// Returns the user id of the lab.
pub fn own_uid() -> u32 {
    #[expect(unsafe_code, reason = "geteuid has no wrapper in the standard library")]
    // SAFETY: geteuid always succeeds and takes no arguments.
    unsafe {
        libc::geteuid()
    }
}

/// Returns the last lines of a log, for error messages.
pub(crate) fn tail(log: &Path) -> String {
    let text = text(log);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn text(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn send(pid: u32, signal: i32) {
    #[expect(unsafe_code, reason = "kill has no wrapper in the standard library")]
    // SAFETY: kill takes no pointer; the id is that of our own child or its descendant.
    unsafe {
        libc::kill(pid.cast_signed(), signal);
    }
}

/// Program to start, its network namespace if it is another one, and the receiver of the outcome.
type Job = (Command, Option<PathBuf>, Sender<io::Result<Child>>);

/// Returns the inbox of the thread that starts programs; it is in the network namespace of the
/// thread that calls first.
fn starter() -> &'static Sender<Job> {
    static STARTER: OnceLock<Sender<Job>> = OnceLock::new();
    STARTER.get_or_init(|| {
        let (jobs, inbox) = channel::<Job>();
        thread::spawn(move || {
            for (mut command, namespace, reply) in inbox {
                let child = match namespace {
                    None => command.spawn(),
                    Some(namespace) => network::within(&namespace, || command.spawn()),
                };
                let _ = reply.send(child);
            }
        });
        jobs
    })
}

/// Starts the thread that starts programs, so that it is in this thread's network namespace.
pub(crate) fn prepare_to_start() {
    starter();
}

/// Starts a child from a thread that lives as long as the process: the kernel sends the death
/// signal when the *thread* that started the child ends.
fn spawn(mut command: Command, death_signal: i32, namespace: Option<PathBuf>) -> io::Result<Child> {
    let namespace = namespace.or_else(network::own_namespace);
    SchedulingGroup::current().apply(&mut command);
    die_with_us(&mut command, death_signal);
    let (reply, outcome) = channel();
    starter()
        .send((command, namespace, reply))
        .map_err(io::Error::other)?;
    outcome.recv().map_err(io::Error::other)?
}

/// Starts a program that ends by itself, such as a load generator; it is also killed with the lab.
pub(crate) fn spawn_tied(mut command: Command) -> io::Result<Child> {
    command.current_dir("/");
    plain_environment(&mut command);
    spawn(command, libc::SIGKILL, None)
}

fn command(launch: &Launch) -> io::Result<Command> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(&launch.log)?;
    let mut command = launch.command()?;
    command
        .args(&launch.arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(command)
}

/// Clears the environment: the databases' clients and servers would read settings from it (PGHOST,
/// …).
pub(crate) fn plain_environment(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C");
}

fn die_with_us(command: &mut Command, signal: i32) {
    let parent = std::process::id();
    let die_with_parent = move || {
        #[expect(unsafe_code, reason = "prctl has no wrapper in the standard library")]
        // SAFETY: both calls are async-signal-safe and take no pointer.
        let lost = unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, signal);
            libc::getppid().cast_unsigned() != parent
        };
        if lost {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(())
        }
    };
    #[expect(
        unsafe_code,
        reason = "the death signal can only be set between fork and exec"
    )]
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(die_with_parent);
    }
}

/// A line of /etc/passwd.
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Returns the accounts of this machine.
pub(crate) fn accounts() -> Vec<Account> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let account = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let uid = fields.nth(1)?.parse().ok()?;
        Some(Account {
            name,
            uid,
            gid: fields.next()?.parse().ok()?,
        })
    };
    text.lines().filter_map(account).collect()
}

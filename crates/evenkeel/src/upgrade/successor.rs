//! Starts the new process on the side of the old one, and controls the takeover on a thread of its
//! own.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::sync::mpsc;

use super::channel::Channel;
use super::process::Process;
use super::state::{DrainReport, NewProcessMessage, OldProcessMessage, Purpose, UpgradeState};
use super::{PREDECESSOR, VERSION};

/// Most bytes kept of the new process's output. The last ones explain a failure best.
const OUTPUT_BYTES_MAX: usize = 2_000;

/// Time limit for a process that closed the socket to exit, and for its last output to arrive.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);

/// Time limit from sending the state to the first client: the new process has all it needs.
const SERVING_LIMIT: Duration = Duration::from_secs(1);

/// Time limit of sending the last report before this process exits.
const REPORT_LIMIT: Duration = Duration::from_secs(2);

/// Interval between checks whether a process has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Event that the thread reports to the control plane.
#[derive(Debug)]
pub(crate) enum SuccessorEvent {
    /// The new process requests the sockets.
    SocketsRequested,
    /// The new process is ready, and requests the state.
    Ready,
    /// The new process serves, with these sockets.
    Serving { pid: u32, taken: Vec<Purpose> },
    /// The new process serves, and requests that this one terminate its sessions now.
    EndDraining,
    /// The upgrade failed, for this reason.
    Failed(String),
    /// The new process has served, and neither it nor a successor of it is left. `was_stopped`: it
    /// had received a stop signal.
    Lost { was_stopped: bool },
}

/// Command of the control plane to the thread.
#[derive(Debug)]
pub(crate) enum SuccessorCommand {
    Sockets(Vec<(Purpose, OwnedFd)>),
    State(Box<UpgradeState>),
    Report(Box<DrainReport>),
    /// The upgrade is aborted.
    Abort,
}

/// A new process that is starting or has taken over. Dropping this before the takeover terminates
/// it.
pub(crate) struct Successor {
    commands: flume::Sender<SuccessorCommand>,
    /// Duplicate of this process's end of the socket. Shutting it down ends the communication.
    stream: UnixStream,
    is_aborted: Arc<AtomicBool>,
    /// Disconnected once the thread has ended.
    ended: flume::Receiver<()>,
}

impl Successor {
    /// Starts `program`, or the program of this process, with the arguments of this process.
    pub(crate) fn start(
        program: Option<PathBuf>,
        (limit, generation): (Duration, u32),
        events: mpsc::UnboundedSender<SuccessorEvent>,
    ) -> io::Result<Successor> {
        let mut arguments = std::env::args_os();
        let own_path = arguments.next().and_then(|name| own_program(&name));
        let Some(program) = program.or(own_path) else {
            return Err(io::Error::other(
                "cannot determine the program of this process",
            ));
        };
        let (commands, inbox) = flume::unbounded();
        let (done, ended) = flume::bounded::<()>(0);
        let (ours, theirs) = UnixStream::pair()?;
        let stream = ours.try_clone()?;
        let is_aborted = Arc::default();
        let start = Start {
            program,
            generation,
            arguments: arguments.collect(),
            limit,
            is_aborted: Arc::clone(&is_aborted),
        };
        let thread = std::thread::Builder::new().name("successor".to_owned());
        thread.spawn(move || {
            let _done = done;
            start.run((ours, theirs), &inbox, &events);
        })?;
        Ok(Successor {
            commands,
            stream,
            is_aborted,
            ended,
        })
    }

    /// Terminates a new process that does not serve yet. The outcome is reported as usual.
    pub(crate) fn abort(&self) {
        self.is_aborted.store(true, SeqCst);
        // Ends the thread's wait for the new process.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.send(SuccessorCommand::Abort);
    }

    pub(crate) fn send(&self, command: SuccessorCommand) {
        // A thread that has ended has reported why.
        let _ = self.commands.send(command);
    }

    /// Returns whether the thread has taken all commands sent so far.
    pub(crate) fn is_idle(&self) -> bool {
        self.commands.is_empty()
    }

    /// Sends the remaining commands and ends the thread. Waits at most `REPORT_LIMIT` for a new
    /// process that does not read: it detects this process's exit anyway.
    pub(crate) fn finish(self) {
        drop(self.commands);
        // The channel carries no values: this waits for the thread's end.
        let _ = self.ended.recv_timeout(REPORT_LIMIT);
    }
}

/// Returns the program's path as this process was started, resolved again, since the file may have
/// been replaced. A name without a slash was found by the shell: then the result is the running
/// file, or its replacement.
fn own_program(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let running = std::env::current_exe().ok()?.into_os_string();
    let replaced = running.as_bytes().strip_suffix(b" (deleted)");
    Some(replaced.map_or_else(|| (&running).into(), |path| OsStr::from_bytes(path).into()))
}

struct Start {
    program: PathBuf,
    generation: u32,
    arguments: Vec<OsString>,
    limit: Duration,
    is_aborted: Arc<AtomicBool>,
}

impl Start {
    fn run(
        self,
        (ours, theirs): (UnixStream, UnixStream),
        commands: &flume::Receiver<SuccessorCommand>,
        events: &mpsc::UnboundedSender<SuccessorEvent>,
    ) {
        let mut new = match self.launch(ours, theirs) {
            Ok(new) => new,
            Err(error) => {
                let program = self.program.display();
                let failed = SuccessorEvent::Failed(format!("cannot start {program}: {error}"));
                let _ = events.send(failed);
                return;
            }
        };
        let by = Instant::now() + self.limit;
        match new.hand_over(commands, events, by) {
            Ok(taken) => {
                let pid = new.pid;
                new.detach();
                let _ = events.send(SuccessorEvent::Serving { pid, taken });
                if let Some(was_stopped) = new.report(commands, events) {
                    let _ = events.send(SuccessorEvent::Lost { was_stopped });
                }
            }
            Err(error) => {
                let why = self.explain(new, &error);
                let _ = events.send(SuccessorEvent::Failed(why));
            }
        }
    }

    fn launch(&self, ours: UnixStream, theirs: UnixStream) -> io::Result<NewProcess> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env(PREDECESSOR, std::process::id().to_string())
            .stdin(OwnedFd::from(theirs))
            .stderr(Stdio::piped());
        let (mut intermediate, pid) = evenkeel_engine::double_fork::start(command)?;
        let output = StartupOutput::listen(intermediate.stderr.take())?;
        Ok(NewProcess {
            intermediate,
            pid,
            generation: self.generation,
            process: Process::find(pid),
            output,
            channel: Channel::new(ours)?,
            has_state: false,
        })
    }

    fn explain(&self, mut new: NewProcess, error: &io::Error) -> String {
        let is_aborted = self.is_aborted.load(SeqCst);
        let limit_ms = self.limit.as_millis();
        let is_timeout = matches!(
            error.kind(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
        );
        // The kind depends on which side notices first.
        let is_disconnected = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
        );
        let ended = new.end(is_timeout || is_aborted);
        let program = self.program.display();
        if is_aborted {
            return format!("{program} was terminated: this process is shutting down");
        }
        let what = match ended {
            _ if is_timeout && new.has_state => format!(
                "received the complete state, but did not serve within {} ms and was terminated",
                SERVING_LIMIT.as_millis()
            ),
            _ if is_timeout => format!("did not take over within {limit_ms} ms and was terminated"),
            Ok(status) if is_disconnected => format!("exited before it took over ({status})"),
            _ => format!("did not take over: {error}"),
        };
        match new.output.last() {
            output if output.is_empty() => format!("{program} {what}, without any output"),
            output => format!("{program} {what}; its output:\n{output}"),
        }
    }
}

/// The new process while it depends on this one.
struct NewProcess {
    /// Child of this process, which waits for the new process, its own child, and exits with the
    /// same status.
    intermediate: Child,
    pid: u32,
    /// Generation of this process. That of the new one is the next.
    generation: u32,
    process: Process,
    output: StartupOutput,
    channel: Channel,
    /// True once the state was sent. Services near their limits accept no clients until the new
    /// process serves.
    has_state: bool,
}

impl NewProcess {
    fn hand_over(
        &mut self,
        commands: &flume::Receiver<SuccessorCommand>,
        events: &mpsc::UnboundedSender<SuccessorEvent>,
        by: Instant,
    ) -> io::Result<Vec<Purpose>> {
        let next = || match commands.recv_deadline(by) {
            Ok(SuccessorCommand::Abort) | Err(flume::RecvTimeoutError::Disconnected) => {
                Err(shutting_down())
            }
            Ok(command) => Ok(command),
            Err(flume::RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        };
        let mut by = by;
        let notify = |what| events.send(what).map_err(|_| shutting_down());
        let channel = &mut self.channel;
        channel.send(&OldProcessMessage::Hello {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            pid: self.pid,
            generation: self.generation,
        })?;
        loop {
            match channel.receive(Some(by))? {
                NewProcessMessage::Asks => {
                    notify(SuccessorEvent::SocketsRequested)?;
                    if let SuccessorCommand::Sockets(sockets) = next()? {
                        pass_sockets(channel, sockets)?;
                    }
                }
                NewProcessMessage::Ready => {
                    notify(SuccessorEvent::Ready)?;
                    if let SuccessorCommand::State(state) = next()? {
                        channel.send(&OldProcessMessage::State(state))?;
                        self.has_state = true;
                        by = by.min(Instant::now() + SERVING_LIMIT);
                    }
                }
                NewProcessMessage::Serving(taken) => return Ok(taken),
                NewProcessMessage::Stopping | NewProcessMessage::EndDraining => {
                    return Err(io::Error::other("the new process is shutting down"));
                }
            }
        }
    }

    /// Detaches the new process, which becomes a child of the first process.
    fn detach(&mut self) {
        let gone = self
            .intermediate
            .kill()
            .and_then(|()| self.intermediate.wait());
        if let Err(error) = gone {
            tracing::error!("cannot detach process {}: {error}", self.pid);
        }
    }

    /// Sends reports until the control plane has no more; then returns `None`. If no serving
    /// process is left to receive them, returns whether the last one received a stop signal.
    fn report(
        mut self,
        commands: &flume::Receiver<SuccessorCommand>,
        events: &mpsc::UnboundedSender<SuccessorEvent>,
    ) -> Option<bool> {
        let patient = self.channel.clear_timeout();
        let mut was_stopped = false;
        while let (Ok(()), Ok(command)) = (&patient, commands.recv()) {
            let SuccessorCommand::Report(report) = command else {
                continue;
            };
            let sent = self.channel.send(&OldProcessMessage::Report(report));
            was_stopped |= self.receive(events);
            if let Err(error) = sent {
                tracing::debug!("cannot send session counts to the new process: {error}");
                return Some(was_stopped);
            }
        }
        self.output.wait();
        None
    }

    /// Processes messages that the new process has sent meanwhile. Returns whether it received a
    /// stop signal.
    fn receive(&mut self, events: &mpsc::UnboundedSender<SuccessorEvent>) -> bool {
        let (now, mut was_stopped) = (Some(Instant::now()), false);
        while let Ok(message) = self.channel.receive::<NewProcessMessage>(now) {
            match message {
                NewProcessMessage::Stopping => was_stopped = true,
                NewProcessMessage::EndDraining => {
                    // A control plane that has ended has no sessions.
                    let _ = events.send(SuccessorEvent::EndDraining);
                }
                _ => {}
            }
        }
        was_stopped
    }

    fn end(&mut self, now: bool) -> io::Result<ExitStatus> {
        let by = Instant::now() + OUTPUT_LIMIT;
        while !now && Instant::now() < by {
            if let Some(status) = self.intermediate.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.process.signal(Signal::KILL)?;
        self.intermediate.wait()
    }
}

fn pass_sockets(channel: &mut Channel, sockets: Vec<(Purpose, OwnedFd)>) -> io::Result<()> {
    let (purposes, sockets): (Vec<_>, Vec<_>) = sockets.into_iter().unzip();
    channel.send(&OldProcessMessage::Sockets(purposes))?;
    sockets
        .iter()
        .try_for_each(|socket| channel.send_descriptor(socket))
}

/// Returns the error of a control plane that ended because of a stop signal.
fn shutting_down() -> io::Error {
    io::Error::other("this process is shutting down")
}

/// Output of the new process before it uses this process's standard error. Copied to that, and its
/// end is kept.
struct StartupOutput {
    tail: Arc<Mutex<Vec<u8>>>,
    ended: flume::Receiver<()>,
}

impl StartupOutput {
    fn listen(source: Option<ChildStderr>) -> io::Result<StartupOutput> {
        let tail: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (shared_tail, (done, ended)) = (Arc::clone(&tail), flume::bounded(0));
        let copy = move || {
            let _done = done;
            let Some(mut source) = source else { return };
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut bytes) {
                // Without stderr the error cannot be logged.
                let _ = io::stderr().write_all(&bytes[..count]);
                let mut tail = shared_tail.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend(&bytes[..count]);
                let surplus = tail.len().saturating_sub(OUTPUT_BYTES_MAX);
                tail.drain(..surplus);
            }
        };
        let thread = std::thread::Builder::new().name("successor-log".to_owned());
        thread.spawn(copy)?;
        Ok(StartupOutput { tail, ended })
    }

    /// Waits until the output is closed, up to `OUTPUT_LIMIT`: a child of the new process may
    /// keep it open.
    fn wait(&self) {
        // The channel carries no values.
        let _ = self.ended.recv_timeout(OUTPUT_LIMIT);
    }

    fn last(&self) -> String {
        self.wait();
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

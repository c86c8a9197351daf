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
use super::double_fork;
use super::process::Process;
use super::state::{DrainReport, NewProcessMessage, OldProcessMessage, Purpose, UpgradeState};
use super::{PREDECESSOR, VERSION};

/// Most bytes kept of the new process's output. The last ones explain a failure best.
const WORDS_BYTES_MAX: usize = 2_000;

/// Time limit for a process that closed the socket to exit, and for its last output to arrive.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// Time limit from sending the state to the first client: the new process has all it needs.
const SERVING_LIMIT: Duration = Duration::from_secs(1);

/// Time limit of sending the last report before this process exits.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);

/// Interval between checks whether a process has exited.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Event that the thread reports to the control plane.
#[derive(Debug)]
pub(crate) enum SuccessorEvent {
    /// The new process requests the sockets.
    Asks,
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
    GiveUp,
}

/// A new process that is starting or has taken over. Dropping this before the takeover terminates
/// it.
pub(crate) struct Successor {
    orders: flume::Sender<SuccessorCommand>,
    /// Duplicate of this process's end of the socket. Shutting it down ends the communication.
    stream: UnixStream,
    is_given_up: Arc<AtomicBool>,
    /// Disconnected once the thread has ended.
    ended: flume::Receiver<()>,
}

impl Successor {
    /// Starts `program`, or the program of this process, with the arguments of this process.
    pub(crate) fn start(
        program: Option<PathBuf>,
        (limit, generation): (Duration, u32),
        said: mpsc::UnboundedSender<SuccessorEvent>,
    ) -> io::Result<Successor> {
        let mut arguments = std::env::args_os();
        let own = arguments.next().and_then(|name| own_program(&name));
        let Some(program) = program.or(own) else {
            return Err(io::Error::other(
                "cannot determine the program of this process",
            ));
        };
        let (orders, inbox) = flume::unbounded();
        let (until, ended) = flume::bounded::<()>(0);
        let (ours, theirs) = UnixStream::pair()?;
        let stream = ours.try_clone()?;
        let is_given_up = Arc::default();
        let start = Start {
            program,
            generation,
            arguments: arguments.collect(),
            limit,
            is_given_up: Arc::clone(&is_given_up),
        };
        let thread = std::thread::Builder::new().name("successor".to_owned());
        thread.spawn(move || {
            let _until = until;
            start.lead((ours, theirs), &inbox, &said);
        })?;
        Ok(Successor {
            orders,
            stream,
            is_given_up,
            ended,
        })
    }

    /// Terminates a new process that does not serve yet. The outcome is reported as usual.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, SeqCst);
        // Ends the thread's wait for the new process.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.tell(SuccessorCommand::GiveUp);
    }

    pub(crate) fn tell(&self, order: SuccessorCommand) {
        // A thread that has ended has reported why.
        let _ = self.orders.send(order);
    }

    /// Returns whether the thread has taken all commands sent so far.
    pub(crate) fn is_idle(&self) -> bool {
        self.orders.is_empty()
    }

    /// Sends the remaining commands and ends the thread. Waits at most `GOODBYE_LIMIT` for a new
    /// process that does not read: it detects this process's exit anyway.
    pub(crate) fn finish(self) {
        drop(self.orders);
        // The channel carries no values: this waits for the thread's end.
        let _ = self.ended.recv_timeout(GOODBYE_LIMIT);
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
    is_given_up: Arc<AtomicBool>,
}

impl Start {
    fn lead(
        self,
        (ours, theirs): (UnixStream, UnixStream),
        orders: &flume::Receiver<SuccessorCommand>,
        said: &mpsc::UnboundedSender<SuccessorEvent>,
    ) {
        let mut new = match self.launch(ours, theirs) {
            Ok(new) => new,
            Err(error) => {
                let program = self.program.display();
                let failed = SuccessorEvent::Failed(format!("cannot start {program}: {error}"));
                let _ = said.send(failed);
                return;
            }
        };
        let by = Instant::now() + self.limit;
        match new.hand_over(orders, said, by) {
            Ok(taken) => {
                let pid = new.pid;
                new.detach();
                let _ = said.send(SuccessorEvent::Serving { pid, taken });
                if let Some(was_stopped) = new.report(orders, said) {
                    let _ = said.send(SuccessorEvent::Lost { was_stopped });
                }
            }
            Err(error) => {
                let why = self.explain(new, &error);
                let _ = said.send(SuccessorEvent::Failed(why));
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
        let (mut midwife, pid) = double_fork::start(command)?;
        let words = StartupOutput::listen(midwife.stderr.take())?;
        Ok(NewProcess {
            intermediate: midwife,
            pid,
            generation: self.generation,
            process: Process::find(pid),
            words,
            channel: Channel::new(ours)?,
            has_state: false,
        })
    }

    fn explain(&self, mut new: NewProcess, error: &io::Error) -> String {
        let is_given_up = self.is_given_up.load(SeqCst);
        let limit_ms = self.limit.as_millis();
        let hung = matches!(
            error.kind(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
        );
        // The kind depends on which side notices first.
        let hung_up = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::ConnectionReset
        );
        let ended = new.end(hung || is_given_up);
        let program = self.program.display();
        if is_given_up {
            return format!("{program} was terminated: this process is shutting down");
        }
        let what = match ended {
            _ if hung && new.has_state => format!(
                "received the complete state, but did not serve within {} ms and was terminated",
                SERVING_LIMIT.as_millis()
            ),
            _ if hung => format!("did not take over within {limit_ms} ms and was terminated"),
            Ok(status) if hung_up => format!("exited before it took over ({status})"),
            _ => format!("did not take over: {error}"),
        };
        match new.words.last() {
            words if words.is_empty() => format!("{program} {what}, without any output"),
            words => format!("{program} {what}; its output:\n{words}"),
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
    words: StartupOutput,
    channel: Channel,
    /// True once the state was sent. Services near their limits accept no clients until the new
    /// process serves.
    has_state: bool,
}

impl NewProcess {
    fn hand_over(
        &mut self,
        orders: &flume::Receiver<SuccessorCommand>,
        said: &mpsc::UnboundedSender<SuccessorEvent>,
        by: Instant,
    ) -> io::Result<Vec<Purpose>> {
        let next = || match orders.recv_deadline(by) {
            Ok(SuccessorCommand::GiveUp) | Err(flume::RecvTimeoutError::Disconnected) => {
                Err(world_gone())
            }
            Ok(order) => Ok(order),
            Err(flume::RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
        };
        let mut by = by;
        let ask = |what| said.send(what).map_err(|_| world_gone());
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
                    ask(SuccessorEvent::Asks)?;
                    if let SuccessorCommand::Sockets(sockets) = next()? {
                        pass_sockets(channel, sockets)?;
                    }
                }
                NewProcessMessage::Ready => {
                    ask(SuccessorEvent::Ready)?;
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
        orders: &flume::Receiver<SuccessorCommand>,
        said: &mpsc::UnboundedSender<SuccessorEvent>,
    ) -> Option<bool> {
        let patient = self.channel.be_patient();
        let mut was_stopped = false;
        while let (Ok(()), Ok(order)) = (&patient, orders.recv()) {
            let SuccessorCommand::Report(report) = order else {
                continue;
            };
            let sent = self.channel.send(&OldProcessMessage::Report(report));
            was_stopped |= self.hear(said);
            if let Err(error) = sent {
                tracing::debug!("cannot send session counts to the new process: {error}");
                return Some(was_stopped);
            }
        }
        self.words.wait();
        None
    }

    /// Processes messages that the new process has sent meanwhile. Returns whether it received a
    /// stop signal.
    fn hear(&mut self, said: &mpsc::UnboundedSender<SuccessorEvent>) -> bool {
        let (now, mut was_stopped) = (Some(Instant::now()), false);
        while let Ok(heard) = self.channel.receive::<NewProcessMessage>(now) {
            match heard {
                NewProcessMessage::Stopping => was_stopped = true,
                NewProcessMessage::EndDraining => {
                    // A control plane that has ended has no sessions.
                    let _ = said.send(SuccessorEvent::EndDraining);
                }
                _ => {}
            }
        }
        was_stopped
    }

    fn end(&mut self, now: bool) -> io::Result<ExitStatus> {
        let by = Instant::now() + LAST_WORDS_LIMIT;
        while !now && Instant::now() < by {
            if let Some(status) = self.intermediate.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        self.process.signal(Signal::KILL)?;
        self.intermediate.wait()
    }
}

fn pass_sockets(channel: &mut Channel, sockets: Vec<(Purpose, OwnedFd)>) -> io::Result<()> {
    let (purposes, sockets): (Vec<_>, Vec<_>) = sockets.into_iter().unzip();
    channel.send(&OldProcessMessage::Sockets(purposes))?;
    sockets.iter().try_for_each(|socket| channel.pass(socket))
}

/// Returns the error of a control plane that ended because of a stop signal.
fn world_gone() -> io::Error {
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
        let (kept, (until, ended)) = (Arc::clone(&tail), flume::bounded(0));
        let copy = move || {
            let _until = until;
            let Some(mut source) = source else { return };
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut bytes) {
                // Without stderr the error cannot be logged.
                let _ = io::stderr().write_all(&bytes[..count]);
                let mut tail = kept.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend(&bytes[..count]);
                let surplus = tail.len().saturating_sub(WORDS_BYTES_MAX);
                tail.drain(..surplus);
            }
        };
        let thread = std::thread::Builder::new().name("successor-log".to_owned());
        thread.spawn(copy)?;
        Ok(StartupOutput { tail, ended })
    }

    /// Waits until the output is closed, up to `LAST_WORDS_LIMIT`: a child of the new process may
    /// keep it open.
    fn wait(&self) {
        // The channel carries no values.
        let _ = self.ended.recv_timeout(LAST_WORDS_LIMIT);
    }

    fn last(&self) -> String {
        self.wait();
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

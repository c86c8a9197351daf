//! The old process's side: starts the new one, and leads it through the take-over on a thread of
//! its own.

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

/// Of what a process says before it fails, the end is what matters.
const WORDS_BYTES_MAX: usize = 2_000;

/// A process that has hung up is about to end, and its last words are on their way.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// From the state, with which it has everything, to its first client.
const SERVING_LIMIT: Duration = Duration::from_secs(1);

/// At our end, for the last report.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);

/// How often an ending process is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What the thread asks of the world.
#[derive(Debug)]
pub(crate) enum SuccessorEvent {
    /// The new process wants the sockets.
    Asks,
    /// The new process is ready: it wants the state.
    Ready,
    /// The new process serves, with these sockets.
    Serving { pid: u32, taken: Vec<Purpose> },
    /// The new process serves, and wants the sessions of this one terminated now.
    EndDraining,
    /// There is none; why not.
    Failed(String),
    /// It served, and neither it nor any process after it is left. Whether it was told to stop.
    Lost { was_stopped: bool },
}

/// What the world tells the thread.
#[derive(Debug)]
pub(crate) enum SuccessorCommand {
    Sockets(Vec<(Purpose, OwnedFd)>),
    State(Box<UpgradeState>),
    Report(Box<DrainReport>),
    /// There is nothing to take over.
    GiveUp,
}

/// A new process on its way, or one that has taken over. Dropped before that, it is ended.
pub(crate) struct Successor {
    orders: flume::Sender<SuccessorCommand>,
    /// Our end of the conversation once more: shut down, it ends.
    stream: UnixStream,
    is_given_up: Arc<AtomicBool>,
    /// Without a sender when the thread has ended.
    ended: flume::Receiver<()>,
}

impl Successor {
    /// Starts `program`, or this process's own one again, with the arguments of this process.
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

    /// Ends a new process that does not serve yet; what comes of it is said as ever.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, SeqCst);
        // Whoever waits for the other one waits no longer.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.tell(SuccessorCommand::GiveUp);
    }

    pub(crate) fn tell(&self, order: SuccessorCommand) {
        // A thread that has ended has said why.
        let _ = self.orders.send(order);
    }

    /// Whether everything told so far is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.orders.is_empty()
    }

    /// Sends what is left and lets go. A new process that does not listen is not waited for: it
    /// learns from our end what there is to know.
    pub(crate) fn finish(self) {
        drop(self.orders);
        // Nothing is ever sent.
        let _ = self.ended.recv_timeout(GOODBYE_LIMIT);
    }
}

/// As this process was started, followed anew: the file may be another one by now. Without a slash
/// the shell has looked for it; then it is the file that runs here, or what has replaced it.
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
        // Whichever side notices first.
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

/// The new process, as long as it depends on us.
struct NewProcess {
    /// Our child; it waits for the new process, its own child, and ends as that one does.
    intermediate: Child,
    pid: u32,
    /// Ours: the new one's is the next.
    generation: u32,
    process: Process,
    words: StartupOutput,
    channel: Channel,
    /// Services near their limits accept nobody until it serves.
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

    /// From here on it is a child of the first process.
    fn detach(&mut self) {
        let gone = self
            .intermediate
            .kill()
            .and_then(|()| self.intermediate.wait());
        if let Err(error) = gone {
            tracing::error!("cannot detach process {}: {error}", self.pid);
        }
    }

    /// Until the world has nothing more to say; or until nobody who serves is left to hear it:
    /// then, whether the last one was told to stop.
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

    /// Passes on what the new process has sent meanwhile. Returns whether it received a stop
    /// signal.
    fn hear(&mut self, said: &mpsc::UnboundedSender<SuccessorEvent>) -> bool {
        let (now, mut was_stopped) = (Some(Instant::now()), false);
        while let Ok(heard) = self.channel.receive::<NewProcessMessage>(now) {
            match heard {
                NewProcessMessage::Stopping => was_stopped = true,
                NewProcessMessage::EndDraining => {
                    // A world that is gone has no sessions.
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

/// The world drops its end when it is told to stop meanwhile.
fn world_gone() -> io::Error {
    io::Error::other("this process is shutting down")
}

/// What the new process writes before it has our standard error: it goes there all the same, and
/// the end of it is kept.
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
                // Nobody is left to be told when stderr is gone.
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

    /// Until nobody can write any more; a child of the new process may hold on to it.
    fn wait(&self) {
        // Either way there is nothing to receive.
        let _ = self.ended.recv_timeout(LAST_WORDS_LIMIT);
    }

    fn last(&self) -> String {
        self.wait();
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

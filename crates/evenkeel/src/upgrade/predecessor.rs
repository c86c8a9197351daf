//! The new process's side: finds the old one, asks for its sockets, takes over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::mpsc;

use super::channel::Channel;
use super::line::{FromPredecessor, Line};
use super::process::Process;
use super::state::{FromNew, FromOld, Handover, Purpose};
use super::{LIMIT_MS_MAX, PREDECESSOR, VERSION};

/// Why nothing is taken over. The old process goes on.
#[derive(Debug, Error)]
pub enum TakeOverError {
    /// Started by hand, or by a wrapper that stays in between.
    #[error(
        "{PREDECESSOR}={0} is set, but that process did not start this one: unset it; a wrapper \
         around evenkeel must exec it"
    )]
    NotStarted(String),
    /// The two programs do not understand each other.
    #[error(
        "evenkeel {program} runs, and hands over in version {theirs} where this one \
         ({}) takes over in version {VERSION}: stop it and start this one",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The running program.
        program: String,
        /// Its version of the conversation.
        theirs: u32,
    },
    /// The conversation broke off.
    #[error("cannot take over from process {pid}: {step}: {cause}")]
    Broken {
        /// The old process.
        pid: u32,
        /// What was being done.
        step: &'static str,
        /// What went wrong.
        cause: io::Error,
    },
}

/// Who has hung up has ended, or does so within this.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The process that serves now.
pub struct Predecessor {
    pid: u32,
    /// Told from a later one with the same id.
    process: Process,
    channel: Channel,
    by: Instant,
    generation: u32,
}

impl Predecessor {
    /// The process that started this one to be taken over from, if one did.
    pub fn find() -> Result<Option<Predecessor>, TakeOverError> {
        let Some(told) = std::env::var_os(PREDECESSOR) else {
            return Ok(None);
        };
        let told = told.to_string_lossy().into_owned();
        let Ok(pid) = told.parse() else {
            return Err(TakeOverError::NotStarted(told));
        };
        let found = standard_input_of(pid).and_then(|stream| Predecessor::on(pid, stream));
        let step = "its socket, which should be the standard input";
        let broken = |cause| TakeOverError::Broken { pid, step, cause };
        found.map(Some).map_err(broken)
    }

    pub(super) fn on(pid: u32, stream: UnixStream) -> io::Result<Predecessor> {
        Ok(Predecessor {
            pid,
            process: Process::find(pid),
            channel: Channel::new(stream)?,
            // The old one knows the real limit, and ends us when it is over.
            by: Instant::now() + Duration::from_millis(LIMIT_MS_MAX),
            generation: 0,
        })
    }

    /// Asks for the sockets: from here on only what is said with these may fail.
    pub fn ask(&mut self) -> Result<Inherited, TakeOverError> {
        let by = Some(self.by);
        let hello = self.channel.receive(by);
        match hello.map_err(|cause| self.broken("its greeting", cause))? {
            FromOld::Hello {
                version,
                pid,
                generation,
                ..
            } if version == VERSION => {
                self.generation = generation;
                if pid != std::process::id() {
                    return Err(TakeOverError::NotStarted(self.pid.to_string()));
                }
            }
            FromOld::Hello {
                version, program, ..
            } => {
                return Err(TakeOverError::Version {
                    program,
                    theirs: version,
                });
            }
            other => return Err(self.out_of_turn(&other)),
        }
        let asked = self.channel.send(&FromNew::Asks);
        asked.map_err(|cause| self.broken("asking for its sockets", cause))?;
        let listed = self.channel.receive(by);
        let purposes = match listed.map_err(|cause| self.broken("its sockets", cause))? {
            FromOld::Sockets(purposes) => purposes,
            other => return Err(self.out_of_turn(&other)),
        };
        let mut inherited = Inherited::default();
        for purpose in purposes {
            let passed = self.channel.be_passed(by);
            let socket = passed.map_err(|cause| self.broken("its sockets", cause))?;
            inherited.sockets.entry(purpose).or_default().push(socket);
        }
        Ok(inherited)
    }

    /// Which of the processes that followed each other it is, once it was asked.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Says that nothing is left that can fail, and hears what there is to know. The descriptors
    /// are the lines to the processes before it.
    ///
    /// Nothing, if the old process has ended: we have its sockets, and nobody else is left to
    /// serve.
    pub(crate) fn ready(&mut self) -> Result<(Handover, Vec<OwnedFd>), TakeOverError> {
        let state = self.channel.send(&FromNew::Ready);
        let state = state.and_then(|()| self.channel.receive(Some(self.by)));
        match state {
            Ok(FromOld::State(state)) => {
                let lines = self.lines(state.predecessors.len())?;
                Ok((*state, lines))
            }
            Ok(other) => Err(self.out_of_turn(&other)),
            Err(cause) if self.is_orphaned(&cause) => {
                let nothing = Handover {
                    pid: self.pid,
                    ..Handover::default()
                };
                Ok((nothing, Vec::new()))
            }
            Err(cause) => Err(self.broken("its state", cause)),
        }
    }

    fn lines(&mut self, count: usize) -> Result<Vec<OwnedFd>, TakeOverError> {
        let mut lines = Vec::new();
        while lines.len() < count {
            match self.channel.be_passed(Some(self.by)) {
                Ok(line) => lines.push(line),
                Err(cause) if self.is_orphaned(&cause) => break,
                Err(cause) => return Err(self.broken("the lines to others", cause)),
            }
        }
        Ok(lines)
    }

    /// Whether the old process has hung up because it is no more: then we go on alone.
    fn is_orphaned(&self, cause: &io::Error) -> bool {
        let is_gone = is_end(cause) && self.process.ends_within(END_LIMIT);
        if is_gone {
            tracing::error!("process {} has ended: going on without it", self.pid);
        }
        is_gone
    }

    /// Says that clients are accepted here. From now on the old process accepts nobody.
    pub(crate) fn serving(&mut self, taken: Vec<Purpose>) -> Result<(), TakeOverError> {
        match self.channel.send(&FromNew::Serving(taken)) {
            Err(cause) if !self.is_orphaned(&cause) => {
                Err(self.broken("saying that we serve", cause))
            }
            _ => Ok(()),
        }
    }

    /// What it says from now on.
    pub(crate) fn line(self, heard: mpsc::UnboundedSender<FromPredecessor>) -> io::Result<Line> {
        let stream = self.channel.into_stream();
        Line::new(self.pid, stream.into(), Vec::new(), heard)
    }

    fn broken(&self, step: &'static str, cause: io::Error) -> TakeOverError {
        let cause = match cause.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("it has hung up"),
            _ => cause,
        };
        TakeOverError::Broken {
            pid: self.pid,
            step,
            cause,
        }
    }

    fn out_of_turn(&self, said: &FromOld) -> TakeOverError {
        let cause = io::Error::other(format!("it said something else: {said:?}"));
        self.broken("its answer", cause)
    }
}

/// The sockets of the old process; those that nobody takes are closed here and nowhere else.
#[derive(Default)]
pub struct Inherited {
    sockets: BTreeMap<Purpose, Vec<OwnedFd>>,
    taken: Vec<Purpose>,
}

impl Inherited {
    /// The socket for this purpose, if the old process has one.
    pub(crate) fn take(&mut self, purpose: Purpose) -> Option<OwnedFd> {
        let socket = self.sockets.get_mut(&purpose)?.pop()?;
        self.taken.push(purpose);
        Some(socket)
    }

    /// All that were taken.
    pub(crate) fn taken(&self) -> Vec<Purpose> {
        self.taken.clone()
    }

    /// From here on our log goes where the old process's goes, though that one may end. What comes
    /// back is our own standard error, on which the old process listens until we serve.
    pub(crate) fn take_log(&mut self) -> Option<OwnedFd> {
        let log = self.take(Purpose::Log)?;
        let own = rustix::stdio::stderr().try_clone_to_owned();
        let taken = own.and_then(|own| {
            rustix::stdio::dup2_stderr(&log)
                .map(|()| own)
                .map_err(io::Error::from)
        });
        let warn = |error| {
            tracing::warn!("the log stays with the process that is being replaced: {error}");
        };
        taken.map_err(warn).ok()
    }
}

fn is_end(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Moves the socket away from descriptor 0, which something might read.
fn standard_input_of(pid: u32) -> io::Result<UnixStream> {
    let socket = rustix::stdio::stdin().try_clone_to_owned()?;
    let peer = rustix::net::sockopt::socket_peercred(&socket)?;
    if peer.pid.as_raw_nonzero().get().cast_unsigned() != pid {
        return Err(io::Error::other("it comes from another process"));
    }
    rustix::stdio::dup2_stdin(&File::open("/dev/null")?)?;
    Ok(UnixStream::from(socket))
}

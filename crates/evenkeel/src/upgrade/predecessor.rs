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
use super::predecessor_link::{PredecessorEvent, PredecessorLink};
use super::process::Process;
use super::state::{NewProcessMessage, OldProcessMessage, Purpose, UpgradeState};
use super::{LIMIT_MS_MAX, PREDECESSOR, VERSION};

/// Why nothing is taken over. The old process goes on.
#[derive(Debug, Error)]
pub enum TakeOverError {
    /// Started by hand, or by a wrapper that stays in between.
    #[error(
        "{PREDECESSOR}={0} is set, but that process did not start this one: unset it (a wrapper \
         around evenkeel must use exec)"
    )]
    NotStarted(String),
    /// The two programs do not understand each other.
    #[error(
        "the running evenkeel {program} uses upgrade protocol {theirs}, this one ({}) uses \
         {VERSION}: stop the running one and start this one",
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
        let step = "opening its socket on standard input";
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
    pub fn ask(&mut self) -> Result<InheritedSockets, TakeOverError> {
        let by = Some(self.by);
        let hello = self.channel.receive(by);
        match hello.map_err(|cause| self.broken("reading its greeting", cause))? {
            OldProcessMessage::Hello {
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
            OldProcessMessage::Hello {
                version, program, ..
            } => {
                return Err(TakeOverError::Version {
                    program,
                    theirs: version,
                });
            }
            other => return Err(self.out_of_turn(&other)),
        }
        let asked = self.channel.send(&NewProcessMessage::Asks);
        asked.map_err(|cause| self.broken("requesting its sockets", cause))?;
        let listed = self.channel.receive(by);
        let purposes = match listed.map_err(|cause| self.broken("receiving its sockets", cause))? {
            OldProcessMessage::Sockets(purposes) => purposes,
            other => return Err(self.out_of_turn(&other)),
        };
        let mut inherited = InheritedSockets::default();
        for purpose in purposes {
            let passed = self.channel.be_passed(by);
            let socket = passed.map_err(|cause| self.broken("receiving its sockets", cause))?;
            inherited.sockets.entry(purpose).or_default().push(socket);
        }
        Ok(inherited)
    }

    /// Which of the processes that followed each other it is, once it was asked.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Says that nothing is left that can fail, and returns the state of the old process: an empty
    /// one if that process has exited, since this one has its sockets and must serve.
    pub(crate) fn ready(&mut self) -> Result<UpgradeState, TakeOverError> {
        let state = self.channel.send(&NewProcessMessage::Ready);
        let state = state.and_then(|()| self.channel.receive(Some(self.by)));
        match state {
            Ok(OldProcessMessage::State(state)) => Ok(*state),
            Ok(other) => Err(self.out_of_turn(&other)),
            Err(cause) if self.is_orphaned(&cause) => Ok(UpgradeState {
                pid: self.pid,
                ..UpgradeState::default()
            }),
            Err(cause) => Err(self.broken("receiving its state", cause)),
        }
    }

    /// Whether the old process has hung up because it is no more: then we go on alone.
    fn is_orphaned(&self, cause: &io::Error) -> bool {
        let is_gone = is_end(cause) && self.process.ends_within(END_LIMIT);
        if is_gone {
            tracing::error!("process {} exited, continuing without it", self.pid);
        }
        is_gone
    }

    /// Says that clients are accepted here. From now on the old process accepts nobody.
    pub(crate) fn serving(&mut self, taken: Vec<Purpose>) -> Result<(), TakeOverError> {
        match self.channel.send(&NewProcessMessage::Serving(taken)) {
            Err(cause) if !self.is_orphaned(&cause) => {
                Err(self.broken("announcing that this process serves", cause))
            }
            _ => Ok(()),
        }
    }

    /// What it says from now on.
    pub(crate) fn line(
        self,
        heard: mpsc::UnboundedSender<PredecessorEvent>,
    ) -> io::Result<PredecessorLink> {
        let stream = self.channel.into_stream();
        PredecessorLink::new(self.pid, stream.into(), heard)
    }

    fn broken(&self, step: &'static str, cause: io::Error) -> TakeOverError {
        let cause = match cause.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("connection closed"),
            _ => cause,
        };
        TakeOverError::Broken {
            pid: self.pid,
            step,
            cause,
        }
    }

    fn out_of_turn(&self, said: &OldProcessMessage) -> TakeOverError {
        let cause = io::Error::other(format!("unexpected message: {said:?}"));
        self.broken("reading its answer", cause)
    }
}

/// The sockets of the old process; those that nobody takes are closed here and nowhere else.
#[derive(Default)]
pub struct InheritedSockets {
    sockets: BTreeMap<Purpose, Vec<OwnedFd>>,
    taken: Vec<Purpose>,
}

impl InheritedSockets {
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
            tracing::warn!("cannot take over the log, it stays with the old process: {error}");
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
        return Err(io::Error::other("the socket comes from another process"));
    }
    rustix::stdio::dup2_stdin(&File::open("/dev/null")?)?;
    Ok(UnixStream::from(socket))
}

//! Takes over from the old process on the side of the new one: receives its sockets and its state.

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

/// Reason why the takeover failed. The old process continues to serve.
#[derive(Debug, Error)]
pub enum TakeOverError {
    /// The process was started by hand, or by a wrapper that stays in between.
    #[error(
        "{PREDECESSOR}={0} is set, but that process did not start this one: unset it (a wrapper \
         around evenkeel must use exec)"
    )]
    NotStarted(String),
    /// The two programs use different versions of the upgrade protocol.
    #[error(
        "the running evenkeel {program} uses upgrade protocol {theirs}, this one ({}) uses \
         {VERSION}: stop the running one and start this one",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Version of the running program.
        program: String,
        /// Version of its upgrade protocol.
        theirs: u32,
    },
    /// The communication with the old process failed.
    #[error("cannot take over from process {pid}: {step}: {cause}")]
    Broken {
        /// Process id of the old process.
        pid: u32,
        /// Step that failed.
        step: &'static str,
        /// Cause of the failure.
        cause: io::Error,
    },
}

/// Time within which a process that closed the socket has exited.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Connection to the process that serves now.
pub struct Predecessor {
    pid: u32,
    /// Handle of the process, not confused with a later process of the same id.
    process: Process,
    channel: Channel,
    deadline: Instant,
    generation: u32,
}

impl Predecessor {
    /// Returns the process that started this one for a takeover. `None`: this is no upgrade.
    pub fn find() -> Result<Option<Predecessor>, TakeOverError> {
        let Some(value) = std::env::var_os(PREDECESSOR) else {
            return Ok(None);
        };
        let value = value.to_string_lossy().into_owned();
        let Ok(pid) = value.parse() else {
            return Err(TakeOverError::NotStarted(value));
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
            // The old process knows the actual limit, and terminates this one at its end.
            deadline: Instant::now() + Duration::from_millis(LIMIT_MS_MAX),
            generation: 0,
        })
    }

    /// Requests and receives the sockets of the old process. Fails if that uses another protocol
    /// version, or did not start this process.
    pub fn request_sockets(&mut self) -> Result<InheritedSockets, TakeOverError> {
        let deadline = Some(self.deadline);
        let hello = self.channel.receive(deadline);
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
            other => return Err(self.unexpected(&other)),
        }
        let sent = self.channel.send(&NewProcessMessage::Asks);
        sent.map_err(|cause| self.broken("requesting its sockets", cause))?;
        let listed = self.channel.receive(deadline);
        let purposes = match listed.map_err(|cause| self.broken("receiving its sockets", cause))? {
            OldProcessMessage::Sockets(purposes) => purposes,
            other => return Err(self.unexpected(&other)),
        };
        let mut inherited = InheritedSockets::default();
        for purpose in purposes {
            let passed = self.channel.receive_descriptor(deadline);
            let socket = passed.map_err(|cause| self.broken("receiving its sockets", cause))?;
            inherited.sockets.entry(purpose).or_default().push(socket);
        }
        Ok(inherited)
    }

    /// Returns the old process's number in the series of upgrades. Valid after
    /// [`Self::request_sockets`].
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Reports that no further step can fail, and returns the state of the old process. The state
    /// is empty if that process has exited, since this one has its sockets and must serve.
    pub(crate) fn ready(&mut self) -> Result<UpgradeState, TakeOverError> {
        let state = self.channel.send(&NewProcessMessage::Ready);
        let state = state.and_then(|()| self.channel.receive(Some(self.deadline)));
        match state {
            Ok(OldProcessMessage::State(state)) => Ok(*state),
            Ok(other) => Err(self.unexpected(&other)),
            Err(cause) if self.is_orphaned(&cause) => Ok(UpgradeState {
                pid: self.pid,
                ..UpgradeState::default()
            }),
            Err(cause) => Err(self.broken("receiving its state", cause)),
        }
    }

    /// Returns whether the old process closed the socket because it has exited. Then this one
    /// continues alone.
    fn is_orphaned(&self, cause: &io::Error) -> bool {
        let is_gone = is_end(cause) && self.process.ends_within(END_LIMIT);
        if is_gone {
            tracing::error!("process {} exited, continuing without it", self.pid);
        }
        is_gone
    }

    /// Reports that this process accepts clients. From now on the old process accepts none.
    pub(crate) fn serving(&mut self, taken: Vec<Purpose>) -> Result<(), TakeOverError> {
        match self.channel.send(&NewProcessMessage::Serving(taken)) {
            Err(cause) if !self.is_orphaned(&cause) => {
                Err(self.broken("announcing that this process serves", cause))
            }
            _ => Ok(()),
        }
    }

    /// Returns the link that receives the old process's reports from now on.
    pub(crate) fn into_link(
        self,
        events: mpsc::UnboundedSender<PredecessorEvent>,
    ) -> io::Result<PredecessorLink> {
        let stream = self.channel.into_stream();
        PredecessorLink::new(self.pid, stream.into(), events)
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

    fn unexpected(&self, message: &OldProcessMessage) -> TakeOverError {
        let cause = io::Error::other(format!("unexpected message: {message:?}"));
        self.broken("reading its answer", cause)
    }
}

/// Sockets of the old process. Unused ones are closed in this process only.
#[derive(Default)]
pub struct InheritedSockets {
    sockets: BTreeMap<Purpose, Vec<OwnedFd>>,
    taken: Vec<Purpose>,
}

impl InheritedSockets {
    /// Takes a socket for this purpose, if the old process has passed one.
    pub(crate) fn take(&mut self, purpose: Purpose) -> Option<OwnedFd> {
        let socket = self.sockets.get_mut(&purpose)?.pop()?;
        self.taken.push(purpose);
        Some(socket)
    }

    /// Returns the purposes of all sockets taken.
    pub(crate) fn taken(&self) -> Vec<Purpose> {
        self.taken.clone()
    }

    /// Redirects the log to the destination of the old process, even after that has exited. Returns
    /// the previous standard error, which the old process reads until this one serves.
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

/// Takes the socket from descriptor 0, which other code might read, and replaces it by `/dev/null`.
fn standard_input_of(pid: u32) -> io::Result<UnixStream> {
    let socket = rustix::stdio::stdin().try_clone_to_owned()?;
    let peer = rustix::net::sockopt::socket_peercred(&socket)?;
    if peer.pid.as_raw_nonzero().get().cast_unsigned() != pid {
        return Err(io::Error::other("the socket comes from another process"));
    }
    rustix::stdio::dup2_stdin(&File::open("/dev/null")?)?;
    Ok(UnixStream::from(socket))
}

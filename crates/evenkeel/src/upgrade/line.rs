//! The line to a process that drains: it can be handed on, in the middle of a word if need be.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::channel::{message, next_in};
use super::process::Process;
use super::state::{FromNew, FromOld, Report};

/// What an old process has to say once we serve.
#[derive(Debug)]
pub(crate) enum FromPredecessor {
    /// How it stands.
    Report { pid: u32, report: Box<Report> },
    /// It has ended.
    Gone { pid: u32 },
}

/// Listens to one old process until dropped.
pub(crate) struct Line {
    pid: u32,
    stream: Arc<UnixStream>,
    /// What has come of a message that is not whole yet.
    unread: Arc<Mutex<Vec<u8>>>,
    heard: mpsc::UnboundedSender<FromPredecessor>,
    /// None while paused.
    listening: Option<AbortHandle>,
}

impl Line {
    /// One that is not listened to before [`Self::resume`].
    pub(crate) fn paused(
        pid: u32,
        socket: OwnedFd,
        unread: Vec<u8>,
        heard: mpsc::UnboundedSender<FromPredecessor>,
    ) -> io::Result<Line> {
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true)?;
        let stream = Arc::new(UnixStream::from_std(stream)?);
        let unread = Arc::new(Mutex::new(unread));
        Ok(Line {
            pid,
            stream,
            unread,
            heard,
            listening: None,
        })
    }

    pub(crate) fn new(
        pid: u32,
        socket: OwnedFd,
        unread: Vec<u8>,
        heard: mpsc::UnboundedSender<FromPredecessor>,
    ) -> io::Result<Line> {
        let mut line = Line::paused(pid, socket, unread, heard)?;
        line.resume();
        Ok(line)
    }

    /// The descriptor once more, for a process that listens when we no longer do.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.stream.as_fd().try_clone_to_owned()
    }

    /// Says that this process was told to stop. Some bytes always fit: nothing else is said on it.
    pub(crate) fn say_stopping(&self) {
        let sent = message(&FromNew::Stopping).map(|bytes| self.stream.try_write(&bytes));
        if let Err(error) = sent.flatten() {
            tracing::debug!("process {} does not hear that we stop: {error}", self.pid);
        }
    }

    /// Stops listening, so that another process may: the descriptor, and what it must know.
    pub(crate) fn pause(&mut self) -> io::Result<(OwnedFd, Vec<u8>)> {
        self.stop();
        let socket = self.stream.as_fd().try_clone_to_owned()?;
        Ok((socket, locked(&self.unread).clone()))
    }

    /// The other process did not come to it. Nothing, if it is listened to anyway: two who listen
    /// would tear each other's messages.
    pub(crate) fn resume(&mut self) {
        if self.listening.is_none() {
            let listening = start(self.pid, &self.stream, &self.unread, &self.heard);
            self.listening = Some(listening);
        }
    }

    fn stop(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(
    pid: u32,
    stream: &Arc<UnixStream>,
    unread: &Arc<Mutex<Vec<u8>>>,
    heard: &mpsc::UnboundedSender<FromPredecessor>,
) -> AbortHandle {
    let (stream, unread, heard) = (Arc::clone(stream), Arc::clone(unread), heard.clone());
    let listen = async move {
        // It waits for bytes and for nothing else: whenever it is stopped, what was heard is told.
        while stream.readable().await.is_ok() && hear(pid, &stream, &unread, &heard).is_ok() {}
        // Its sessions have their places as long as it lives, whether we understand it or not.
        end_of(pid).await;
        // The world is gone only when the process ends.
        let _ = heard.send(FromPredecessor::Gone { pid });
    };
    tokio::spawn(listen).abort_handle()
}

/// At once where the system cannot tell.
async fn end_of(pid: u32) {
    let Some(process) = Process::find(pid).into_descriptor() else {
        return;
    };
    #[expect(unsafe_code, reason = "tokio has no safe form for descriptors")]
    // SAFETY: the descriptor is this value's own, and stays open and the same as long as it lives.
    let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) };
    if let Ok(process) = process {
        // An error is a system that cannot tell.
        let _ = process.readable().await;
    }
}

fn hear(
    pid: u32,
    stream: &UnixStream,
    unread: &Mutex<Vec<u8>>,
    heard: &mpsc::UnboundedSender<FromPredecessor>,
) -> io::Result<()> {
    let mut unread = locked(unread);
    match stream.try_read_buf(&mut *unread) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
        _ => {}
    }
    let not_understood = |error: &io::Error| {
        tracing::error!(
            "process {pid} is not understood: {error}; its sessions count as they did last until \
             it ends"
        );
    };
    while let Some(message) = next_in(&mut unread).inspect_err(not_understood)? {
        if let FromOld::Report(report) = message {
            // As above.
            let _ = heard.send(FromPredecessor::Report { pid, report });
        }
    }
    Ok(())
}

fn locked(unread: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    unread.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

//! The line to a process that drains: it can be handed on, in the middle of a word if need be.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::channel::next_in;
use super::state::{FromOld, Report};

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
    listening: AbortHandle,
}

impl Line {
    pub(crate) fn new(
        pid: u32,
        socket: OwnedFd,
        unread: Vec<u8>,
        heard: mpsc::UnboundedSender<FromPredecessor>,
    ) -> io::Result<Line> {
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true)?;
        let stream = Arc::new(UnixStream::from_std(stream)?);
        let unread = Arc::new(Mutex::new(unread));
        let listening = start(pid, &stream, &unread, &heard);
        Ok(Line {
            pid,
            stream,
            unread,
            heard,
            listening,
        })
    }

    /// Stops listening, so that another process may: the descriptor, and what it must know.
    pub(crate) fn pause(&self) -> io::Result<(OwnedFd, Vec<u8>)> {
        self.listening.abort();
        let socket = self.stream.as_fd().try_clone_to_owned()?;
        Ok((socket, locked(&self.unread).clone()))
    }

    /// The other process did not come to it.
    pub(crate) fn resume(&mut self) {
        self.listening = start(self.pid, &self.stream, &self.unread, &self.heard);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.listening.abort();
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
        // The world is gone only when the process ends.
        let _ = heard.send(FromPredecessor::Gone { pid });
    };
    tokio::spawn(listen).abort_handle()
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
    while let Some(message) = next_in(&mut unread)? {
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

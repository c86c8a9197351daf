//! The connection to the draining process: its reports, and the messages to it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::channel::{message, next_in};
use super::process::Process;
use super::state::{DrainReport, NewProcessMessage, OldProcessMessage};

/// A message of the draining process.
#[derive(Debug)]
pub(crate) enum PredecessorEvent {
    /// Report of its sessions, permits and counters.
    Report(Box<DrainReport>),
    /// Exit of the process.
    Gone,
}

/// Reads what the draining process sends until dropped.
pub(crate) struct PredecessorLink {
    pid: u32,
    stream: Arc<UnixStream>,
    listening: AbortHandle,
}

impl PredecessorLink {
    pub(crate) fn new(
        pid: u32,
        socket: OwnedFd,
        events: mpsc::UnboundedSender<PredecessorEvent>,
    ) -> io::Result<PredecessorLink> {
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true)?;
        let stream = Arc::new(UnixStream::from_std(stream)?);
        let listening = tokio::spawn(listen(pid, Arc::clone(&stream), events));
        Ok(PredecessorLink {
            pid,
            stream,
            listening: listening.abort_handle(),
        })
    }

    /// Reports that this process received a stop signal.
    pub(crate) fn send_stopping(&self) {
        if let Err(error) = self.send(&NewProcessMessage::Stopping) {
            tracing::debug!("cannot send stop notice to process {}: {error}", self.pid);
        }
    }

    /// Requests that the process terminate its sessions now.
    pub(crate) fn end_draining(&self) -> io::Result<()> {
        self.send(&NewProcessMessage::EndDraining)
    }

    /// Sends a message. Fails if the process reads nothing and the socket's buffer is full.
    fn send(&self, content: &NewProcessMessage) -> io::Result<()> {
        let bytes = message(content)?;
        match self.stream.try_write(&bytes)? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

impl Drop for PredecessorLink {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(
    pid: u32,
    stream: Arc<UnixStream>,
    events: mpsc::UnboundedSender<PredecessorEvent>,
) {
    let mut unread = Vec::new();
    while stream.readable().await.is_ok() && receive(pid, &stream, &mut unread, &events).is_ok() {}
    // The process's sessions hold their permits until it exits, whether its reports can be read or
    // not.
    wait_for_exit(pid).await;
    // The receiver is dropped only when this process ends.
    let _ = events.send(PredecessorEvent::Gone);
}

/// Waits until a process has exited. Returns immediately if the system cannot report that.
async fn wait_for_exit(pid: u32) {
    let Some(process) = Process::find(pid).into_descriptor() else {
        return;
    };
    let (exited, exit) = oneshot::channel();
    // Not a blocking task of the runtime, whose end would wait for it.
    let waiter = std::thread::Builder::new().name("predecessor".to_owned());
    let waiting = waiter.spawn(move || {
        // An error means that the system cannot report the exit.
        let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], None);
        // The receiver is gone if this process ends.
        let _ = exited.send(());
    });
    if waiting.is_ok() {
        let _ = exit.await;
    }
}

fn receive(
    pid: u32,
    stream: &UnixStream,
    unread: &mut Vec<u8>,
    events: &mpsc::UnboundedSender<PredecessorEvent>,
) -> io::Result<()> {
    match stream.try_read_buf(unread) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
        _ => {}
    }
    let log_error = |error: &io::Error| {
        tracing::error!(
            "cannot read the session counts of process {pid}: {error}; its last known counts are \
             used until it exits"
        );
    };
    while let Some(message) = next_in(unread).inspect_err(log_error)? {
        if let OldProcessMessage::Report(report) = message {
            // The receiver is dropped only when this process ends.
            let _ = events.send(PredecessorEvent::Report(report));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! Polls both directions of a socket for a session, in the same way on epoll and io_uring.

use std::cell::RefMut;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::{Socket, SocketDriver};
use crate::ring::POOL_BUFFER_BYTES;
use crate::ring::ring_socket::Payload;
use crate::ring::{Buffer, Ring, RingSocket};
use crate::worker::{Poller, Worker};

/// Received bytes, at least one. Their memory is released on drop.
pub struct Chunk<'a>(Memory<'a>);

enum Memory<'a> {
    /// A buffer of the ring.
    Ring(Buffer),
    /// The worker's scratch memory, and the number of bytes in it.
    Scratch(RefMut<'a, Box<[u8]>>, usize),
    /// Separately allocated memory.
    Own(Vec<u8>),
}

impl Chunk<'_> {
    /// Wraps bytes in memory.
    pub fn own(bytes: Vec<u8>) -> Self {
        Self(Memory::Own(bytes))
    }

    /// Returns the bytes in memory of their own, which may be that of [`Worker::take_spare`].
    pub fn into_own(self, worker: &Worker) -> Vec<u8> {
        match self.0 {
            Memory::Own(bytes) => bytes,
            memory => {
                let mut own = worker.take_spare();
                own.extend_from_slice(Chunk(memory).bytes());
                own
            }
        }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Memory::Ring(buffer) => buffer,
            Memory::Scratch(scratch, count) => &scratch[..*count],
            Memory::Own(bytes) => bytes,
        }
    }
}

impl Socket {
    /// Returns the standing requests, opened at first use: relays have none.
    fn standing(&self) -> Option<(&Ring, Rc<RingSocket>)> {
        let SocketDriver::IoUring(ring, port) = &self.driver else {
            return None;
        };
        let mut port = port.borrow_mut();
        let port = port.get_or_insert_with(|| ring.open_port(self.raw.kernel()));
        Some((ring, Rc::clone(port)))
    }

    /// Receives bytes; returns `None` if the peer has ended its sending.
    pub fn poll_chunk<'a>(
        &self,
        worker: &'a Worker,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Chunk<'a>>>> {
        if let Some((ring, port)) = self.standing() {
            return match ring.poll_receive(&port, context) {
                Poll::Ready(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.receive_own(context)
                }
                Poll::Ready(received) => Poll::Ready(
                    received.map(|buffer| buffer.map(|buffer| Chunk(Memory::Ring(buffer)))),
                ),
                Poll::Pending => Poll::Pending,
            };
        }
        let Some(readiness) = self.readiness() else {
            return Poll::Pending;
        };
        while readiness.poll_readable(context).is_ready() {
            let mut scratch = worker.scratch.borrow_mut();
            match self.receive_now(&mut scratch) {
                Ok(0) => return Poll::Ready(Ok(None)),
                Ok(count) => return Poll::Ready(Ok(Some(Chunk(Memory::Scratch(scratch, count))))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Pending
    }

    /// Receives into separate memory while all ring buffers are in use, so that the session makes
    /// progress.
    fn receive_own<'a>(&self, context: &mut Context<'_>) -> Poll<io::Result<Option<Chunk<'a>>>> {
        let mut own = vec![0; POOL_BUFFER_BYTES];
        match self.receive_now(&mut own) {
            Ok(0) => Poll::Ready(Ok(None)),
            Ok(count) => {
                own.truncate(count);
                Poll::Ready(Ok(Some(Chunk::own(own))))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Waits until the next send may begin.
    pub fn poll_sent(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some((ring, port)) = self.standing() {
            return ring.poll_sent(&port, context);
        }
        let Some(readiness) = self.readiness() else {
            return Poll::Pending;
        };
        while readiness.has_unsent() {
            if readiness.poll_writable(context).is_pending() {
                return Poll::Pending;
            }
            readiness.send_unsent()?;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns whether the next send may begin. Unlike after [`Self::poll_sent`], no task may be
    /// woken when it may: for tasks that have nothing to send now.
    pub fn poll_sent_silently(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.standing() {
            Some((ring, port)) => ring.poll_sent_silently(&port, context),
            None => self.poll_sent(context),
        }
    }

    /// Returns whether the kernel has taken all sent bytes.
    pub fn is_sent(&self) -> bool {
        match &self.driver {
            SocketDriver::Epoll(readiness) => !readiness.has_unsent(),
            SocketDriver::IoUring(_, port) => {
                port.borrow().as_ref().is_none_or(|port| !port.is_sending())
            }
        }
    }

    /// Sends received bytes unchanged. The caller must have seen [`Socket::poll_sent`] ready.
    pub fn send_chunk(&self, worker: &Worker, chunk: Chunk<'_>) -> io::Result<()> {
        match (chunk.0, self.standing()) {
            (Memory::Ring(buffer), Some((ring, port))) => {
                ring.start_send(&port, Payload::Ring(buffer))
            }
            (Memory::Own(bytes), _) => self.send_own(worker, bytes),
            (memory, _) => self.send_by_call(Chunk(memory).bytes()),
        }
    }

    /// Sends bytes in memory from [`Worker::take_spare`], which is returned there. The caller must
    /// have seen [`Socket::poll_sent`] ready.
    pub fn send_own(&self, worker: &Worker, bytes: Vec<u8>) -> io::Result<()> {
        match self.standing() {
            Some((ring, port)) if !bytes.is_empty() => ring.start_send(&port, Payload::Own(bytes)),
            Some(_) => {
                worker.keep_spare(bytes);
                Ok(())
            }
            None => {
                let sent = self.send_by_call(&bytes);
                worker.keep_spare(bytes);
                sent
            }
        }
    }

    /// Sends the last bytes, and ends sending in the same segment if the socket takes all of them
    /// now. Otherwise the rest is sent as by [`Self::send_own`]. Returns whether sending has ended.
    /// The caller must have seen [`Socket::poll_sent`] ready.
    pub fn send_last(&self, worker: &Worker, bytes: &[u8]) -> io::Result<bool> {
        let sent = match self.raw.send_before_more(bytes) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if sent == bytes.len() {
            // Fails only if the connection has failed, which the next receive reports.
            let _ = self.end_sending();
            return Ok(true);
        }
        let mut rest = worker.take_spare();
        rest.extend_from_slice(&bytes[sent..]);
        self.send_own(worker, rest)?;
        Ok(false)
    }

    /// Sends by system call, with epoll. Bytes that the socket does not take now are sent when it
    /// does.
    fn send_by_call(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = match self.send_now(bytes) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if let Some(readiness) = self.readiness() {
            readiness.keep_unsent(&self.raw, &bytes[sent..]);
        }
        Ok(())
    }

    /// Watches for data from an idle peer, without waking any task.
    pub fn watch(&self) {
        if let Some((ring, port)) = self.standing() {
            ring.watch(&port);
        } else if let Some(readiness) = self.readiness() {
            readiness.forget_wakers();
        }
    }

    /// Returns whether a watched peer has sent data or has ended.
    pub fn has_arrived(&self) -> bool {
        match &self.driver {
            SocketDriver::Epoll(readiness) => {
                let is_silent = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
                readiness.is_readable()
                    && !self
                        .peek_now(&mut [0])
                        .is_err_and(|error| is_silent(&error))
            }
            SocketDriver::IoUring(_, port) => port
                .borrow()
                .as_ref()
                .is_some_and(|port| port.has_arrived()),
        }
    }

    /// Releases an idle socket for another worker. Returns `None` if its peer has sent data.
    pub async fn withdraw(self, worker: &Worker) -> Option<OwnedFd> {
        if let Some((ring, port)) = self.standing() {
            ring.cancel_receive(&port);
            if port.is_armed() || port.has_arrived() {
                let said = std::future::poll_fn(|context| ring.poll_receive(&port, context)).await;
                // Only this result proves that no data arrived.
                let is_silent =
                    matches!(&said, Err(error) if error.raw_os_error() == Some(libc::ECANCELED));
                if !is_silent {
                    return None;
                }
            }
        }
        if let Poller::Epoll(reactor) = &worker.poller {
            if self.has_arrived() {
                return None;
            }
            reactor.remove(&**self.raw.kernel());
        }
        // Another owner of the descriptor may still exist: a request that the kernel is ending.
        self.raw.kernel().try_clone().ok().map(OwnedFd::from)
    }
}

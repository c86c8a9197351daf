//! Accepts the clients of a listening socket, on either driver.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::net::SocketFlags;

use crate::reactor::{Reactor, Readiness};
use crate::ring::MultishotAccept;
use crate::worker::{Poller, Worker};

/// One worker's accepting from a listening socket, which is non-blocking. It ends on drop; clients
/// that were accepted and not taken are lost then.
pub(crate) enum Accepting<'a> {
    /// Calls accept4(2) when epoll has reported clients.
    Epoll {
        reactor: &'a Reactor,
        socket: Rc<socket2::Socket>,
        readiness: Rc<Readiness>,
    },
    /// Has one standing request at the ring.
    Ring(MultishotAccept<'a>),
}

impl<'a> Accepting<'a> {
    pub(crate) fn start(worker: &'a Worker, socket: &Rc<socket2::Socket>) -> io::Result<Self> {
        Ok(match &worker.poller {
            Poller::Epoll(reactor) => Self::Epoll {
                reactor,
                readiness: reactor.register_listener(socket.as_fd())?,
                socket: Rc::clone(socket),
            },
            Poller::IoUring(ring) => Self::Ring(ring.accept(socket)),
        })
    }

    /// Waits for the next client or a failure; `None`: there will be no more, because `stop` has
    /// no sender any more and the accepted clients were taken, or because of the last failure.
    pub(crate) async fn next(&mut self, stop: &flume::Receiver<()>) -> Option<io::Result<OwnedFd>> {
        let mut stopped = pin!(stop.recv_async());
        poll_fn(|context| {
            if let Poll::Ready(accepted) = self.poll_next(context) {
                return Poll::Ready(accepted);
            }
            if !stop.is_disconnected() && stopped.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            match self {
                Self::Epoll { .. } => Poll::Ready(None),
                Self::Ring(accepting) => {
                    accepting.stop();
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<io::Result<OwnedFd>>> {
        match self {
            Self::Ring(accepting) => accepting.poll_next(context),
            Self::Epoll {
                socket, readiness, ..
            } => {
                while readiness.poll_readable(context).is_ready() {
                    match rustix::net::accept_with(&**socket, SocketFlags::CLOEXEC) {
                        Err(rustix::io::Errno::AGAIN) => readiness.not_readable(),
                        Err(error) => return Poll::Ready(Some(Err(error.into()))),
                        Ok(client) => return Poll::Ready(Some(Ok(client))),
                    }
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Accepting<'_> {
    fn drop(&mut self) {
        if let Self::Epoll {
            reactor,
            socket,
            readiness,
        } = self
        {
            // Other workers have the same socket open, so that a close does not end this.
            reactor.remove(&**socket);
            readiness.forget();
        }
    }
}

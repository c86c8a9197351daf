//! Copies bytes between a client and its server in both directions concurrently. An end of one side
//! is forwarded as an end, a reset as a reset.

mod epoll;
mod proxy_header_guard;
mod ring;

use std::io;

use futures_util::future::try_join;

use crate::engine::live_session::LiveSession;
use crate::engine::worker::{Poller, Worker};
use crate::record::TerminationReason;
use crate::socket::Socket;

/// Bytes per receive after a full receive: large enough that the system calls of a bulk transfer
/// are negligible, small enough that a worker with many of them stays in the cache.
pub(crate) const LARGE_BYTES: usize = 64 * 1024;

/// Number of large receives in a row before the worker's other sessions run.
const LARGE_IN_A_ROW: u32 = 8;

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteDirection {
    FromClient,
    ToClient,
}

/// The side that broke a session, and the error.
pub(crate) enum Broken {
    Client(io::Error),
    Server(io::Error),
    /// A client without permission has sent a PROXY header.
    Forbidden(String),
    /// The server disconnected before any byte was exchanged: another one can still serve the
    /// client.
    Mute(SilentClose),
}

/// A server's disconnect without data, before the client had sent any.
pub(crate) struct SilentClose {
    pub(crate) why: String,
    pub(crate) reset: bool,
}

/// Outcome of a relay.
pub(crate) enum RelayOutcome {
    /// The session has ended, too.
    Over(TerminationReason),
    /// The client has not noticed anything.
    Mute(SilentClose),
}

/// One direction of a session.
pub(crate) struct Direction<'a> {
    pub(crate) way: ByteDirection,
    pub(crate) from: &'a Socket,
    pub(crate) to: &'a Socket,
    pub(crate) live: &'a LiveSession,
    pub(crate) worker: &'a Worker,
    /// True if the first bytes must not begin a PROXY header: this client may not send one.
    pub(crate) guarded: bool,
}

impl Direction<'_> {
    fn receive_failed(&self, error: io::Error) -> Broken {
        match self.way {
            ByteDirection::FromClient => Broken::Client(error),
            ByteDirection::ToClient if self.live.may_retry() => Broken::Mute(SilentClose {
                why: error.to_string(),
                reset: true,
            }),
            ByteDirection::ToClient => Broken::Server(error),
        }
    }

    fn send_failed(&self, error: io::Error) -> Broken {
        match self.way {
            ByteDirection::FromClient => Broken::Server(error),
            ByteDirection::ToClient => Broken::Client(error),
        }
    }

    fn count(&self, bytes: usize) {
        self.live.count_bytes(self.worker, self.way, bytes as u64);
    }

    fn counted(&self) -> u64 {
        match self.way {
            ByteDirection::FromClient => self.live.from_client.get(),
            ByteDirection::ToClient => self.live.to_client.get(),
        }
    }

    /// Ends the sending to the receiver after the sender has ended its own.
    fn end(&self) -> Result<(), Broken> {
        // The kernel reports a reset to one call only, which may have been the other direction's
        // send.
        if !self.live.half_closed() && self.from.was_reset() {
            return Err(self.receive_failed(io::ErrorKind::ConnectionReset.into()));
        }
        if self.way == ByteDirection::ToClient && self.live.may_retry() {
            let why = "closed without sending data".to_owned();
            return Err(Broken::Mute(SilentClose { why, reset: false }));
        }
        self.live.record_end(self.way);
        if self.live.both_ended() {
            // The close that follows reports the same.
            return Ok(());
        }
        self.to
            .end_sending()
            .map_err(|error| self.send_failed(error))
    }

    /// Sends the bytes that the socket did not take immediately. They are in memory of this
    /// process, so that no buffer of the ring waits for a slow reader.
    async fn send_rest(&self, mut rest: &[u8]) -> Result<(), Broken> {
        while !rest.is_empty() {
            match self.to.send_now(rest) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    self.live.progressed(self.worker);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.live.set_stalled(true);
                    let ready = self.to.writable().await;
                    self.live.set_stalled(false);
                    ready.map_err(|error| self.send_failed(error))?;
                }
                Err(error) => return Err(self.send_failed(error)),
            }
        }
        Ok(())
    }

    async fn run(&self) -> Result<(), Broken> {
        if self.guarded {
            proxy_header_guard::first_bytes(self).await?;
        }
        let Poller::IoUring(ring) = &self.worker.poller else {
            return epoll::copy(self).await;
        };
        // The first bytes are never received through the ring: if the server disconnects without
        // data, the client's direction is canceled, and a receive in progress would lose them.
        ring::copy(self, ring).await
    }

    /// Copies with large buffers of this process for as long as receives fill them. Returns true at
    /// the end.
    async fn copy_large(&self) -> Result<bool, Broken> {
        let mut buffer = self.worker.large_buffer();
        let mut in_a_row = 0;
        loop {
            match self.from.receive_now(&mut buffer) {
                Ok(0) => return self.end().map(|()| true),
                Ok(count) => {
                    self.count(count);
                    self.send_rest(&buffer[..count]).await?;
                    if count < LARGE_BYTES / 8 {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(self.receive_failed(error)),
            }
            in_a_row += 1;
            if in_a_row % LARGE_IN_A_ROW == 0 {
                yield_now().await;
            }
        }
    }
}

/// Relays until both sides have ended, or one has broken.
pub(crate) async fn relay(
    client: &Socket,
    server: &Socket,
    live: &LiveSession,
    worker: &Worker,
    guarded: bool,
) -> RelayOutcome {
    let up = Direction {
        way: ByteDirection::FromClient,
        from: client,
        to: server,
        live,
        worker,
        guarded,
    };
    let down = Direction {
        way: ByteDirection::ToClient,
        from: server,
        to: client,
        live,
        worker,
        guarded: false,
    };
    let ending = match try_join(up.run(), down.run()).await {
        Ok(_) if live.client_ended_first() => {
            return RelayOutcome::Over(TerminationReason::ClientClosed);
        }
        Ok(_) => return RelayOutcome::Over(TerminationReason::ServerClosed),
        Err(Broken::Mute(mute)) => return RelayOutcome::Mute(mute),
        Err(Broken::Client(error)) => TerminationReason::ResetByClient(error.to_string()),
        Err(Broken::Server(error)) => TerminationReason::ResetByServer(error.to_string()),
        Err(Broken::Forbidden(what)) => TerminationReason::ProxyHeader(what),
    };
    client.reset_on_close();
    server.reset_on_close();
    RelayOutcome::Over(ending)
}

/// Yields to the worker's other tasks.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

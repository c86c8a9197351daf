//! Copies bytes between a client and its server in both directions concurrently. An end of one side
//! is forwarded as an end, a reset as a reset.

mod epoll;
mod opening;
mod ring;

use std::io;

use futures_util::future::try_join;

pub use opening::{Opening, OpeningCheck};

use crate::socket::Socket;
use crate::timers::yield_now;
use crate::worker::{LARGE_BYTES, Poller, Worker};

/// Number of large receives in a row before the worker's other tasks run.
const LARGE_IN_A_ROW: u32 = 8;

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteDirection {
    /// Bytes of the client, to the server.
    FromClient,
    /// Bytes of the server, to the client.
    ToClient,
}

/// The session of a relay: it counts, and knows which sides have ended.
pub trait RelaySession {
    /// Counts received bytes.
    fn count(&self, direction: ByteDirection, bytes: u64);

    /// Returns the number of bytes that were counted.
    fn counted(&self, direction: ByteDirection) -> u64;

    /// Records that a slow reader has taken some of the bytes that wait for it.
    fn progressed(&self);

    /// Records that one direction begins or ceases to wait for a slow reader.
    fn set_stalled(&self, is_stalled: bool);

    /// Records that the sender of a direction has ended.
    fn record_end(&self, direction: ByteDirection);

    /// Returns whether exactly one side has ended.
    fn half_closed(&self) -> bool;

    /// Returns whether both sides have ended.
    fn both_ended(&self) -> bool;

    /// Returns whether another server could still serve the client, if this one disconnects now.
    fn may_retry(&self) -> bool;
}

/// Reason why a relay has stopped early.
pub enum RelayError {
    /// The client's connection has failed.
    Client(io::Error),
    /// The server's connection has failed.
    Server(io::Error),
    /// The client's first bytes are not allowed.
    Forbidden(String),
    /// The server disconnected before any byte was exchanged: another one can still serve the
    /// client.
    Silent(SilentClose),
}

/// A server's disconnect without data, before the client had sent any.
pub struct SilentClose {
    /// Description of the disconnect.
    pub why: String,
    /// True if the connection was reset rather than ended.
    pub reset: bool,
}

/// One direction of a session.
struct Direction<'a, S> {
    way: ByteDirection,
    from: &'a Socket,
    to: &'a Socket,
    session: &'a S,
    worker: &'a Worker,
    /// Check of the first bytes.
    opening: Option<&'a OpeningCheck<'a>>,
}

impl<S: RelaySession> Direction<'_, S> {
    fn receive_failed(&self, error: io::Error) -> RelayError {
        match self.way {
            ByteDirection::FromClient => RelayError::Client(error),
            ByteDirection::ToClient if self.session.may_retry() => {
                RelayError::Silent(SilentClose {
                    why: error.to_string(),
                    reset: true,
                })
            }
            ByteDirection::ToClient => RelayError::Server(error),
        }
    }

    fn send_failed(&self, error: io::Error) -> RelayError {
        match self.way {
            ByteDirection::FromClient => RelayError::Server(error),
            ByteDirection::ToClient => RelayError::Client(error),
        }
    }

    fn count(&self, bytes: usize) {
        self.session.count(self.way, bytes as u64);
    }

    fn counted(&self) -> u64 {
        self.session.counted(self.way)
    }

    /// Ends the sending to the receiver after the sender has ended its own.
    fn end(&self) -> Result<(), RelayError> {
        // The kernel reports a reset to one call only, which may have been the other direction's
        // send.
        if !self.session.half_closed() && self.from.was_reset() {
            return Err(self.receive_failed(io::ErrorKind::ConnectionReset.into()));
        }
        if self.way == ByteDirection::ToClient && self.session.may_retry() {
            let why = "closed without sending data".to_owned();
            return Err(RelayError::Silent(SilentClose { why, reset: false }));
        }
        self.session.record_end(self.way);
        if self.session.both_ended() {
            // The close that follows reports the same.
            return Ok(());
        }
        self.to
            .end_sending()
            .map_err(|error| self.send_failed(error))
    }

    /// Sends the bytes that the socket did not take immediately. They are in memory of this
    /// process, so that no buffer of the ring waits for a slow reader.
    async fn send_rest(&self, mut rest: &[u8]) -> Result<(), RelayError> {
        while !rest.is_empty() {
            match self.to.send_now(rest) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    self.session.progressed();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.session.set_stalled(true);
                    let ready = self.to.writable().await;
                    self.session.set_stalled(false);
                    ready.map_err(|error| self.send_failed(error))?;
                }
                Err(error) => return Err(self.send_failed(error)),
            }
        }
        Ok(())
    }

    async fn run(&self) -> Result<(), RelayError> {
        if let Some(check) = self.opening {
            opening::forward(self, check).await?;
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
    async fn copy_large(&self) -> Result<bool, RelayError> {
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

/// Relays until both sides have ended, or returns the reason for stopping early: both sockets are
/// then reset when they are closed, except after a silent close of the server.
pub async fn relay(
    worker: &Worker,
    client: &Socket,
    server: &Socket,
    session: &impl RelaySession,
    opening: Option<&OpeningCheck<'_>>,
) -> Result<(), RelayError> {
    let up = Direction {
        way: ByteDirection::FromClient,
        from: client,
        to: server,
        session,
        worker,
        opening,
    };
    let down = Direction {
        way: ByteDirection::ToClient,
        from: server,
        to: client,
        session,
        worker,
        opening: None,
    };
    let ended = try_join(up.run(), down.run()).await.map(|_| ());
    if matches!(&ended, Err(error) if !matches!(error, RelayError::Silent(_))) {
        client.reset_on_close();
        server.reset_on_close();
    }
    ended
}

#[cfg(test)]
mod tests;

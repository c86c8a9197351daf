//! Copies bytes between a client and its server, both ways at once, with each side's end carried
//! to the other as what it was: an end as an end, a reset as a reset.

mod epoll;
mod proxy_header_guard;
mod ring;

use std::io;

use futures_util::future::try_join;

use crate::engine::live_session::LiveSession;
use crate::engine::worker::{Poller, Worker};
use crate::record::TerminationReason;
use crate::socket::Socket;

/// Bytes per receive once a receive was full: large enough for a bulk transfer's system calls to
/// vanish, small enough that a worker with many of them stays in the cache.
pub(crate) const LARGE_BYTES: usize = 64 * 1024;

/// Large receives in a row before the other sessions of the worker get their turn.
const LARGE_IN_A_ROW: u32 = 8;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteDirection {
    FromClient,
    ToClient,
}

/// Who broke a session, and how.
pub(crate) enum Broken {
    Client(io::Error),
    Server(io::Error),
    /// What a stranger sent instead of his own bytes.
    Forbidden(String),
    /// The server left before a byte went either way: another one can still serve the client.
    Mute(SilentClose),
}

/// A server that left without a word, before the client had said one.
pub(crate) struct SilentClose {
    pub(crate) why: String,
    pub(crate) reset: bool,
}

/// How a relay came to its end.
pub(crate) enum RelayOutcome {
    /// And the session with it.
    Over(TerminationReason),
    /// The client has noticed nothing.
    Mute(SilentClose),
}

/// One direction of a session.
pub(crate) struct Direction<'a> {
    pub(crate) way: ByteDirection,
    pub(crate) from: &'a Socket,
    pub(crate) to: &'a Socket,
    pub(crate) live: &'a LiveSession,
    pub(crate) worker: &'a Worker,
    /// Look for a PROXY header in the first bytes: this client may not send one.
    pub(crate) guarded: bool,
}

impl Direction<'_> {
    fn receive_failed(&self, error: io::Error) -> Broken {
        match self.way {
            ByteDirection::FromClient => Broken::Client(error),
            ByteDirection::ToClient if self.live.nothing_moved() => Broken::Mute(SilentClose {
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
        self.live.moved(self.worker, self.way, bytes as u64);
    }

    fn counted(&self) -> u64 {
        match self.way {
            ByteDirection::FromClient => self.live.from_client.get(),
            ByteDirection::ToClient => self.live.to_client.get(),
        }
    }

    /// The sender has ended its sending: so do we, towards the receiver.
    fn end(&self) -> Result<(), Broken> {
        // Of a reset the kernel tells one call only. The other way's send may have been that one.
        if !self.live.half_closed() && self.from.was_reset() {
            return Err(self.receive_failed(io::ErrorKind::ConnectionReset.into()));
        }
        if self.way == ByteDirection::ToClient && self.live.nothing_moved() {
            let why = "closed without sending data".to_owned();
            return Err(Broken::Mute(SilentClose { why, reset: false }));
        }
        self.live.ended_sending(self.way);
        if self.live.both_ended() {
            // The close that comes next says the same.
            return Ok(());
        }
        self.to
            .end_sending()
            .map_err(|error| self.send_failed(error))
    }

    /// Sends what the socket did not take at once. The bytes are in memory of our own, so that no
    /// buffer of the ring waits for a slow reader.
    async fn send_rest(&self, mut rest: &[u8]) -> Result<(), Broken> {
        while !rest.is_empty() {
            match self.to.send_now(rest) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    self.live.progressed(self.worker);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.live.owe(true);
                    let ready = self.to.writable().await;
                    self.live.owe(false);
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
        // The first bytes are never received through the ring: if the server leaves without a word,
        // the client's direction is given up, and a receive under way would lose them.
        ring::copy(self, ring).await
    }

    /// Copies with large buffers of our own for as long as they come back full. True at the end.
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

/// Lets the worker's other tasks have their turn.
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

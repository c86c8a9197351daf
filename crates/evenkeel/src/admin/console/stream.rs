//! A client's connection to the console: whole messages in, bytes out.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Commands are short; nobody is to make us hold more.
pub(super) const MESSAGE_LENGTH_MAX: u32 = 16 * 1024;

/// A client that does not take its answer would hold its place for ever.
const SEND_LIMIT: Duration = Duration::from_secs(10);

pub(super) struct Stream {
    socket: TcpStream,
    received: Vec<u8>,
}

/// Why no message comes; a fault is one of the client's protocol.
pub(super) enum End<Fault> {
    /// It has left, or the connection broke.
    Gone,
    /// It does not keep to the protocol.
    Fault(Fault),
}

impl<Fault> From<io::Error> for End<Fault> {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

impl Stream {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            received: Vec::new(),
        }
    }

    /// Reads one thing whole: `parse` says what it is and how long, or that it is not all here.
    pub(super) async fn take<T, Fault>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, Fault>,
    ) -> Result<T, End<Fault>> {
        loop {
            if let Some((thing, length)) = parse(&self.received).map_err(End::Fault)? {
                self.received.drain(..length);
                return Ok(thing);
            }
            if self.socket.read_buf(&mut self.received).await? == 0 {
                return Err(End::Gone);
            }
        }
    }

    /// Whether bytes are there that nobody has asked for yet.
    pub(super) fn has_more(&self) -> bool {
        !self.received.is_empty()
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(SEND_LIMIT, self.socket.write_all(bytes)).await?
    }
}

//! Reads whole messages from a console client, and sends bytes to it.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum length of a message. Commands are short, and the limit protects memory.
pub(super) const MESSAGE_LENGTH_MAX: u32 = 16 * 1024;

/// Limit for one send: a client that does not read must not hold its permit indefinitely.
const SEND_LIMIT: Duration = Duration::from_secs(10);

pub(super) struct Stream {
    socket: TcpStream,
    received: Vec<u8>,
}

/// Reason why no message was read. `Fault` is the protocol's error.
pub(super) enum End<Fault> {
    /// The client disconnected, or the connection failed.
    Gone,
    /// The client violated the protocol.
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

    /// Reads one message. `parse` returns the message and its length, or `None` while it is
    /// incomplete.
    pub(super) async fn take<T, Fault>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, Fault>,
    ) -> Result<T, End<Fault>> {
        loop {
            if let Some((value, length)) = parse(&self.received).map_err(End::Fault)? {
                self.received.drain(..length);
                return Ok(value);
            }
            if self.socket.read_buf(&mut self.received).await? == 0 {
                return Err(End::Gone);
            }
        }
    }

    /// Returns whether bytes have been received that are not yet parsed.
    pub(super) fn has_more(&self) -> bool {
        !self.received.is_empty()
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(SEND_LIMIT, self.socket.write_all(bytes)).await?
    }
}

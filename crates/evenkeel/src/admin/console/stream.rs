//! A client's connection to the console: whole messages in, bytes out.

use std::io;
use std::time::Duration;

use evenkeel_wire::postgres::frame::{self, Frame};
use evenkeel_wire::postgres::{Fault, Parsed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Commands are short; nobody is to make us hold more.
const MESSAGE_LENGTH_MAX: u32 = 16 * 1024;

/// A client that does not take its answer would hold its place for ever.
const SEND_LIMIT: Duration = Duration::from_secs(10);

pub(super) struct Stream {
    socket: TcpStream,
    received: Vec<u8>,
}

/// Why no message comes.
pub(super) enum End {
    /// It has left, or the connection broke.
    Gone,
    /// It does not keep to the protocol.
    Fault(Fault),
}

impl From<io::Error> for End {
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

    /// Reads one thing whole: `parse` says what it is and how long.
    pub(super) async fn take<T>(&mut self, parse: impl Fn(&[u8]) -> Parsed<T>) -> Result<T, End>
    where
        T: Sized,
    {
        loop {
            match parse(&self.received) {
                Parsed::Frame(thing, length) => {
                    self.received.drain(..length);
                    return Ok(thing);
                }
                Parsed::Incomplete { .. } => self.receive().await?,
                Parsed::Invalid(fault) => return Err(End::Fault(fault)),
            }
        }
    }

    /// The next message: its tag and what follows the header.
    pub(super) async fn message(&mut self) -> Result<(u8, Vec<u8>), End> {
        self.take(|bytes| match frame::frame(bytes, MESSAGE_LENGTH_MAX) {
            Parsed::Frame(Frame { tag, body }, length) => {
                Parsed::Frame((tag, body.to_vec()), length)
            }
            Parsed::Incomplete { need } => Parsed::Incomplete { need },
            Parsed::Invalid(fault) => Parsed::Invalid(fault),
        })
        .await
    }

    async fn receive(&mut self) -> Result<(), End> {
        match self.socket.read_buf(&mut self.received).await? {
            0 => Err(End::Gone),
            _ => Ok(()),
        }
    }

    /// Whether bytes are there that nobody has asked for yet.
    pub(super) fn has_more(&self) -> bool {
        !self.received.is_empty()
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
        let sent = timeout(SEND_LIMIT, self.socket.write_all(bytes)).await;
        sent.map_err(|_| End::Gone)??;
        Ok(())
    }
}

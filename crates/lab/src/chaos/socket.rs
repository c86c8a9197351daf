//! Implements a client's end of a TCP connection, with a limit for every answer.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::failure::Failure;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A connection with a buffer of received bytes.
pub(super) struct Socket {
    pub(super) address: SocketAddr,
    stream: TcpStream,
    /// Bytes that were received and not yet read.
    incoming: Vec<u8>,
    /// Limit for any answer.
    limit: Duration,
}

impl Socket {
    pub(super) fn reach(address: SocketAddr, limit: Duration) -> Result<Socket, Failure> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        stream.set_write_timeout(Some(limit)).map_err(lost)?;
        Ok(Socket {
            address,
            stream,
            incoming: Vec::new(),
            limit,
        })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).map_err(lost)
    }

    /// Returns the bytes that were received and not yet read.
    pub(super) fn incoming(&self) -> &[u8] {
        &self.incoming
    }

    /// Marks the first `length` bytes as read.
    pub(super) fn read_away(&mut self, length: usize) {
        self.incoming.drain(..length);
    }

    /// Returns the deadline of an answer that is awaited from now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Waits for more bytes.
    pub(super) fn receive(&mut self, deadline: Instant) -> Result<(), Failure> {
        let late = || Failure::Late(format!("no answer within {} ms", self.limit.as_millis()));
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        self.stream.set_read_timeout(Some(left)).map_err(lost)?;
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(Failure::Lost("closed".to_owned())),
            Ok(count) => {
                self.incoming.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(late()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(lost(error)),
        }
    }

    /// Returns the limit for any answer.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Sets the limit for answers and returns the previous one.
    pub(super) fn set_limit(&mut self, limit: Duration) -> Duration {
        std::mem::replace(&mut self.limit, limit)
    }

    /// Disconnects abruptly: by a reset or a close.
    pub(super) fn vanish(self, by_reset: bool) {
        if by_reset {
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

/// Returns a value that differs between logins; the lab needs no security.
pub(super) fn nonce<const N: usize>() -> [u8; N] {
    let mut nonce = [0; N];
    let random = File::open("/dev/urandom");
    let _ = random.and_then(|mut file| file.read_exact(&mut nonce));
    nonce
}

fn lost(error: Error) -> Failure {
    Failure::Lost(error.to_string())
}

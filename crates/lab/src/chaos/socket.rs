//! Implements a client's end of a TCP connection, with a timeout for every answer.

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
    /// Maximum time to wait for an answer of the server.
    answer_timeout: Duration,
}

impl Socket {
    pub(super) fn connect(
        address: SocketAddr,
        answer_timeout: Duration,
    ) -> Result<Socket, Failure> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        stream
            .set_write_timeout(Some(answer_timeout))
            .map_err(lost)?;
        Ok(Socket {
            address,
            stream,
            incoming: Vec::new(),
            answer_timeout,
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
    pub(super) fn consume(&mut self, length: usize) {
        self.incoming.drain(..length);
    }

    /// Returns the deadline of an answer that is awaited from now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.answer_timeout
    }

    /// Waits for more bytes.
    pub(super) fn receive(&mut self, deadline: Instant) -> Result<(), Failure> {
        let timed_out = || {
            Failure::TimedOut(format!(
                "no answer within {} ms",
                self.answer_timeout.as_millis()
            ))
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timed_out());
        }
        self.stream.set_read_timeout(Some(left)).map_err(lost)?;
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(Failure::Lost("closed".to_owned())),
            Ok(count) => {
                self.incoming.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(timed_out()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(lost(error)),
        }
    }

    /// Returns the maximum time to wait for an answer.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// Sets the maximum time to wait for an answer and returns the previous one.
    pub(super) fn set_answer_timeout(&mut self, answer_timeout: Duration) -> Duration {
        std::mem::replace(&mut self.answer_timeout, answer_timeout)
    }

    /// Disconnects abruptly: by a reset or a close.
    pub(super) fn abort(self, with_reset: bool) {
        if with_reset {
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

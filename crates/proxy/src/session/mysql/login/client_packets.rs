//! Exchanges packets with a client during its login, when only few, small packets in sequence are
//! accepted.

use evenkeel_engine::stream::Stream;
use evenkeel_tls::{Acceptor, Names};
use evenkeel_wire::mysql::frame::{self, HEADER_LENGTH, PRE_AUTH_LENGTH_MAX};
use evenkeel_wire::mysql::{Parsed, ProtocolError};
use zeroize::{Zeroize, Zeroizing};

use super::super::error_reply::ErrorReply;
use super::{LoginError, error_replies};
use crate::error_catalog;
use crate::session::login_context::LoginClient;
use crate::upstream::connect_error::ErrorCode;
use crate::worker::Worker;

/// Maximum total length in bytes that a client may send in a login. The longest valid one has an
/// SSLRequest, a response with attributes, and a password, possibly twice.
const HEARD_MAX: usize = 3 * PRE_AUTH_LENGTH_MAX as usize;

/// Client side of a login.
pub(super) struct ClientPackets {
    stream: Stream,
    /// Received bytes that have not been processed.
    bytes: Vec<u8>,
    received: usize,
    /// Sequence number of the next packet in either direction.
    next: u8,
}

impl ClientPackets {
    /// Creates the client side. `next`: the sequence number of the first packet to send. `bytes`:
    /// input already received.
    pub(super) fn new(stream: Stream, next: u8, bytes: Vec<u8>) -> Self {
        Self {
            stream,
            bytes,
            received: 0,
            next,
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.stream.is_encrypted()
    }

    /// Returns the client's name from its certificate.
    pub(super) fn client_name(&self) -> Option<String> {
        self.stream.client_name()
    }

    /// Returns the names in the client's certificate, signed by a trusted authority; `None` if the
    /// client sent none.
    pub(super) fn certificate_names(&self) -> Option<Names> {
        self.stream.client_certificate_names()
    }

    /// Returns the hash of the certificate that was sent to the client.
    pub(super) fn fingerprint(&self) -> Option<[u8; 32]> {
        self.stream.fingerprint()
    }

    /// Returns the sequence number of the next packet.
    pub(super) fn next(&self) -> u8 {
        self.next
    }

    /// Sends whole packets; the first has the next sequence number.
    pub(super) async fn send(&mut self, worker: &Worker, packets: &[u8]) -> Result<(), LoginError> {
        self.next = self.next.wrapping_add(count(packets));
        self.stream.send(worker, packets).await?;
        Ok(())
    }

    /// Returns the payload of the client's next packet.
    pub(super) async fn packet(
        &mut self,
        worker: &Worker,
    ) -> Result<Zeroizing<Vec<u8>>, LoginError> {
        loop {
            let fault = match frame::frame(&self.bytes, PRE_AUTH_LENGTH_MAX) {
                Parsed::Frame(found, length) if found.sequence == self.next => {
                    let payload = Zeroizing::new(found.payload.to_vec());
                    self.pass(length)?;
                    self.next = self.next.wrapping_add(1);
                    return Ok(payload);
                }
                Parsed::Frame(found, _) => ProtocolError::Sequence(found.sequence),
                Parsed::Invalid(fault) => fault,
                Parsed::Incomplete { .. } => {
                    let is_more = self.stream.receive(worker, &mut self.bytes).await?;
                    if !is_more {
                        return Err(LoginError::Disconnected);
                    }
                    continue;
                }
            };
            // The sequence number of a reply follows that of the packet it answers.
            if let Some(sequence) = self.bytes.get(HEADER_LENGTH - 1) {
                self.next = sequence.wrapping_add(1);
            }
            return Err(error_replies::of_fault(fault).into());
        }
    }

    /// Wipes processed bytes, which may contain a password.
    fn pass(&mut self, length: usize) -> Result<(), LoginError> {
        let rest = self.bytes.split_off(length);
        self.bytes.zeroize();
        self.bytes = rest;
        self.received += length;
        match self.received > HEARD_MAX {
            true => Err(ErrorReply::new(&error_catalog::BAD_HANDSHAKE).into()),
            false => Ok(()),
        }
    }

    /// Switches to TLS after an SSLRequest, which has no reply. Injected plaintext after the
    /// SSLRequest is not valid TLS, and ends the connection.
    pub(super) async fn encrypt(
        &mut self,
        worker: &Worker,
        acceptor: &Acceptor,
    ) -> Result<(), LoginError> {
        let channel = acceptor.accept(&[]).map_err(|_| LoginError::Disconnected)?;
        self.stream.encrypt(channel);
        let cipher = std::mem::take(&mut self.bytes);
        let shaken = self.stream.shake_hands(worker, &cipher, &mut self.bytes);
        shaken.await.map_err(|_| LoginError::Disconnected)
    }

    /// Returns the stream, and the input after the last login packet, which belongs to the session.
    pub(super) fn into_parts(self) -> (Stream, Vec<u8>) {
        (self.stream, self.bytes)
    }
}

impl LoginClient for ClientPackets {
    type Code = ErrorCode;

    async fn send_rejection(&mut self, worker: &Worker, error_reply: &ErrorReply) {
        let mut out = Vec::new();
        error_reply.write(self.next, &mut out);
        self.stream.send_final(worker, &out).await;
    }
}

fn count(packets: &[u8]) -> u8 {
    let mut rest = packets;
    let mut count = 0_u8;
    while let Parsed::Frame(_, length) = frame::frame(rest, u32::MAX) {
        count = count.wrapping_add(1);
        rest = rest.get(length..).unwrap_or_default();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn packets_are_counted() {
        assert_eq!(count(b""), 0);
        assert_eq!(count(b"\x01\0\0\x02\x03\x03\0\0\x03abc"), 2);
    }
}

//! Runs one connection's TLS: decrypts received and encrypts sent bytes, without access to a
//! socket.

use std::{mem, sync::Arc};

use rustls::{
    CertificateError, CommonState, Error, HandshakeKind,
    client::UnbufferedClientConnection,
    pki_types::UnixTime,
    server::UnbufferedServerConnection,
    unbuffered::{
        ConnectionState, EncodeError, EncodeTlsData, EncryptError, ReadTraffic, UnbufferedStatus,
        WriteTraffic,
    },
};

use super::certificate::{self, Hashes};
use super::{ChannelError, ClientPolicy, Names};

/// Maximum number of bytes that wait for their continuation. A record has at most 18 kB; handshake
/// messages may span several, but each comes once and takes 1 to 10 kB, mostly certificates.
pub(super) const PENDING_BYTES_MAX: usize = 64 << 10;

/// Maximum payload of a record, in bytes.
const RECORD_BYTES_MAX: usize = 16 << 10;
/// Upper limit of a record's overhead, in bytes.
const RECORD_EXTRA_BYTES: usize = 40;

/// The TLS of one connection.
///
/// An idle one holds no buffers. After a [`ChannelError`], or the peer's `close_notify`, it
/// produces no new data, but the output of [`Channel::take_output`] should be sent.
pub struct Channel {
    connection: Connection,
    /// Beginning of an incomplete record or message.
    pending: Vec<u8>,
    /// Output to send next: handshakes, alerts, key updates.
    output: Vec<u8>,
    must_name_protocol: bool,
    /// Policy of client certificates under which an HTTP client was accepted.
    policy: Option<ClientPolicy>,
    /// Hashes of the own certificate, towards clients.
    hashes: Option<Arc<Hashes>>,
    is_closed_by_peer: bool,
    is_closed_by_us: bool,
    has_failed: bool,
}

/// State of a channel after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// True after the handshake: plaintext may flow both ways.
    pub is_established: bool,
    /// True after the peer's close_notify; its data is complete.
    pub is_closed: bool,
    /// True if [`Channel::take_output`] has data to send.
    pub has_output: bool,
}

/// The two sides of the library, boxed since they are large and a session is moved.
enum Connection {
    /// A client's connection.
    OfClient(Box<UnbufferedServerConnection>),
    /// A connection to a server.
    ToServer(Box<UnbufferedClientConnection>),
}

impl Channel {
    pub(super) fn of_client(
        connection: UnbufferedServerConnection,
        hashes: Option<Arc<Hashes>>,
        must_name_protocol: bool,
    ) -> Self {
        Self {
            hashes,
            must_name_protocol,
            ..Self::new(Connection::OfClient(Box::new(connection)))
        }
    }

    pub(super) fn to_server(connection: UnbufferedClientConnection) -> Result<Self, ChannelError> {
        let mut channel = Self::new(Connection::ToServer(Box::new(connection)));
        channel.receive(&[], &mut Vec::new())?;
        Ok(channel)
    }

    fn new(connection: Connection) -> Self {
        Self {
            connection,
            pending: Vec::new(),
            output: Vec::new(),
            must_name_protocol: false,
            policy: None,
            hashes: None,
            is_closed_by_peer: false,
            is_closed_by_us: false,
            has_failed: false,
        }
    }

    /// Sets the policy under which the client is accepted.
    pub(super) fn under(self, policy: ClientPolicy) -> Self {
        Self {
            policy: Some(policy),
            ..self
        }
    }

    /// Returns the policy of client certificates under which an HTTP client was accepted.
    pub fn policy(&self) -> Option<&ClientPolicy> {
        self.policy.as_ref()
    }

    /// Decrypts bytes from the socket and appends the plaintext to `plain`. Bytes after the peer's
    /// `close_notify` are ignored.
    pub fn receive(
        &mut self,
        cipher: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Progress, ChannelError> {
        if self.has_failed {
            return Err(ChannelError::NotOpen);
        }
        if self.is_closed_by_peer {
            return Ok(self.progress());
        }
        let plain_before = plain.len();
        let decrypted = self.decrypt(cipher, plain);
        if decrypted.is_err() {
            self.has_failed = true;
            self.pending = Vec::new();
            plain.truncate(plain_before);
        }
        decrypted
    }

    /// Encrypts for the socket, after earlier output. Fails before the handshake is complete and
    /// after the end.
    pub fn send(&mut self, plain: &[u8], cipher: &mut Vec<u8>) -> Result<(), ChannelError> {
        if self.is_handshaking() || self.is_closed_by_us || self.has_failed {
            return Err(ChannelError::NotOpen);
        }
        self.write(ChannelOperation::Encrypt(plain), cipher)
    }

    /// Appends output other than data: handshakes, alerts, key updates.
    pub fn take_output(&mut self, cipher: &mut Vec<u8>) {
        cipher.append(&mut self.output);
        self.output = Vec::new();
    }

    /// Sends close_notify; before the end of the handshake there is none.
    pub fn close(&mut self, cipher: &mut Vec<u8>) {
        if self.is_handshaking() || self.is_closed_by_us || self.has_failed {
            return self.take_output(cipher);
        }
        // A close_notify that cannot be encrypted is omitted: the socket's end follows anyway.
        let _ = self.write(ChannelOperation::Close, cipher);
        self.is_closed_by_us = true;
    }

    /// Checks that the end of the socket was announced.
    pub fn ended(&self) -> Result<(), ChannelError> {
        match self.is_closed_by_peer {
            true => Ok(()),
            false => Err(ChannelError::Truncated),
        }
    }

    /// Returns whether no data can flow yet.
    pub fn is_handshaking(&self) -> bool {
        self.state().is_handshaking()
    }

    /// Returns whether the peer has sent close_notify.
    pub fn is_closed(&self) -> bool {
        self.is_closed_by_peer
    }

    /// Returns whether no bytes are incomplete or waiting to be sent: the connection may be
    /// released.
    pub fn is_at_border(&self) -> bool {
        self.pending.is_empty() && self.output.is_empty()
    }

    /// Returns whether the session is new or resumed, once that is known.
    #[cfg(test)]
    pub(super) fn handshake_kind(&self) -> Option<HandshakeKind> {
        self.state().handshake_kind()
    }

    /// Returns the common name in a client's verified certificate.
    pub fn client_name(&self) -> Option<String> {
        match self.connection {
            Connection::OfClient(_) => certificate::common_name(self.peer_certificate()?),
            Connection::ToServer(_) => None,
        }
    }

    /// Returns the names in a client's certificate, as MySQL servers write them.
    pub fn client_certificate_names(&self) -> Option<Names> {
        match self.connection {
            Connection::OfClient(_) => certificate::names(self.peer_certificate()?),
            Connection::ToServer(_) => None,
        }
    }

    /// Returns the hash of the server's certificate (the own one towards clients) for SCRAM channel
    /// binding; `None` if its kind of signature has no such hash.
    pub fn end_point(&self) -> Option<Vec<u8>> {
        match self.connection {
            Connection::OfClient(_) => self.hashes.as_ref()?.end_point.clone(),
            Connection::ToServer(_) => certificate::end_point(self.peer_certificate()?),
        }
    }

    /// Returns the SHA-256 of the certificate sent to a client.
    pub fn fingerprint(&self) -> Option<[u8; 32]> {
        Some(self.hashes.as_ref()?.sha256)
    }

    /// Returns the negotiated ALPN protocol, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.state().alpn_protocol()
    }

    /// Returns the version as in PostgreSQL's `pg_stat_ssl`; empty before it is negotiated.
    pub fn version(&self) -> &'static str {
        match self.state().protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "",
        }
    }

    /// Returns the suite's registered name; empty before it is negotiated.
    pub fn cipher(&self) -> String {
        let suite = self.state().negotiated_cipher_suite();
        let name = suite.and_then(|suite| suite.suite().as_str());
        name.unwrap_or_default().replacen("TLS13_", "TLS_", 1)
    }

    fn peer_certificate(&self) -> Option<&rustls::pki_types::CertificateDer<'static>> {
        self.state().peer_certificates()?.first()
    }

    fn state(&self) -> &CommonState {
        match &self.connection {
            Connection::OfClient(connection) => connection,
            Connection::ToServer(connection) => connection,
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            is_established: !self.is_handshaking(),
            is_closed: self.is_closed_by_peer,
            has_output: !self.output.is_empty(),
        }
    }

    fn decrypt(&mut self, cipher: &[u8], plain: &mut Vec<u8>) -> Result<Progress, ChannelError> {
        let was_handshaking = self.is_handshaking();
        self.pending.extend_from_slice(cipher);
        let mut output = mem::take(&mut self.output);
        let processed = self.process(&mut ChannelOperation::Read(plain), &mut output);
        self.output = output;
        processed?;
        if was_handshaking && !self.is_handshaking() {
            self.check_handshake()?;
        }
        match self.pending.len() > PENDING_BYTES_MAX {
            true => Err(ChannelError::Overlong(PENDING_BYTES_MAX)),
            false => Ok(self.progress()),
        }
    }

    /// Checks what the library does not, at the end of the handshake.
    fn check_handshake(&self) -> Result<(), ChannelError> {
        if self.must_name_protocol && self.alpn().is_none() {
            return Err(ChannelError::NoAlpn);
        }
        let Connection::OfClient(connection) = &self.connection else {
            return Ok(());
        };
        // A resumed session has the certificate of the first one, which may have expired since.
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        if let Some(certificate) = self.peer_certificate().filter(|_| is_resumed)
            && !certificate::is_valid_at(certificate, UnixTime::now())
        {
            let expired = Error::InvalidCertificate(CertificateError::Expired);
            return Err(ChannelError::WithClient(expired));
        }
        Ok(())
    }

    fn write(
        &mut self,
        mut operation: ChannelOperation<'_>,
        cipher: &mut Vec<u8>,
    ) -> Result<(), ChannelError> {
        self.take_output(cipher);
        let written = self.process(&mut operation, cipher);
        self.has_failed |= written.is_err();
        written
    }

    /// Runs the library's steps until it needs more bytes or the operation is complete; discards
    /// processed bytes.
    fn process(
        &mut self,
        operation: &mut ChannelOperation<'_>,
        output: &mut Vec<u8>,
    ) -> Result<(), ChannelError> {
        let mut position = 0;
        let ended = loop {
            match self.step(&mut position, operation, output) {
                Ok(Step::Again) => {}
                Ok(Step::PeerClosed) => self.is_closed_by_peer = true,
                Ok(Step::Done) => break Ok(()),
                Err(error) => {
                    // An alert notifies the peer; further calls would only fail again.
                    while self.state().wants_write() {
                        if self.step(&mut position, operation, output).is_err() {
                            break;
                        }
                    }
                    break Err(self.fault(error));
                }
            }
        };
        if position == self.pending.len() || self.is_closed_by_peer {
            self.pending = Vec::new();
        } else if position > 0 {
            self.pending = self.pending.split_off(position);
        }
        ended
    }

    fn step(
        &mut self,
        position: &mut usize,
        operation: &mut ChannelOperation<'_>,
        output: &mut Vec<u8>,
    ) -> Result<Step, Error> {
        let input = &mut self.pending[*position..];
        let (discard, step) = match &mut self.connection {
            Connection::OfClient(one) => {
                apply_state(one.process_tls_records(input), operation, output)
            }
            Connection::ToServer(one) => {
                apply_state(one.process_tls_records(input), operation, output)
            }
        };
        *position += discard;
        step
    }

    fn fault(&self, error: Error) -> ChannelError {
        match self.connection {
            Connection::OfClient(_) => ChannelError::WithClient(error),
            Connection::ToServer(_) => ChannelError::WithServer(error),
        }
    }
}

/// Operation of a call.
enum ChannelOperation<'a> {
    /// Decrypts into this buffer.
    Read(&'a mut Vec<u8>),
    /// Encrypts these bytes.
    Encrypt(&'a [u8]),
    /// Sends close_notify.
    Close,
}

/// Result of a step of the library.
enum Step {
    /// Data was received or is to be sent; there may be more.
    Again,
    PeerClosed,
    /// No further progress is possible now.
    Done,
}

/// Handles a state of the library; also returns the number of processed bytes.
fn apply_state<Side>(
    status: UnbufferedStatus<'_, '_, Side>,
    operation: &mut ChannelOperation<'_>,
    output: &mut Vec<u8>,
) -> (usize, Result<Step, Error>) {
    let mut discard = status.discard;
    let step = status.state.and_then(|state| match state {
        ConnectionState::ReadTraffic(traffic) => {
            discard += take_records(traffic, operation)?;
            Ok(Step::Again)
        }
        ConnectionState::EncodeTlsData(data) => {
            encode(data, output)?;
            Ok(Step::Again)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::Again)
        }
        ConnectionState::WriteTraffic(mut traffic) => {
            write_traffic(&mut traffic, operation, output)?;
            Ok(Step::Done)
        }
        ConnectionState::PeerClosed => Ok(Step::PeerClosed),
        ConnectionState::BlockedHandshake | ConnectionState::Closed => Ok(Step::Done),
        // Early data, which is not offered, and states of later versions.
        other => Err(Error::General(format!("unexpected state {other:?}"))),
    });
    (discard, step)
}

fn take_records<Side>(
    mut traffic: ReadTraffic<'_, '_, Side>,
    operation: &mut ChannelOperation<'_>,
) -> Result<usize, Error> {
    let mut discard = 0;
    while let Some(record) = traffic.next_record() {
        let record = record?;
        discard += record.discard;
        match operation {
            ChannelOperation::Read(plain) => plain.extend_from_slice(record.payload),
            // All decrypted data was taken when it arrived.
            ChannelOperation::Encrypt(_) | ChannelOperation::Close => {
                return Err(Error::General("unexpected data".to_owned()));
            }
        }
    }
    Ok(discard)
}

fn encode<Side>(mut data: EncodeTlsData<'_, Side>, output: &mut Vec<u8>) -> Result<(), Error> {
    let start = output.len();
    let needed = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => size.required_size,
        Err(EncodeError::AlreadyEncoded) | Ok(_) => 0,
    };
    output.resize(start + needed, 0);
    let written = data.encode(&mut output[start..]);
    output.truncate(start + written.map_err(|e| Error::General(e.to_string()))?);
    Ok(())
}

fn write_traffic<Side>(
    traffic: &mut WriteTraffic<'_, Side>,
    operation: &ChannelOperation<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Error> {
    let start = output.len();
    let bytes = match operation {
        ChannelOperation::Read(_) => return Ok(()),
        ChannelOperation::Encrypt(plain) => plain.len(),
        ChannelOperation::Close => 0,
    };
    let mut capacity = bytes + (bytes / RECORD_BYTES_MAX + 1) * RECORD_EXTRA_BYTES;
    loop {
        output.resize(start + capacity, 0);
        let into = &mut output[start..];
        let written = match operation {
            ChannelOperation::Encrypt(plain) => traffic.encrypt(plain, into),
            ChannelOperation::Read(_) | ChannelOperation::Close => traffic.queue_close_notify(into),
        };
        match written {
            Ok(count) => {
                output.truncate(start + count);
                return Ok(());
            }
            // Key updates precede the data.
            Err(EncryptError::InsufficientSize(size)) if size.required_size > capacity => {
                capacity = size.required_size;
            }
            Err(error) => {
                output.truncate(start);
                return Err(Error::General(error.to_string()));
            }
        }
    }
}

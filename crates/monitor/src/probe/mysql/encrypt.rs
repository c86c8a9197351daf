//! Logs in to a MySQL server within TLS, for a client that logs in without.
//!
//! TLS begins between the server's greeting and the client's response. The request for it is one
//! packet more, so that packets of the login have other sequence numbers on the two sides.

use std::io;

use evenkeel_tls::messages::{NO_TLS, with_server};
use evenkeel_wire::mysql::{
    Parsed, build,
    flags::Capabilities,
    frame::{self, PRE_AUTH_LENGTH_MAX},
    greeting::{self, First},
    startup,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::client::TlsStream;

use crate::probe::{ProbeFailure, Target, messages, stream::Socket, tls::TlsStart};

/// First payload byte of the replies that end a login.
const OK: u8 = 0x00;
const ERROR: u8 = 0xff;

/// Collation utf8mb4.
const COLLATION: u8 = 45;

/// Socket with packets.
pub(crate) struct Packets<S> {
    socket: S,
    /// Received bytes that no packet has been made of.
    bytes: Vec<u8>,
}

/// Sequence number and payload of a packet.
type Packet = (u8, Vec<u8>);

impl<S: Socket> Packets<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self {
            socket,
            bytes: Vec::new(),
        }
    }

    /// Returns the socket after the last packet.
    pub(super) fn into_socket(self) -> S {
        self.socket
    }

    /// Returns the socket for TLS, if no bytes precede it that an attacker may have inserted.
    pub(crate) fn into_quiet_socket(self) -> io::Result<S> {
        match self.bytes.is_empty() {
            true => Ok(self.socket),
            false => Err(io::Error::other(
                "the server sent unencrypted data after its greeting, before TLS",
            )),
        }
    }

    /// Requests TLS, for a connection that ends after the handshake.
    pub(crate) async fn request_tls(&mut self, sequence: u8) -> io::Result<()> {
        let mut request = Vec::new();
        let capabilities = Capabilities::PROTOCOL_41.with(Capabilities::SECURE_CONNECTION);
        build::ssl_request(&mut request, sequence, capabilities, COLLATION);
        self.socket.write_all(&request).await
    }

    /// Returns the next packet. Can be dropped at any time without a loss of bytes.
    pub(crate) async fn next(&mut self) -> io::Result<Packet> {
        loop {
            match frame::frame(&self.bytes, PRE_AUTH_LENGTH_MAX) {
                Parsed::Frame(frame, length) => {
                    let packet = (frame.sequence, frame.payload.to_vec());
                    self.bytes.drain(..length);
                    return Ok(packet);
                }
                Parsed::Invalid(fault) => return Err(io::Error::other(fault.to_string())),
                Parsed::Incomplete { .. } => {}
            }
            if self.socket.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    pub(crate) async fn send(&mut self, sequence: u8, payload: &[u8]) -> io::Result<()> {
        let mut packet = Vec::new();
        build::packet(&mut packet, sequence, |out| out.extend_from_slice(payload));
        self.socket.write_all(&packet).await?;
        self.socket.flush().await
    }
}

/// End of a login at the relay.
pub(super) enum LoginEnd {
    /// The server has replied; its socket follows.
    Replied(Box<TlsStream<Box<dyn Socket>>>),
    /// The client has what it needs to report the end itself.
    Known,
}

/// Relays a login.
pub(super) async fn log_in<C: Socket>(
    client: &mut Packets<C>,
    server: Box<dyn Socket>,
    tls: &TlsStart,
    target: &Target,
) -> Result<LoginEnd, ProbeFailure> {
    let mut server = Packets::new(server);
    let (number, greeting) = server.next().await.map_err(failed)?;
    if client.send(number, &greeting).await.is_err() {
        return Ok(LoginEnd::Known);
    }
    match greeting::first(&greeting) {
        Ok(First::Greeting(greeting)) if !greeting.capabilities.has(Capabilities::SSL) => {
            return Err(ProbeFailure::Misconfigured(NO_TLS.to_owned()));
        }
        Ok(First::Greeting(_)) => {}
        Ok(First::Error(_)) | Err(_) => return Ok(LoginEnd::Known),
    }
    let Ok((number, mut response)) = client.next().await else {
        return Ok(LoginEnd::Known);
    };
    let Some(request) = startup::announce_tls(&mut response) else {
        return Ok(LoginEnd::Known);
    };
    server.send(number, &request).await.map_err(failed)?;
    let socket = tls
        .shake_hands(server.into_quiet_socket().map_err(failed)?, target)
        .await?;
    let mut server = Packets::new(socket);
    let sent = server.send(number.wrapping_add(1), &response).await;
    sent.map_err(failed)?;
    match exchange(client, &mut server).await.map_err(failed)? {
        true => Ok(LoginEnd::Replied(Box::new(server.into_socket()))),
        false => Ok(LoginEnd::Known),
    }
}

/// Passes packets in both directions until the server ends the login. Returns false if the client
/// has ended it.
async fn exchange<C: Socket, S: Socket>(
    client: &mut Packets<C>,
    server: &mut Packets<S>,
) -> io::Result<bool> {
    loop {
        tokio::select! {
            packet = server.next() => {
                let (number, payload) = packet?;
                let ends = matches!(payload.first(), None | Some(&OK | &ERROR));
                if client.send(number.wrapping_sub(1), &payload).await.is_err() {
                    return Ok(false);
                }
                if ends {
                    return Ok(true);
                }
            }
            packet = client.next() => {
                let Ok((number, payload)) = packet else {
                    return Ok(false);
                };
                server.send(number.wrapping_add(1), &payload).await?;
            }
        }
    }
}

fn failed(error: io::Error) -> ProbeFailure {
    match messages::tls_inside(&error) {
        Some(tls) => ProbeFailure::Misconfigured(with_server(tls)),
        None => messages::io(&error).into(),
    }
}

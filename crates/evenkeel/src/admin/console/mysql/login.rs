//! Logs a MySQL client in.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use evenkeel_engine::secret;
use evenkeel_wire::mysql::build::{self, GreetingFields};
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::frame::Frame;
use evenkeel_wire::mysql::login::{
    Channel, ClaimedIdentity, ClientAuth, ClientAuthStep, Method, accept_unchecked,
};
use evenkeel_wire::mysql::password::{self, Nonce};
use evenkeel_wire::mysql::startup::{self, First, Response};
use evenkeel_wire::mysql::{PacketKind, ProtocolError};

use super::answer::Answer;
use super::{End, OFFERED, VERSION, packet};
use crate::admin::console::command_runner::ConsoleUser;
use crate::admin::console::error::{ConsoleError, ConsoleErrorKind};
use crate::admin::console::guard::{AdminToken, ConsoleAccess, Guard};
use crate::admin::console::stream::Stream;

/// utf8mb4_general_ci, which every client supports.
const COLLATION: u8 = 45;

/// Number of connections so far.
static CONNECTIONS: AtomicU32 = AtomicU32::new(0);

/// Client whose login succeeded.
pub(super) struct Admitted {
    pub(super) user: ConsoleUser,
    pub(super) capabilities: Capabilities,
}

/// Logs a client in. Returns `None` after an error was sent.
pub(super) async fn admit(
    guard: &Guard,
    stream: &mut Stream,
    peer: IpAddr,
) -> Result<Option<Admitted>, End> {
    let nonce = Nonce::of_random(secret());
    let connection = CONNECTIONS.fetch_add(1, Relaxed).wrapping_add(1);
    greet(stream, &nonce, connection).await?;
    let first = packet(stream, 1).await?;
    let First::Response(response) = startup::first(&first).map_err(End::Fault)? else {
        // A request for TLS: the greeting did not offer it.
        return Err(End::Fault(ProtocolError::Malformed(
            PacketKind::HandshakeResponse,
        )));
    };
    let capabilities = OFFERED.both(response.capabilities);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut user = ConsoleUser {
        user: text(response.user),
        schema: response.schema.map(text),
        connection,
        may_change: false,
    };
    let mut out = Vec::new();
    let next = match guard.entry(&user.user, peer) {
        ConsoleAccess::Open => Ok(accept_unchecked(
            &ClaimedIdentity::of_response(&response),
            (2, &mut out),
        )),
        ConsoleAccess::Token(token) => {
            user.may_change = true;
            authenticate(stream, (token, nonce), &response, &mut out).await?
        }
        ConsoleAccess::Closed(error) => Err((error, 2)),
    };
    let (answer, admitted) = match next {
        Ok(sequence) => {
            let mut answer = Answer::new(sequence, capabilities);
            answer.ok("");
            (answer, Some(Admitted { user, capabilities }))
        }
        Err((error, sequence)) => {
            let mut answer = Answer::new(sequence, capabilities);
            answer.error(&error);
            (answer, None)
        }
    };
    out.extend_from_slice(answer.bytes());
    stream.send(&out).await?;
    Ok(admitted)
}

async fn greet(stream: &mut Stream, nonce: &Nonce, connection: u32) -> Result<(), End> {
    let mut out = Vec::new();
    let fields = GreetingFields {
        version: VERSION.as_bytes(),
        connection,
        capabilities: OFFERED,
        collation: COLLATION,
        status: Status::AUTOCOMMIT,
        nonce: nonce.bytes(),
        plugin: password::CACHING_SHA2,
    };
    build::greeting(&mut out, &fields);
    Ok(stream.send(&out).await?)
}

/// Checks the token. Returns the sequence number of the next packet, or the error and that number.
async fn authenticate(
    stream: &mut Stream,
    (token, nonce): (&AdminToken, Nonce),
    response: &Response<'_>,
    out: &mut Vec<u8>,
) -> Result<Result<u8, (ConsoleError, u8)>, End> {
    // Old clients support only the native method.
    let method = match response.plugin {
        None | Some(password::NATIVE) => Method::Native(token.native),
        Some(_) => Method::Known(token.sha2),
    };
    let claim = ClaimedIdentity::of_response(response);
    let mut accepted = ClientAuth::begin(claim, nonce, Channel::Plain, method, (2, out));
    loop {
        let (refusal, sequence) = match accepted {
            ClientAuthStep::Done(_, sequence) => return Ok(Ok(sequence)),
            ClientAuthStep::More(login) => {
                stream.send(out).await?;
                out.clear();
                // The client's packet after the request has sequence number 3.
                let payload = packet(stream, 3).await?;
                let frame = Frame {
                    sequence: 3,
                    payload: &payload,
                };
                accepted = login.message(frame, out);
                continue;
            }
            ClientAuthStep::Refused(refusal, sequence) => (refusal.to_string(), sequence),
            ClientAuthStep::Check(check) => ("no password was requested".into(), check.sequence()),
            ClientAuthStep::Collected(_, sequence) => {
                ("no password was requested".into(), sequence)
            }
        };
        let user = response.user.escape_ascii();
        let message =
            format!("Access denied for user '{user}': {refusal}; the password is the admin token");
        return Ok(Err((
            ConsoleError::new(ConsoleErrorKind::AuthFailed, message),
            sequence,
        )));
    }
}

//! Logs a PostgreSQL client in.

use std::net::IpAddr;

use evenkeel_engine::secret;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::frame::Frame;
use evenkeel_wire::postgres::login::{ClientAuth, ClientAuthStep, Method};
use evenkeel_wire::postgres::startup::{self, First, MINOR_MAX};
use evenkeel_wire::postgres::{TransactionStatus, build};

use super::session::Answer;
use super::{End, VERSION, message, parsed};
use crate::admin::console::command_runner::ConsoleUser;
use crate::admin::console::guard::{ConsoleAccess, Guard};
use crate::admin::console::stream::Stream;

/// Content of the startup message.
struct LoginRequest {
    user: String,
    schema: Option<String>,
    negotiation: Vec<u8>,
    minor: u16,
}

/// Logs a client in. Returns `None` if it disconnected, or after an error was sent.
pub(super) async fn admit(
    guard: &Guard,
    stream: &mut Stream,
    peer: IpAddr,
) -> Result<Option<ConsoleUser>, End> {
    let Some(request) = begin(stream).await? else {
        return Ok(None);
    };
    let mut out = request.negotiation;
    let may_change = match guard.entry(&request.user, peer) {
        ConsoleAccess::Open => false,
        ConsoleAccess::Token(token) => {
            let method = Method::Scram {
                verifier: token.scram.clone(),
                binding: None,
                nonce: secret(),
            };
            let login = ClientAuth::begin(request.user.clone().into_bytes(), method, &mut out);
            if !authenticate(stream, login, &mut out, &request.user).await? {
                return Ok(None);
            }
            true
        }
        ConsoleAccess::Closed(error) => {
            let (sqlstate, message) = (error.kind.postgres(), &error.message);
            refuse(stream, sqlstate, message).await?;
            return Ok(None);
        }
    };
    greet(&mut out, &request.user, request.minor);
    stream.send(&out).await?;
    Ok(Some(ConsoleUser {
        user: request.user,
        schema: request.schema,
        connection: std::process::id(),
        may_change,
    }))
}

/// Responds to the requests before the startup message.
async fn begin(stream: &mut Stream) -> Result<Option<LoginRequest>, End> {
    loop {
        let first = stream.take(|bytes| {
            let first = parsed(startup::first(bytes))?;
            Ok(first.map(|(first, length)| (Opening::of(first), length)))
        });
        match first.await? {
            Opening::Encryption => {
                if stream.has_more() {
                    return Ok(None);
                }
                stream.send(b"N").await?;
            }
            Opening::Startup(request) => return Ok(Some(request)),
            // A cancel request has no effect because statements are short, and TLS is not
            // supported.
            Opening::Other => return Ok(None),
        }
    }
}

enum Opening {
    Encryption,
    Startup(LoginRequest),
    Other,
}

impl Opening {
    fn of(first: First<'_>) -> Self {
        match first {
            First::SslRequest | First::GssEncRequest => Self::Encryption,
            First::Startup(startup) => {
                let mut negotiation = Vec::new();
                let minor =
                    build::negotiate_protocol_version(&mut negotiation, &startup, MINOR_MAX);
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Self::Startup(LoginRequest {
                    user: text(startup.user().unwrap_or_default()),
                    schema: Some(text(startup.database())),
                    negotiation,
                    minor,
                })
            }
            First::Cancel(_) | First::DirectTls => Self::Other,
        }
    }
}

async fn authenticate(
    stream: &mut Stream,
    mut login: ClientAuth,
    out: &mut Vec<u8>,
    user: &str,
) -> Result<bool, End> {
    loop {
        stream.send(out).await?;
        out.clear();
        let (tag, body) = message(stream).await?;
        match login.message(Frame { tag, body: &body }, out) {
            ClientAuthStep::More(next) => login = next,
            ClientAuthStep::Done(_) => return Ok(true),
            // No method here collects passwords.
            ClientAuthStep::Collected(_) => return Ok(false),
            ClientAuthStep::Refused(refusal) => {
                let text = if refusal.sqlstate() == SqlState::INVALID_PASSWORD {
                    format!(
                        "password authentication failed for user \"{user}\": the password is the \
                         admin token"
                    )
                } else {
                    format!("authentication failed: {refusal}")
                };
                refuse(stream, refusal.sqlstate(), &text).await?;
                return Ok(false);
            }
        }
    }
}

async fn refuse(stream: &mut Stream, sqlstate: SqlState, message: &str) -> Result<(), End> {
    let mut answer = Answer::default();
    answer.fatal(sqlstate, message);
    Ok(stream.send(answer.bytes()).await?)
}

fn greet(out: &mut Vec<u8>, user: &str, minor: u16) {
    build::authentication_ok(out);
    let reports: [(&str, &str); 10] = [
        ("server_version", VERSION),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("TimeZone", "UTC"),
        ("integer_datetimes", "on"),
        ("is_superuser", "off"),
        ("session_authorization", user),
        ("standard_conforming_strings", "on"),
    ];
    for (name, value) in reports {
        build::parameter_status(out, name.as_bytes(), value.as_bytes());
    }
    let secret: [u8; 32] = secret();
    let length = if minor < 2 { 4 } else { secret.len() };
    build::backend_key_data(out, std::process::id(), &secret[..length]);
    build::ready_for_query(out, TransactionStatus::Idle);
}

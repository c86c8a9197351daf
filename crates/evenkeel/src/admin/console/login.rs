//! Who may come in, and who may change things.

use std::net::IpAddr;

use evenkeel_proxy::secret;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::frame::Frame;
use evenkeel_wire::postgres::login::{Accept, Accepted, Method};
use evenkeel_wire::postgres::scram::Verifier;
use evenkeel_wire::postgres::startup::{self, First, MINOR_MAX};
use evenkeel_wire::postgres::{Parsed, TransactionStatus, build};

use super::session::{Answer, Complaint};
use super::stream::{End, Stream};

/// The user who is asked for the token even on loopback.
const CHANGER: &str = "admin";

/// As PostgreSQL has it.
const ITERATIONS: u32 = 4_096;

/// Drivers take what is older for a server that lacks what they need.
const VERSION: &str = concat!("18.0 (Evenkeel ", env!("CARGO_PKG_VERSION"), ")");

/// Knows the token, as SCRAM keeps it.
pub(super) struct Guard {
    token: Option<Verifier>,
}

impl Guard {
    pub(super) fn new(token: Option<&str>) -> Self {
        let salt: [u8; 16] = secret();
        let token = token.filter(|token| !token.is_empty());
        Self {
            token: token.map(|token| Verifier::of_password(token.as_bytes(), &salt, ITERATIONS)),
        }
    }
}

/// What a client asks for first.
struct Wish {
    user: String,
    negotiation: Vec<u8>,
    minor: u16,
}

/// Lets a client in. True: it may change things. None: it has left, or was told why not.
pub(super) async fn admit(
    guard: &Guard,
    stream: &mut Stream,
    peer: IpAddr,
) -> Result<Option<bool>, End> {
    let Some(wish) = begin(stream).await? else {
        return Ok(None);
    };
    let is_near = peer.to_canonical().is_loopback();
    let must_prove = !is_near || wish.user == CHANGER;
    let mut out = wish.negotiation;
    let may_change = match &guard.token {
        Some(token) if must_prove => {
            let method = Method::Scram {
                verifier: token.clone(),
                binding: None,
                nonce: secret(),
            };
            let login = Accept::begin(wish.user.clone().into_bytes(), method, &mut out);
            if !prove(stream, login, &mut out, &wish.user).await? {
                return Ok(None);
            }
            true
        }
        None if !is_near => {
            let complaint = Complaint::new(
                b"28000",
                "reading from elsewhere needs a token and none is configured: set token_file in \
                 [admin]",
            );
            refuse(stream, &complaint).await?;
            return Ok(None);
        }
        _ => false,
    };
    greet(&mut out, &wish.user, wish.minor);
    stream.send(&out).await?;
    Ok(Some(may_change))
}

/// Answers what comes before the startup message.
async fn begin(stream: &mut Stream) -> Result<Option<Wish>, End> {
    loop {
        let first = stream.take(|bytes| match startup::first(bytes) {
            Parsed::Frame(first, length) => Parsed::Frame(Opening::of(first), length),
            Parsed::Incomplete { need } => Parsed::Incomplete { need },
            Parsed::Invalid(fault) => Parsed::Invalid(fault),
        });
        match first.await? {
            Opening::Encryption => {
                if stream.has_more() {
                    return Ok(None);
                }
                stream.send(b"N").await?;
            }
            Opening::Startup(wish) => return Ok(Some(wish)),
            // Nothing here takes so long that it could be cancelled; and TLS is not spoken.
            Opening::Other => return Ok(None),
        }
    }
}

enum Opening {
    Encryption,
    Startup(Wish),
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
                let user = startup.user().unwrap_or_default();
                Self::Startup(Wish {
                    user: String::from_utf8_lossy(user).into_owned(),
                    negotiation,
                    minor,
                })
            }
            First::Cancel(_) | First::DirectTls => Self::Other,
        }
    }
}

async fn prove(
    stream: &mut Stream,
    mut login: Accept,
    out: &mut Vec<u8>,
    user: &str,
) -> Result<bool, End> {
    loop {
        stream.send(out).await?;
        out.clear();
        let (tag, body) = stream.message().await?;
        match login.message(Frame { tag, body: &body }, out) {
            Accepted::More(next) => login = next,
            Accepted::Done(_) => return Ok(true),
            Accepted::Refused(refusal) => {
                let text = if refusal.sqlstate() == SqlState::INVALID_PASSWORD {
                    format!(
                        "password authentication failed for user \"{user}\": the password is the \
                         admin token"
                    )
                } else {
                    format!("the login failed: {refusal}")
                };
                refuse(stream, &Complaint::with(refusal.sqlstate(), text)).await?;
                return Ok(false);
            }
        }
    }
}

async fn refuse(stream: &mut Stream, complaint: &Complaint) -> Result<(), End> {
    let mut answer = Answer::default();
    answer.fatal(complaint);
    stream.send(answer.bytes()).await
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

//! Login state machines as types: [`ClientAuth`] for clients, [`ServerAuth`] for servers.
//!
//! Both consume themselves with every message. Only the last step returns an [`Authenticated`] (or
//! a [`ServerAuthResult`]). Without a login, only the caller can create one, for a certificate or
//! for trust.

mod client_auth;
mod server_auth;

pub use client_auth::{ClientAuth, ClientAuthStep, Method, Secret};
pub use server_auth::{ServerAuth, ServerAuthResult, ServerAuthStep};

use std::fmt;

use super::backend::SqlState;
use super::md5;
use super::scram;
use crate::login_step;

#[cfg(test)]
mod tests;

/// Proof that a client has authenticated.
pub type Authenticated = login_step::Authenticated<Credential>;

/// Credential from a client's login that can log in to servers.
pub type Credential = login_step::Credential<Key>;

/// Key that a login without the password leaves.
#[derive(Clone)]
pub enum Key {
    /// The keys of a SCRAM login.
    Scram(scram::Keys),
    /// The hash that md5 logins need.
    Md5(md5::Hash),
}

/// Reason for a failed login, for the log. A client receives the same error for a wrong password
/// and an unknown user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthFailure {
    /// The password or its proof is wrong, or there is no such user.
    WrongPassword,
    /// An empty password, which no server accepts.
    EmptyPassword,
    /// An unexpected or malformed message.
    Protocol,
    /// A failed SCRAM exchange.
    Scram(scram::ScramError),
    /// The server requests an unsupported method (its number), such as GSSAPI.
    Method(u32),
    /// The server requests a method that the credential cannot answer.
    Credential,
    /// The server requests a cleartext password over a connection where that is not allowed.
    CleartextNotAllowed,
    /// The server accepted the login before it had proved its identity.
    Unproved,
}

impl AuthFailure {
    /// Returns the SQLSTATE to send to a client.
    #[must_use]
    pub fn sqlstate(self) -> SqlState {
        match self {
            AuthFailure::WrongPassword
            | AuthFailure::EmptyPassword
            | AuthFailure::Scram(scram::ScramError::WrongPassword) => SqlState::INVALID_PASSWORD,
            AuthFailure::Protocol | AuthFailure::Scram(_) => SqlState::PROTOCOL_VIOLATION,
            _ => SqlState::INVALID_AUTHORIZATION,
        }
    }
}

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuthFailure::WrongPassword => f.write_str("wrong password or unknown user"),
            AuthFailure::EmptyPassword => f.write_str("empty password"),
            AuthFailure::Protocol => f.write_str("unexpected message during login"),
            AuthFailure::Scram(fault) => fault.fmt(f),
            AuthFailure::Method(number) => {
                write!(
                    f,
                    "the server requested unsupported authentication method {number}"
                )
            }
            AuthFailure::Credential => f.write_str(
                "the stored credential cannot be used with the authentication method \
                 that the server requested",
            ),
            AuthFailure::CleartextNotAllowed => f.write_str(
                "the server requested a cleartext password over a connection without \
                 TLS",
            ),
            AuthFailure::Unproved => {
                f.write_str("the server ended SCRAM authentication before proving its identity")
            }
        }
    }
}

impl std::error::Error for AuthFailure {}

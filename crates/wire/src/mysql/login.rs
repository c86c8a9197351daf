//! Login state machines as types: [`ClientAuth`] for clients, [`ServerAuth`] for servers.
//!
//! Both consume themselves with every packet. Only the last step returns an [`Authenticated`] (or a
//! [`ServerAuthResult`]). Without a login, only the caller can create one, for a certificate or for
//! trust.

mod check;
mod client_auth;
mod server_auth;

pub use check::{Check, Secret};
pub use client_auth::{ClaimedIdentity, ClientAuth, ClientAuthStep, Method, accept_unchecked};
pub use server_auth::{Hello, ServerAuth, ServerAuthResult, ServerAuthStep, ServerKey};

use std::fmt;

use super::backend::SqlState;
use super::password::{native, sha2};
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
    /// SHA1(password), for accounts of `mysql_native_password`.
    Native(native::Key),
    /// SHA256(password), for servers that have cached the user's password.
    Sha2(sha2::Key),
}

/// Confidentiality of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Plain: readable on the network.
    Plain,
    /// Encrypted or local: TLS or a Unix socket. A cleartext password may be sent.
    Secure,
}

/// Reason for a failed login, for the log. A client receives the same error for a wrong password
/// and an unknown user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthFailure {
    /// The password or its proof is wrong, or the user is unknown.
    WrongPassword,
    /// An unexpected or malformed packet.
    Protocol,
    /// The client does not support the plugin of its account.
    CannotSwitch,
    /// The password itself is needed, and without TLS there is no key to encrypt it.
    NoKey,
    /// The plugin sends a cleartext password, over a connection where that is not allowed.
    CleartextNotAllowed,
    /// The server requests an unsupported plugin.
    Plugin,
    /// The server requests a plugin that the credential cannot answer.
    Credential,
    /// The server has not cached this user's password and requests it, but the credential is only a
    /// key.
    PasswordNeeded,
    /// The server requests the password encrypted, and its key is unknown and may not be requested.
    ServerKeyUnknown,
    /// The server refused the login, with this error number.
    Server(u16),
}

impl AuthFailure {
    /// Returns the error number to send to a client.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            // ER_ACCESS_DENIED_ERROR
            AuthFailure::WrongPassword => 1045,
            // ER_HANDSHAKE_ERROR
            AuthFailure::Protocol => 1043,
            AuthFailure::Server(code) => code,
            // ER_NOT_SUPPORTED_AUTH_MODE
            _ => 1251,
        }
    }

    /// Returns the SQLSTATE to send to a client.
    #[must_use]
    pub fn sqlstate(self) -> SqlState {
        match self {
            AuthFailure::WrongPassword => SqlState::ACCESS,
            AuthFailure::Protocol => SqlState::CONNECTION,
            AuthFailure::Server(_) => SqlState::GENERAL,
            _ => SqlState(*b"08004"),
        }
    }
}

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AuthFailure::WrongPassword => "wrong password or unknown user",
            AuthFailure::Protocol => "unexpected packet during login",
            AuthFailure::CannotSwitch => {
                "the client cannot use the account's authentication plugin"
            }
            AuthFailure::NoKey => {
                "the password can only be sent over TLS: connect with TLS, or configure an RSA key"
            }
            AuthFailure::CleartextNotAllowed => {
                "the authentication plugin sends a cleartext password, which requires TLS"
            }
            AuthFailure::Plugin => "the server requested an unsupported authentication plugin",
            AuthFailure::Credential => {
                "the stored credential cannot be used with the authentication plugin that the \
                 server requested"
            }
            AuthFailure::PasswordNeeded => {
                "the server has no cached password for this user and requires full authentication"
            }
            AuthFailure::ServerKeyUnknown => {
                "the server requires the password encrypted with an RSA public key that is not \
                 known: use TLS"
            }
            AuthFailure::Server(code) => {
                return write!(
                    f,
                    "the server rejected the login with error \
                     {code}"
                );
            }
        })
    }
}

impl std::error::Error for AuthFailure {}

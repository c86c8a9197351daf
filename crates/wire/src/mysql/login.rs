//! Logins as types: [`Accept`] towards clients, [`Join`] towards servers.
//!
//! Both consume themselves with every packet. Only the last step gives an [`Authenticated`] (or a
//! [`Joined`]), and nothing else can make one but the caller's word for a certificate or for trust.

mod check;
mod client_auth;
mod server_auth;

pub use check::{Check, Secret};
pub use client_auth::{ClaimedIdentity, ClientAuth, ClientAuthStep, Method, wave_through};
pub use server_auth::{Hello, ServerAuth, ServerAuthResult, ServerAuthStep, ServerKey};

use std::fmt;

use zeroize::Zeroizing;

use super::backend::SqlState;
use super::password::{native, sha2};

#[cfg(test)]
mod tests;

/// A client that has proved who it is.
#[derive(Debug)]
pub struct Authenticated {
    user: Vec<u8>,
    credential: Credential,
}

/// What a login left that logs in to servers.
#[derive(Clone)]
pub enum Credential {
    /// Nothing: the account has no password, or a credential must come from elsewhere.
    Nothing,
    /// SHA1(password), for accounts of `mysql_native_password`.
    Native(native::Key),
    /// SHA256(password), for servers that have seen the user's password.
    Sha2(sha2::Key),
    /// The password.
    Password(Zeroizing<Vec<u8>>),
}

/// Who can listen to what is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Anybody on the way.
    Plain,
    /// Nobody: TLS or a Unix socket. A password may go as it is.
    Secure,
}

/// Why a login ended, for the log; a client is told the same for a wrong password and an unknown
/// user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthFailure {
    /// The password or its proof is wrong, or there is no such user.
    WrongPassword,
    /// A packet that does not belong here, or is malformed.
    Protocol,
    /// The client cannot speak the plugin of its account.
    CannotSwitch,
    /// The password itself is needed, and without TLS there is no key to encrypt it with.
    NoKey,
    /// The plugin sends the password as it is, over a connection where that was not allowed.
    CleartextNotAllowed,
    /// The server asks for a plugin that we do not speak.
    Plugin,
    /// The server asks for a plugin that our credential does not answer.
    Credential,
    /// The server has not seen this user's password yet and wants it; we only have a proof's key.
    PasswordNeeded,
    /// The server wants the password encrypted, and its key is not known and may not be asked for.
    ServerKeyUnknown,
    /// The server said no, with this number.
    Server(u16),
}

impl Authenticated {
    /// Who it is.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// What logs in to servers in its name.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }
}

impl AuthFailure {
    /// The error's number to tell a client.
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

    /// The SQLSTATE to tell a client.
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

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credential::Nothing => "Nothing",
            Credential::Native(_) => "Native(hidden)",
            Credential::Sha2(_) => "Sha2(hidden)",
            Credential::Password(_) => "Password(hidden)",
        })
    }
}

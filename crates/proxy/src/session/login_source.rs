//! Decides from the settings of a service where the password of a client is checked, and with which
//! account its session logs in to servers.

use std::net::IpAddr;

use zeroize::Zeroizing;

use super::error_reply::{ErrorReply, ReplyCode};
use crate::error_catalog;
use crate::service::database::{Auth, AuthSource, FileCredential, FileUser};
use crate::upstream::pool_registry::generation_of;

/// Client that wants to log in.
pub(super) struct Applicant<'a> {
    pub(super) user: &'a str,
    /// Address; a client of a Unix socket has none.
    pub(super) address: Option<IpAddr>,
    /// True if no one on the network can read what the client sends: TLS or a Unix socket.
    pub(super) is_private: bool,
}

/// Place where the identity of a user is proved.
pub(super) enum LoginSource {
    /// The client's certificate has the user's name.
    Certificate,
    /// The users file has a credential.
    File(FileCredential),
    /// Nowhere: there is no such user.
    Nowhere,
    /// A server checks the password that the client sends.
    Server,
    /// A server would check the password, but the client's connection can be read by others.
    ServerOverTls,
    /// Servers store a verifier of the password.
    Verifier,
}

impl Applicant<'_> {
    /// Returns the user of the users file, or an empty one, and where its identity is proved.
    /// `None`: the user may not log in from this address.
    pub(super) fn source(
        &self,
        auth: &Auth,
        certificate_name: impl FnOnce() -> Option<String>,
    ) -> Option<(FileUser, LoginSource)> {
        if !auth.may_come_from(self.user, self.address) {
            return None;
        }
        let of_file = auth.users.get(self.user).cloned().unwrap_or_default();
        if of_file.certificate && certificate_name().as_deref() == Some(self.user) {
            return Some((of_file, LoginSource::Certificate));
        }
        let source = match (&of_file.credential, auth.source) {
            (Some(credential), _) => LoginSource::File(credential.clone()),
            (None, AuthSource::File) => LoginSource::Nowhere,
            (None, AuthSource::Login) if self.is_private => LoginSource::Server,
            (None, AuthSource::Login) => LoginSource::ServerOverTls,
            (None, AuthSource::Server) => LoginSource::Verifier,
        };
        Some((of_file, source))
    }

    /// Returns the error for a user whom no server can be asked for.
    pub(super) fn unavailable<C: ReplyCode>(&self, why: &str) -> ErrorReply<C> {
        let user = self.user;
        tracing::warn!(user, why, "cannot look up user on the servers");
        ErrorReply::with(&error_catalog::CREDENTIALS_UNAVAILABLE, &[&why])
    }
}

/// Account with which a session logs in to servers.
pub(super) struct ServerAccount {
    pub(super) user: String,
    /// Password in the users file; `None`: the client's login provides the credential.
    pub(super) password: Option<Zeroizing<Vec<u8>>>,
    /// Number that distinguishes the account's current credentials from earlier ones.
    pub(super) generation: u64,
}

impl ServerAccount {
    /// Returns the account of this user. `secrets`: what the login is checked against, and what
    /// else makes another generation.
    pub(super) fn new(user: &str, of_file: &FileUser, secrets: &[&[u8]]) -> Self {
        let password = of_file.server_password.as_ref();
        let server_user = of_file.server_user.clone();
        let server_user = server_user.unwrap_or_else(|| user.to_owned());
        let bytes = password.map_or(&b""[..], |password| password.as_bytes());
        let all = [&[server_user.as_bytes(), bytes], secrets].concat();
        Self {
            generation: generation_of(&all),
            user: server_user,
            password: password.map(|password| Zeroizing::new(password.as_bytes().to_vec())),
        }
    }
}

/// Returns a copy of the password that logins of this user are checked against, if it is known.
pub(super) fn own_password(of_file: &FileUser) -> Option<Zeroizing<Vec<u8>>> {
    of_file.password().map(|own| Zeroizing::new(own.to_vec()))
}

//! Decides from the settings of a service where the password of a client is checked, and with which
//! account its session logs in to servers.

use std::net::IpAddr;
use std::sync::Arc;

use evenkeel_wire::Credential;
use zeroize::Zeroizing;

use super::error_reply::{ErrorReply, ReplyCode};
use crate::error_catalog;
use crate::service::database::{Auth, AuthSource, FileCredential, FileUser};
use crate::upstream::kept_passwords::KeptPassword;
use crate::upstream::pool_registry::{self, generation_of};

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

/// Login that succeeds with the client's proof, and the account for servers. `K`: key of a
/// credential; `C`: code of errors; `O`: what the protocol adds.
pub(super) struct LoginGrant<K, C: ReplyCode, O> {
    /// Credential for servers; `None`: the client's login provides it.
    pub(super) credential: Option<Credential<K>>,
    /// Password that a server has accepted, instead of `credential`.
    pub(super) kept: Option<Arc<KeptPassword>>,
    /// User name for servers.
    pub(super) server_user: String,
    /// Number that distinguishes the account's current credentials from earlier ones.
    pub(super) generation: u64,
    /// Error that rejects the client even if its proof is correct.
    pub(super) error_reply: Option<ErrorReply<C>>,
    pub(super) own: O,
}

impl<K, C: ReplyCode, O: Default> LoginGrant<K, C, O> {
    /// Returns the grant of this user. `secrets`: what the login is checked against, and what else
    /// makes another generation.
    pub(super) fn new(user: &str, of_file: &FileUser, secrets: &[&[u8]]) -> Self {
        let password = of_file.server_password.as_ref();
        let password = password.map(|password| Zeroizing::new(password.as_bytes().to_vec()));
        let server_user = of_file.server_user.clone();
        let server_user = server_user.unwrap_or_else(|| user.to_owned());
        let bytes = password.as_ref().map_or(&b""[..], |password| password);
        let all = [&[server_user.as_bytes(), bytes], secrets].concat();
        Self {
            generation: generation_of(&all),
            server_user,
            credential: password.map(Credential::Password),
            kept: None,
            error_reply: None,
            own: O::default(),
        }
    }

    /// Returns the grant of a user whose certificate has its name: servers get the password of the
    /// users file, if there is one.
    pub(super) fn of_certificate(user: &str, of_file: &FileUser, secrets: &[&[u8]]) -> Self {
        let own = of_file.password().map(|own| Zeroizing::new(own.to_vec()));
        let own = || own.map_or(Credential::Nothing, Credential::Password);
        let mut grant = Self::new(user, of_file, secrets);
        grant.credential.get_or_insert_with(own);
        grant
    }

    /// Returns the credential of the connections to servers.
    pub(super) fn take_credential(&mut self) -> pool_registry::Credential
    where
        pool_registry::Credential: From<Credential<K>>,
    {
        match self.kept.take() {
            Some(kept) => pool_registry::Credential::Kept(kept),
            None => self.credential.take().unwrap_or(Credential::Nothing).into(),
        }
    }
}

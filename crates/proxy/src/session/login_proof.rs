//! Proves a client's password by logging in with it at a server, for services whose servers do not
//! show what they compare passwords with.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::locked_memory::PASSWORD_LENGTH_MAX;
use evenkeel_wire::{Credential, UnprovedPassword};
use zeroize::Zeroizing;

use super::error_reply::{ErrorReply, ReplyCode};
use super::login_connection;
use super::password_rate_limit::PasswordRateLimit;
use crate::error_catalog;
use crate::server::Server;
use crate::service::Service;
use crate::service::database::DatabaseService;
use crate::upstream::connect_error::{ConnectError, ConnectErrorKind};
use crate::upstream::kept_passwords::KeptPassword;

/// Client whose password is to be proved.
pub(super) struct Claimant<'a> {
    pub(super) user: &'a str,
    pub(super) peer: Option<SocketAddr>,
    pub(super) rate_limit: &'a PasswordRateLimit,
}

/// Password that servers are to check.
pub(super) struct PasswordProof {
    service: Arc<DatabaseService>,
    password: Zeroizing<Vec<u8>>,
    /// Number that distinguishes the user with this password from the same user with another one.
    pub(super) generation: u64,
}

/// Reason why a password is not proved.
enum ProofError {
    /// A server has rejected the login.
    Rejected(ConnectError),
    /// No server has answered; the error of the last one.
    Unavailable(Option<ConnectError>),
}

impl PasswordProof {
    /// Creates the proof for this user of the servers.
    pub(super) fn new(
        service: &Arc<DatabaseService>,
        server_user: &str,
        password: UnprovedPassword,
    ) -> Self {
        let password = password.into_bytes();
        Self {
            service: Arc::clone(service),
            generation: service.kept_passwords.generation(server_user, &password),
            password,
        }
    }

    /// Returns the credential with which servers check the password.
    pub(super) fn credential<K>(&self) -> Credential<K> {
        Credential::Password(self.password.clone())
    }

    /// Logs in at the first server that answers, and keeps the password for further server
    /// connections. `attempt` gets the server and the time that it may take to connect.
    pub(super) async fn run<C: ReplyCode>(
        self,
        service: &Service,
        client: Claimant<'_>,
        attempt: impl AsyncFn(&Arc<Server>, Duration) -> Result<(), ConnectError>,
    ) -> Result<Arc<KeptPassword>, ErrorReply<C>> {
        let proved = self.at_servers(service, &client, attempt).await;
        proved.map_err(|error| error.reply(&client))?;
        let kept_passwords = &self.service.kept_passwords;
        let kept = kept_passwords.keep(self.generation, &self.password);
        kept.ok_or_else(|| {
            ErrorReply::with(&error_catalog::PASSWORD_NOT_KEPT, &[&PASSWORD_LENGTH_MAX])
        })
    }

    async fn at_servers(
        &self,
        service: &Service,
        client: &Claimant<'_>,
        attempt: impl AsyncFn(&Arc<Server>, Duration) -> Result<(), ConnectError>,
    ) -> Result<(), ProofError> {
        let address = client.peer.map(|peer| peer.ip());
        client.rate_limit.wait(address, client.user).await;
        let _permit = self.service.login_limiter().acquire_proof().await;
        let view = login_connection::wait_for_server(service).await;
        let database = view.database();
        let database = database.ok_or(ProofError::Unavailable(None))?;
        let mut last = None;
        for (server, limit) in login_connection::candidates(&view, database) {
            match attempt(server, limit).await {
                Ok(()) => {
                    client.rate_limit.refund(address, client.user);
                    return Ok(());
                }
                Err(error) if error.is_passing() || error.kind == ConnectErrorKind::Outdated => {
                    last = Some(error);
                }
                Err(error) => return Err(ProofError::Rejected(error)),
            }
        }
        // No guess was judged.
        client.rate_limit.refund(address, client.user);
        Err(ProofError::Unavailable(last))
    }
}

impl ProofError {
    fn reply<C: ReplyCode>(self, client: &Claimant<'_>) -> ErrorReply<C> {
        match self {
            ProofError::Rejected(error) => {
                let (user, why) = (client.user, &error.message);
                tracing::info!(user, peer = ?client.peer, why, "login refused");
                ErrorReply::from_login_error(&error)
            }
            ProofError::Unavailable(Some(error)) => ErrorReply::from_connect_error(&error),
            ProofError::Unavailable(None) => ErrorReply::new(&error_catalog::NO_SERVER_AVAILABLE),
        }
    }
}

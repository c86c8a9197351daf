//! Proves a client's password by a login at a server.

use evenkeel_engine::locked_memory::PASSWORD_LENGTH_MAX;
use evenkeel_wire::UnprovedPassword;
use evenkeel_wire::mysql::login;

use super::super::error_reply::ErrorReply;
use super::super::server_login;
use super::credential::LoginGrant;
use super::{LoginError, LoginHandler, LoginRequest};
use crate::error_catalog;
use crate::session::login_proof::{self, Claimant, ProofError};
use crate::upstream::connect_error::ConnectError;
use crate::upstream::pool_registry::Credential;

impl LoginHandler<'_> {
    /// Logs in at a server with the client's password, and keeps the password for further server
    /// connections.
    pub(super) async fn prove_at_server(
        &self,
        request: &LoginRequest,
        grant: LoginGrant,
        password: UnprovedPassword,
    ) -> Result<LoginGrant, LoginError> {
        let password = password.into_bytes();
        let generation = self
            .service
            .kept_passwords
            .generation(&grant.server_user, &password);
        let credential = Credential::Mysql(login::Credential::Password(password.clone()));
        let user = self.pool_user(request, grant.server_user.clone(), credential, generation);
        let client = Claimant {
            user: &request.user,
            address: self.address(),
            rate_limit: &self.shared.logins.rate_limit,
        };
        let service = self.permit.service();
        let proved = login_proof::at_servers(service, client, async |server, limit| {
            server_login::prove(self.worker, service, (server, &user), limit).await
        });
        proved
            .await
            .map_err(|error| self.unproved(request, error))?;
        let kept = self.service.kept_passwords.keep(generation, &password);
        let too_long =
            || ErrorReply::with(&error_catalog::PASSWORD_NOT_KEPT, &[&PASSWORD_LENGTH_MAX]);
        Ok(LoginGrant {
            kept: Some(kept.ok_or_else(too_long)?),
            generation,
            ..grant
        })
    }

    fn unproved(&self, request: &LoginRequest, error: ProofError) -> ErrorReply {
        match error {
            ProofError::Rejected(error) => {
                let (user, why) = (&request.user, &error.message);
                tracing::info!(user, peer = ?self.peer, why, "login refused");
                of_server(&error)
            }
            ProofError::Unavailable(Some(error)) => ErrorReply::from_connect_error(&error),
            ProofError::Unavailable(None) => ErrorReply::new(&error_catalog::NO_SERVER_AVAILABLE),
        }
    }
}

/// Returns the error as the server has sent it.
fn of_server(error: &ConnectError) -> ErrorReply {
    let reply = ErrorReply::from_connect_error(error);
    match &error.text {
        Some(text) => ErrorReply {
            message: text.clone(),
            ..reply
        },
        None => reply,
    }
}

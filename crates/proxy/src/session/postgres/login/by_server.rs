//! Proves a client's password by a login at a server.

use evenkeel_wire::UnprovedPassword;
use evenkeel_wire::postgres::login::Key;

use super::super::server_login;
use super::credential::LoginGrant;
use super::{LoginError, LoginHandler, LoginRequest};
use crate::session::login_proof::{Claimant, PasswordProof};

impl LoginHandler<'_> {
    /// Logs in at a server with the client's password, and keeps the password for further server
    /// connections.
    pub(super) async fn prove_at_server(
        &self,
        request: &LoginRequest,
        grant: LoginGrant,
        password: UnprovedPassword,
    ) -> Result<LoginGrant, LoginError> {
        let proof = PasswordProof::new(&self.context.service, &grant.server_user, password);
        let generation = proof.generation;
        let credential = proof.credential::<Key>().into();
        let user = self.pool_user(request, grant.server_user.clone(), credential, generation);
        let client = Claimant {
            user: &request.user,
            peer: self.context.peer,
            rate_limit: &self.protocol.rate_limit,
        };
        let service = self.context.permit.service();
        let proving = proof.run(service, client, async |server, limit| {
            let was_asked =
                server_login::prove(self.context.worker, service, (server, &user), limit).await?;
            if !was_asked {
                let kept_passwords = &self.context.service.kept_passwords;
                kept_passwords.warn_of_trust(&server.name, &request.user);
            }
            Ok(())
        });
        let kept = Some(proving.await?);
        Ok(LoginGrant {
            kept,
            generation,
            ..grant
        })
    }
}

//! Proves a client's password by logging in with it at a server, for services whose servers do not
//! show what they compare passwords with.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::login_connection;
use super::password_rate_limit::PasswordRateLimit;
use crate::server::Server;
use crate::service::Service;
use crate::upstream::connect_error::{ConnectError, ConnectErrorKind};

/// Client whose password is to be proved.
pub(super) struct Claimant<'a> {
    pub(super) user: &'a str,
    pub(super) address: Option<IpAddr>,
    pub(super) rate_limit: &'a PasswordRateLimit,
}

/// Reason why a password is not proved.
pub(super) enum ProofError {
    /// A server has rejected the login.
    Rejected(ConnectError),
    /// No server has answered; the error of the last one.
    Unavailable(Option<ConnectError>),
}

/// Logs in at the first server that answers. `attempt` gets the server and the time that it may
/// take to connect.
pub(super) async fn at_servers<T>(
    service: &Service,
    client: Claimant<'_>,
    attempt: impl AsyncFn(&Arc<Server>, Duration) -> Result<T, ConnectError>,
) -> Result<T, ProofError> {
    client.rate_limit.wait(client.address, client.user).await;
    let shared = service.database().ok_or(ProofError::Unavailable(None))?;
    let _permit = shared.login_limiter().acquire_proof().await;
    let view = login_connection::wait_for_server(service).await;
    let database = view.database();
    let database = database.ok_or(ProofError::Unavailable(None))?;
    let mut last = None;
    for (server, limit) in login_connection::candidates(&view, database) {
        match attempt(server, limit).await {
            Ok(proved) => {
                client.rate_limit.refund(client.address, client.user);
                return Ok(proved);
            }
            Err(error) if error.is_passing() || error.kind == ConnectErrorKind::Outdated => {
                last = Some(error);
            }
            Err(error) => return Err(ProofError::Rejected(error)),
        }
    }
    // No guess was judged.
    client.rate_limit.refund(client.address, client.user);
    Err(ProofError::Unavailable(last))
}

//! Logs in replication clients: each gets a connection of its own to the primary, whose parameters
//! it receives.

use std::rc::Rc;

use evenkeel_engine::clock;
use evenkeel_engine::stream::Stream;
use evenkeel_policy::failover_queue::PrimaryError;
use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::startup::Replication;

use super::super::error_reply::ErrorReply;
use super::super::server::ServerConnection;
use super::super::user_state::Account;
use super::credential::LoginGrant;
use super::greeting::InitialState;
use super::{LoginError, LoginHandler, LoginRequest};
use crate::error_catalog;
use crate::service::activity::SessionActivity;
use crate::session::acquirer::{AcquireError, Acquirer};
use crate::session::login_connection::{self, LoginConnection};
use crate::session::placement::Placement;
use crate::upstream::pool_registry::Parameters;
use evenkeel_sql::session_state::PinSource;
use evenkeel_sql::session_state::settings::SessionState;

/// Guard that retires the client's pool, so that its connection is assigned to no other session.
struct Alone<'a>(&'a Account);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.retire();
    }
}

impl LoginRequest {
    /// Returns the startup parameters for the server of a replication client: a walsender without a
    /// database accepts no SET.
    pub(super) fn for_replication(&self) -> Option<Parameters> {
        if self.replication == Replication::No {
            return None;
        }
        let is_ours =
            |name: &[u8]| matches!(name, b"user" | b"database") || name.starts_with(b"_pq_.");
        let parameters = self.parameters.iter();
        let forwarded = parameters.filter(|(name, _)| !is_ours(name));
        Some(forwarded.cloned().collect())
    }
}

impl LoginHandler<'_> {
    /// Logs a replication client in to the primary, and completes its login.
    pub(super) async fn greet_replication(
        &self,
        stream: &mut Stream,
        request: &LoginRequest,
        proof: LoginGrant,
    ) -> Result<InitialState, LoginError> {
        let mut out = proof.own.last_word.clone();
        let account = self.account(request, proof);
        let (mut login_connection, at) = self.acquire_connection(&account).await?;
        let connection = login_connection
            .connection
            .as_ref()
            .ok_or(LoginError::Disconnected)?;
        build::authentication_ok(&mut out);
        for (name, value) in &connection.reported {
            build::parameter_status(&mut out, name, value);
        }
        let state = self.initial_state(connection);
        let key = self.end_greeting(request, &account, &mut out)?;
        stream.send(self.context.worker, &out).await?;
        let acquired = login_connection
            .connection
            .take()
            .map(|connection| (connection, at));
        Ok(InitialState {
            account,
            state,
            key,
            application: request.application(),
            connection: acquired,
        })
    }

    async fn acquire_connection(
        &self,
        account: &Rc<Account>,
    ) -> Result<(LoginConnection<'_, ServerConnection>, Placement), ErrorReply> {
        let _alone = Alone(account);
        let service = self.context.permit.service();
        let since_ms = clock::now_ms();
        let no_primary = || match login_connection::has_lasting_fault(service) {
            true => {
                let why = login_connection::fault_text(service);
                ErrorReply::with(&error_catalog::NO_SERVER_AVAILABLE, &[&why])
            }
            false => {
                let waited_ms = clock::now_ms().saturating_sub(since_ms);
                ErrorReply::from_primary_error(PrimaryError::NoPrimary { waited_ms })
            }
        };
        let found = login_connection::wait_for_primary(service).await;
        let (view, primary) = found.ok_or_else(no_primary)?;
        let database = view.database().ok_or_else(no_primary)?;
        let server = &view.servers[primary];
        let acquired =
            login_connection::acquire(&self.context.worker_pool, account, server, database).await;
        let login_connection = acquired.map_err(|error| self.denied(&error))?;
        let at = Placement::new(&view, primary, false).ok_or_else(no_primary)?;
        Ok((login_connection, at))
    }

    fn denied(&self, error: &AcquireError) -> ErrorReply {
        if let AcquireError::ConnectFailed(error) = error
            && error.is_passing()
        {
            self.context
                .service
                .server_info
                .request_role_check(error.server_id);
        }
        ErrorReply::from_acquire_error(error)
    }

    /// Starts the session with the connection that its login acquired.
    pub(super) fn bind(
        &self,
        (server, at): (Box<ServerConnection>, Placement),
        acquirer: &mut Acquirer<'_, ServerConnection>,
    ) -> Box<ServerConnection> {
        acquirer.at = Some(at);
        let handle = self.context.handle;
        handle.set_target(Some(&server.core.cancel_target));
        handle.set_pins(Pins::of(&[Pin::Replication]), |_| PinSource::default());
        handle.set_activity(SessionActivity::Bound, self.context.worker);
        server
    }

    /// Returns the session state, in which only pins are tracked.
    fn initial_state(&self, server: &ServerConnection) -> SessionState {
        let login_settings = server.settings.login().clone();
        let startup = self.context.worker.interner().empty();
        let mut state = SessionState::new(startup, login_settings, &server.settings);
        state.pins.add(Pin::Replication);
        state
    }
}

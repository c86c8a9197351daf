//! Completes the login of an authenticated client with the messages that a server would send it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::stream::Stream;
use evenkeel_engine::timers;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::client_scanner::ClientScanner;
use evenkeel_wire::postgres::conversation::Sending;
use evenkeel_wire::postgres::startup::CancelKey;
use evenkeel_wire::postgres::{TransactionStatus, build};
use rustc_hash::FxHashMap;

use super::super::error_reply::ErrorReply;
use super::super::held::HeldUntil;
use super::super::held_state::Knowledge;
use super::super::prepare_context::TransactionNames;
use super::super::sequences::Sequences;
use super::super::server::ServerConnection;
use super::super::user_state::{Account, UserState};
use super::super::{ActiveRequest, Session, Stage, TEXT_LENGTH_MAX};
use super::credential::LoginGrant;
use super::{LoginError, LoginHandler, LoginRequest};
use crate::cancel;
use crate::error_catalog;
use crate::server::Server;
use crate::server_info::FIRST_READING_LIMIT;
use crate::service::database::DatabaseSnapshot;
use crate::session::handle::{ApplicationName, Login, SessionHandle};
use crate::session::login_connection;
use crate::session::placement::Placement;
use crate::upstream::pool_registry::{Credential, PoolUser};
use evenkeel_sql::session_state::analysis::CatalogChange;
use evenkeel_sql::session_state::settings::{
    self, SessionState, SettingSet, StartupError, spelling,
};

/// Initial state of a session.
pub(super) struct InitialState {
    pub(super) account: Rc<Account>,
    pub(super) state: SessionState,
    pub(super) key: cancel::Key,
    pub(super) application: ApplicationName,
    /// Connection of a replication client and its placement; `None` for other clients.
    pub(super) connection: Option<(Box<ServerConnection>, Placement)>,
}

/// Returns whether the error concerns an unavailable server and not the client.
fn is_of_server(error_reply: &ErrorReply) -> bool {
    let class = &error_reply.code.0[..2];
    class == b"08" || class == b"57"
}

impl<'a> LoginHandler<'a> {
    /// Completes the login of an authenticated client.
    pub(super) async fn greet(
        &self,
        stream: &mut Stream,
        request: &LoginRequest,
        proof: LoginGrant,
    ) -> Result<InitialState, LoginError> {
        let interner = self.context.worker.interner();
        let parameters = request.parameters.iter();
        let startup = settings::from_startup(
            parameters.map(|(name, value)| (&**name, &**value)),
            interner,
        )
        .map_err(|error| refused_settings(&error))?;
        let mut out = proof.own.last_word.clone();
        let account = self.account(request, proof);
        let state = self.session_state(&account, startup).await?;
        account.enters(&self.context.service);
        let known = account.catalog_expected();
        let _ = timers::timeout(FIRST_READING_LIMIT, known).await;
        build::authentication_ok(&mut out);
        account.write_greeting(&state, &mut out);
        let key = self.end_greeting(request, &account, &mut out)?;
        stream.send(self.context.worker, &out).await?;
        Ok(InitialState {
            account,
            state,
            key,
            application: request.application(),
            connection: None,
        })
    }

    /// Writes the end of the login, with the key for cancel requests of the session.
    pub(super) fn end_greeting(
        &self,
        request: &LoginRequest,
        account: &Account,
        out: &mut Vec<u8>,
    ) -> Result<cancel::Key, LoginError> {
        let keyring = self
            .context
            .worker
            .shared
            .keyring
            .get()
            .ok_or(LoginError::Disconnected)?;
        let place = cancel::Place::new(self.context.worker.index(), self.slot);
        let owner = cancel::SessionOwner {
            service: self.context.permit.service().id,
            user: Arc::clone(&account.pool_user.user),
        };
        let key = keyring
            .key(place, owner)
            .ok_or_else(|| ErrorReply::new(&error_catalog::OUT_OF_PROCESS_IDS))?;
        let shown = keyring.show(&key, request.minor);
        let CancelKey { process, secret } = shown.key();
        build::backend_key_data(out, process, secret);
        build::ready_for_query(out, TransactionStatus::Idle);
        Ok(key)
    }

    pub(super) fn account(&self, request: &LoginRequest, mut proof: LoginGrant) -> Rc<Account> {
        let credential = proof.take_credential();
        let pool_user = self.pool_user(request, proof.server_user, credential, proof.generation);
        self.context.worker_pool.account(pool_user, |user| {
            UserState::new(user, &self.context.service)
        })
    }

    pub(super) fn pool_user(
        &self,
        request: &LoginRequest,
        server_user: String,
        credential: Credential,
        generation: u64,
    ) -> PoolUser {
        let pool_registry = &self.context.service.pool_registry;
        let replication = request.for_replication();
        PoolUser {
            user: request.user.as_str().into(),
            server_user: server_user.into(),
            database: request.database.as_str().into(),
            credential,
            generation,
            // A unique number: replication clients share no pool.
            identity: replication.as_ref().map_or(0, |_| SessionHandle::draw_id()),
            replication,
            user_number: pool_registry.number(request.user.as_bytes()),
            database_number: pool_registry.number(request.database.as_bytes()),
        }
    }

    /// Returns the initial session state. A server is queried only if no server has reported it
    /// yet.
    async fn session_state(
        &self,
        account: &Rc<Account>,
        startup: SettingSet,
    ) -> Result<SessionState, LoginError> {
        if let Some(state) = account.session_state(&startup, self.context.worker.interner()) {
            return Ok(state);
        }
        let view = login_connection::wait_for_server(self.context.permit.service()).await;
        let database = view.database().ok_or(LoginError::Disconnected)?;
        let why = login_connection::fault_text(self.context.permit.service());
        let mut last = ErrorReply::with(&error_catalog::NO_SERVER_AVAILABLE, &[&why]);
        for (server, limit) in login_connection::candidates(&view, database) {
            let queried = self.query_baseline(account, (server, database), &startup, limit);
            match queried.await {
                Ok(()) => break,
                Err(error_reply) if is_of_server(&error_reply) => last = error_reply,
                Err(error_reply) => return Err(error_reply.into()),
            }
        }
        let state = account.session_state(&startup, self.context.worker.interner());
        state.ok_or(LoginError::Rejected(last))
    }

    async fn query_baseline(
        &self,
        account: &Account,
        (server, view): (&Arc<Server>, &DatabaseSnapshot),
        startup: &SettingSet,
        limit: Duration,
    ) -> Result<(), ErrorReply> {
        let unresponsive =
            || ErrorReply::with(&error_catalog::SERVER_UNRESPONSIVE, &[&server.name]);
        let acquiring = login_connection::acquire(&self.context.worker_pool, account, server, view);
        let mut login_connection = match timers::timeout(limit, acquiring).await {
            Ok(Ok(acquired)) => acquired,
            Ok(Err(error)) => return Err(ErrorReply::from_acquire_error(&error)),
            Err(_) => return Err(unresponsive()),
        };
        if let Some(connection) = &mut login_connection.connection {
            let querying = timers::timeout(limit, self.query_startup(account, connection, startup));
            querying.await.unwrap_or_else(|_| Err(unresponsive()))?;
        }
        login_connection.release();
        Ok(())
    }

    /// Sets the startup settings on a server connection, and records the resulting values.
    async fn query_startup(
        &self,
        account: &Account,
        server: &mut ServerConnection,
        startup: &SettingSet,
    ) -> Result<(), ErrorReply> {
        let interner = self.context.worker.interner();
        account.update_baseline(server);
        let login_settings = server.settings.login().clone();
        let state = SessionState::new(startup.clone(), login_settings, &server.settings);
        let mut sql = Vec::new();
        if let Some(wanted) = server.settings.prepare(&state, interner, &mut sql) {
            server.run(self.context.worker, &[&sql]).await?;
            server
                .settings
                .restored(wanted, self.context.worker.interner());
        }
        account.record_accepted(startup, &server.settings);
        Ok(())
    }

    /// Creates the session of a logged-in client.
    pub(super) fn enter(&self, client: Stream, greeted: InitialState) -> Session<'a> {
        let pool_user = &greeted.account.pool_user;
        let (user, database) = (Arc::clone(&pool_user.user), Arc::clone(&pool_user.database));
        self.context.handle.log_in(Login {
            id: SessionHandle::draw_id(),
            user,
            database,
            key: Some(greeted.key),
            peer: self.context.peer,
            application: greeted.application,
        });
        let mut core = self.context.core(&greeted.account, client);
        let connection = greeted.connection;
        core.server = connection.map(|connection| self.bind(connection, &mut core.acquirer));
        Session {
            core,
            protocol: Arc::clone(&self.protocol),
            account: greeted.account,
            scanner: ClientScanner::new(TEXT_LENGTH_MAX),
            passing: Sending::Forward,
            pending_input: Vec::new(),
            held_until: HeldUntil::default(),
            segment: 0,
            stage: Stage::Ready,
            statements: super::super::ClientStatements::default(),
            unnamed: super::super::UnnamedStatements::default(),
            portals: super::super::Portals::default(),
            state: greeted.state,
            effects: super::super::PendingEffects::default(),
            release_after_send: false,
            is_terminating: false,
            pending: Default::default(),
            must_restore_startup: false,
            names: TransactionNames::default(),
            listening: None,
            knowledge: Knowledge::default(),
            source: None,
            sequences: Sequences::default(),
            token: evenkeel_policy::causality::CausalityToken::new(),
            catalog_change: CatalogChange::None,
            changes_plans: false,
            changed_catalog_us: 0,
            database_change: None,
            active: ActiveRequest::new(),
            rules_cache: FxHashMap::default(),
            refusal: None,
            refused_setting: ([0; 5], String::new()),
        }
    }
}

/// Returns the error that servers send for unusable startup settings.
fn refused_settings(error: &StartupError) -> ErrorReply {
    let sqlstate = match error {
        StartupError::Switch(_) | StartupError::NoValue(_) => b"42601",
        StartupError::Unreadable(_) => b"22023",
    };
    ErrorReply::with(&error_catalog::STARTUP_REJECTED, &[error]).coded(SqlState(*sqlstate))
}

impl Account {
    /// Writes the parameters that a server would report to a client with these settings.
    fn write_greeting(&self, state: &SessionState, out: &mut Vec<u8>) {
        self.with_reports(|reports| {
            for (name, value) in reports {
                build::parameter_status(out, name, value);
            }
        });
        for (name, value) in state.reported.values().iter() {
            build::parameter_status(out, spelling(name), value);
        }
    }
}

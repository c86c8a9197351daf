//! Creates the session after authentication: assigns the account's pools, and checks the account at
//! a server if necessary.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_wire::mysql::backend::OkPacket;
use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::flags::{Capabilities, Status};

use super::super::Session;
use super::super::server_login::{self, Baseline};
use super::super::user_state::{Account, UserState};
use super::client_packets::ClientPackets;
use super::credential::LoginGrant;
use super::server_check::ServerCheckError;
use super::{ClientHandshake, InitialState, LoginError, LoginHandler, LoginRequest, SessionParts};
use crate::service::ServiceSnapshot;
use crate::session::handle::{ApplicationName, Login};
use crate::session::login_connection;
use crate::upstream::pool_registry::{self, PoolHandle, PoolUser};
use crate::upstream::worker_pool::PoolableConnection;
use evenkeel_sql::session_state::mysql::status_of;

/// Capabilities that a server connection and its clients must share exactly: they change the
/// meaning or format of statements, or the format of results. The EOF after columns contains flags
/// and warnings that a server sends nowhere else.
const IDENTITY: Capabilities = Capabilities::FOUND_ROWS
    .with(Capabilities::NO_SCHEMA)
    .with(Capabilities::LOCAL_FILES)
    .with(Capabilities::IGNORE_SPACE)
    .with(Capabilities::INTERACTIVE)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS)
    .with(Capabilities::DEPRECATE_EOF)
    .with(Capabilities::QUERY_ATTRIBUTES)
    .with(Capabilities::EXTENDED_METADATA)
    .with(Capabilities::BULK)
    .with(Capabilities::BULK_UNIT_RESULTS);

/// Returns the capabilities to request on a server connection for clients with this identity.
pub(in super::super) fn wanted(identity: u64) -> Capabilities {
    let mine = Capabilities::SPOKEN
        .without(IDENTITY)
        .without(Capabilities::SSL)
        .without(Capabilities::CACHE_METADATA)
        .without(Capabilities::PROGRESS)
        .without(Capabilities::EXPIRED_PASSWORDS)
        .without(Capabilities::CONNECT_WITH_DB)
        .without(Capabilities::ODBC)
        .without(Capabilities::IGNORE_SIGPIPE);
    mine.with(Capabilities(identity).both(IDENTITY))
}

impl<'a> LoginHandler<'a> {
    /// Returns the account and initial state of an authenticated client. A server is queried only
    /// for facts that no server has reported yet.
    pub(super) async fn prepare(
        &self,
        view: &Arc<ServiceSnapshot>,
        request: &LoginRequest,
        proof: LoginGrant,
    ) -> Result<(Rc<Account>, InitialState), LoginError> {
        let warms = proof.own.warms;
        let account = self.account(request, proof);
        if warms {
            self.warm(view, &account);
        }
        let schema = request.schema.as_deref();
        let is_known = |schema| account.known.may_use(schema, clock::now_ms());
        if !account.known.is_current() || !schema.is_none_or(is_known) {
            // If no server is available, the previous result is sufficient: the session then waits
            // for a server.
            let may_enter = has_been_in(&account, schema);
            let view = match may_enter {
                true => Arc::clone(view),
                false => login_connection::wait_for_server(self.context.permit.service()).await,
            };
            match self.check_at_servers(&view, &account, schema).await {
                Ok(()) => {}
                Err(ServerCheckError::OfServer(_)) if may_enter => {}
                Err(
                    ServerCheckError::OfServer(error_reply)
                    | ServerCheckError::Rejected(error_reply),
                ) => {
                    return Err(error_reply.into());
                }
            }
        }
        let baseline = account.known.baseline().ok_or(LoginError::Disconnected)?;
        let begin = InitialState {
            schema: request.schema.clone(),
            collation: request.collation,
            version: Arc::clone(&baseline.version),
            baseline,
        };
        Ok((account, begin))
    }

    fn account(&self, request: &LoginRequest, mut proof: LoginGrant) -> Rc<Account> {
        let credential = proof.take_credential();
        let pool_user = self.pool_user(request, proof.server_user, credential, proof.generation);
        self.context
            .worker_pool
            .account(pool_user, |user| UserState::of(user, &self.context.service))
    }

    pub(super) fn pool_user(
        &self,
        request: &LoginRequest,
        server_user: String,
        credential: pool_registry::Credential,
        generation: u64,
    ) -> PoolUser {
        let pool_registry = &self.context.service.pool_registry;
        PoolUser {
            user: request.user.as_str().into(),
            server_user: server_user.into(),
            // The schema is a session setting: connections are used for all schemas.
            database: "".into(),
            credential,
            generation,
            identity: request.handshake.agreed.both(IDENTITY).0,
            replication: None,
            user_number: pool_registry.number(request.user.as_bytes()),
            database_number: pool_registry.number(b""),
        }
    }

    /// Presents the password to all servers, so that a promoted primary accepts the user. A server
    /// that has seen the password accepts the user without it until a restart.
    fn warm(&self, view: &Arc<ServiceSnapshot>, account: &Account) {
        let Some(database) = view.database() else {
            return;
        };
        let pools = view
            .servers
            .iter()
            .map(|server| account.pool_handle(server, &database.connection_limits));
        let pools: Vec<Arc<PoolHandle>> = pools.collect();
        let (worker, service) = (
            Rc::clone(self.context.worker),
            Arc::clone(self.context.permit.service()),
        );
        self.context.worker.spawn(async move {
            for pooled in pools {
                match server_login::open(&worker, &service, &pooled).await {
                    Ok(connection) => connection.disconnect("password cached by the server"),
                    Err(error) => {
                        let (server, why) = (&pooled.server.name, error.message);
                        tracing::debug!(%server, why, "cannot present the new password to the \
                                                       server");
                    }
                }
            }
        });
    }

    pub(super) async fn send_ok(
        &self,
        packets: &mut ClientPackets,
        begin: &InitialState,
        (agreed, info): (Capabilities, &[u8]),
    ) -> Result<(), LoginError> {
        let ok = OkPacket {
            status: status(&begin.baseline),
            info,
            ..OkPacket::default()
        };
        let mut out = Vec::new();
        build::ok(&mut out, packets.next(), &ok, agreed);
        packets.send(self.context.worker, &out).await
    }

    /// Creates the session of a client that has logged in.
    pub(super) fn enter(
        &self,
        packets: ClientPackets,
        (handshake, application): (ClientHandshake, ApplicationName),
        account: Rc<Account>,
        begin: InitialState,
    ) -> Session<'a> {
        let schema = begin.schema.as_deref().unwrap_or_default();
        let schema = String::from_utf8_lossy(schema);
        let user = Arc::clone(&account.pool_user.user);
        let (client, ahead) = packets.into_parts();
        self.context.handle.log_in(Login {
            id: handshake.id,
            user,
            database: schema.into(),
            key: None,
            peer: self.context.peer,
            application,
        });
        Session::new(SessionParts {
            core: self.context.core(&account, client),
            shared: Arc::clone(&self.shared),
            account,
            ahead,
            handshake,
            begin,
        })
    }
}

fn has_been_in(account: &Account, schema: Option<&[u8]>) -> bool {
    let known = &account.known;
    known.baseline().is_some() && schema.is_none_or(|schema| known.was_usable(schema))
}

fn status(baseline: &Baseline) -> Status {
    status_of(baseline.version.mariadb, |name| baseline.value(name))
}

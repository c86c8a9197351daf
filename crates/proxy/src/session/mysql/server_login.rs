//! Opens and authenticates server connections in the name of a client's account.

mod line;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::stream::Stream;
use evenkeel_engine::timers;
use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::greeting::{self, First};

use self::line::{ServerPackets, refused};
use super::server::ServerConnection;
use super::server_greetings::{ServerGreeting, Version};
use super::shared::MysqlService;
use crate::server::Server;
use crate::service::{Service, ServiceSnapshot};
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::pool_registry::{PoolHandle, PoolUser};
use crate::upstream::server_login::{reach, reach_same_peer, with_login_timeout};
use crate::worker::Worker;
use evenkeel_sql::session_state::mysql as state;

/// Result of a login at a server, with session trackers enabled.
pub(super) struct ServerLogin {
    pub(super) stream: Stream,
    /// Capabilities agreed between Evenkeel and the server.
    pub(super) agreed: Capabilities,
    /// Connection id, as used by KILL.
    pub(super) id: u32,
    /// Identity of the server that assigned the connection id.
    pub(super) identity: Box<[u8]>,
    pub(super) version: Arc<Version>,
    pub(super) status: Status,
    pub(super) baseline: Arc<Baseline>,
}

/// Variable name and value.
type Pair = (Box<[u8]>, Box<[u8]>);

/// Session state of a server connection right after its login.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// Values of the tracked variables on the server; names are in lower case.
    pub(super) variables: Vec<Pair>,
    pub(super) version: Arc<Version>,
    /// Statement that disables server defaults which would leak state to the next client; `None`
    /// for most servers.
    pub(super) calming: Option<Box<str>>,
    /// True if a reset connection no longer waits for its cluster to synchronize.
    pub(super) is_forgetful: bool,
}

impl Baseline {
    /// Returns the names and values.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        let pairs = self.variables.iter();
        pairs.map(|(name, value)| (&**name, &**value))
    }

    pub(super) fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let mut pairs = self.pairs();
        pairs
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }
}

/// Opens a connection and logs in.
pub(super) async fn open(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    pooled: &Arc<PoolHandle>,
) -> Result<Box<ServerConnection>, ConnectError> {
    let reaching = reach(worker, service, &pooled.server);
    let connection = open_on(worker, service, pooled, reaching).await?;
    let shared = service
        .database()
        .and_then(|database| database.state_of::<MysqlService>());
    if let Some(shared) = shared {
        let baselines = &shared.logins.baselines;
        baselines.refresh(&pooled.pool_user, &connection.baseline);
    }
    pooled.server.counters.sessions.add(1);
    Ok(connection)
}

/// Opens another connection with the same account to the same peer.
pub(super) async fn open_to_same_peer(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    one: &CancelTarget,
) -> Result<Box<ServerConnection>, ConnectError> {
    open_on(
        worker,
        service,
        &one.pool_handle,
        reach_same_peer(worker, service, one),
    )
    .await
}

async fn open_on(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    pooled: &Arc<PoolHandle>,
    reaching: impl Future<Output = Result<Stream, ConnectError>>,
) -> Result<Box<ServerConnection>, ConnectError> {
    let view = service.snapshot_owned();
    let shared = service
        .database()
        .and_then(|database| database.state_of::<MysqlService>());
    let shared = shared.ok_or_else(ConnectError::outdated)?;
    let joining = async {
        let line = ServerPackets::new(worker, &pooled.server, reaching.await?);
        join(line, &view, &shared, pooled).await
    };
    let joined = with_login_timeout(&view, &pooled.server, joining).await?;
    Ok(ServerConnection::new(worker, joined, pooled))
}

/// Logs a user in at a server, and out again: the server has accepted the credential. `limit`: time
/// to connect.
pub(super) async fn prove(
    worker: &Rc<Worker>,
    service: &Service,
    (server, user): (&Server, &PoolUser),
    limit: Duration,
) -> Result<(), ConnectError> {
    let view = service.snapshot_owned();
    let shared = service
        .database()
        .and_then(|database| database.state_of::<MysqlService>());
    let shared = shared.ok_or_else(ConnectError::outdated)?;
    let proving = async {
        let greeting = timers::timeout(limit, async {
            let stream = reach(worker, service, server).await?;
            let mut line = ServerPackets::new(worker, server, stream);
            let (_, payload) = line.packet().await?;
            Ok((line, payload))
        });
        let slow = || Err(ConnectError::unreachable(server, "does not respond"));
        let (mut line, payload) = greeting.await.unwrap_or_else(|_| slow())?;
        let greeting = match greeting::first(&payload) {
            Ok(First::Greeting(greeting)) => greeting,
            Ok(First::Error(report)) => return Err(refused(server, &report)),
            Err(fault) => return Err(ConnectError::unreachable(server, fault)),
        };
        let database = view.database().ok_or_else(ConnectError::outdated)?;
        if let Some(connector) = database.connector(server)? {
            line.encrypt(&greeting, connector, user).await?;
        }
        line.log_in(&greeting, &shared, user).await?;
        let mut out = Vec::new();
        build::command(&mut out, Code::Quit, b"");
        line.stream.send_and_close(&out);
        Ok(())
    };
    with_login_timeout(&view, server, proving).await
}

/// Returns the greeting of a server.
pub(super) async fn greeted(
    worker: &Rc<Worker>,
    service: &Service,
    server: &Server,
) -> Result<ServerGreeting, ConnectError> {
    let view = service.snapshot_owned();
    let looking = async {
        let stream = reach(worker, service, server).await?;
        let mut line = ServerPackets::new(worker, server, stream);
        let (_, payload) = line.packet().await?;
        match greeting::first(&payload) {
            Ok(First::Greeting(greeting)) => Ok(ServerGreeting::of(&greeting)),
            Ok(First::Error(report)) => Err(refused(server, &report)),
            Err(fault) => Err(ConnectError::unreachable(server, fault)),
        }
    };
    with_login_timeout(&view, server, looking).await
}

async fn join(
    mut line: ServerPackets<'_>,
    view: &ServiceSnapshot,
    shared: &MysqlService,
    pooled: &PoolHandle,
) -> Result<ServerLogin, ConnectError> {
    let server = line.server;
    let (_, payload) = line.packet().await?;
    let greeting = match greeting::first(&payload) {
        Ok(First::Greeting(greeting)) => greeting,
        Ok(First::Error(report)) => return Err(refused(server, &report)),
        Err(fault) => return Err(ConnectError::unreachable(server, fault)),
    };
    let face = ServerGreeting::of(&greeting);
    let version = Arc::clone(&face.version);
    shared.logins.greetings.record(server.id, face);
    let database = view.database().ok_or_else(ConnectError::outdated)?;
    if let Some(connector) = database.connector(server)? {
        line.encrypt(&greeting, connector, &pooled.pool_user)
            .await?;
    }
    let logged_in = line.log_in(&greeting, shared, &pooled.pool_user).await?;
    if let Some(lacking) = lacking(pooled.pool_user.identity, logged_in.agreed) {
        return Err(ConnectError::unsuitable(server, Lacking(lacking)));
    }
    let variables = line.set_up(logged_in.agreed, &version).await?;
    let (followed, others): (Vec<Pair>, Vec<Pair>) = variables
        .into_iter()
        .partition(|(name, _)| state::is_followed(name));
    let others = || others.iter().map(|(name, value)| (&**name, &**value));
    let calming = state::disable_leaky_variables(others());
    if let Some(calming) = &calming {
        line.run(calming, logged_in.agreed).await?;
    }
    let baseline = Arc::new(Baseline {
        variables: followed,
        version: Arc::clone(&version),
        calming: calming.map(String::into_boxed_str),
        is_forgetful: state::loses_sync_wait_on_reset(others()),
    });
    Ok(ServerLogin {
        stream: line.stream,
        agreed: logged_in.agreed,
        id: greeting.connection,
        identity: state::identity(others()),
        version,
        status: logged_in.status,
        baseline,
    })
}

/// Capabilities that determine the format of results and commands, with their documented names.
/// They cannot be revoked after a client's login.
const FORMATS: [(Capabilities, &str); 5] = [
    (Capabilities::DEPRECATE_EOF, "CLIENT_DEPRECATE_EOF"),
    (
        Capabilities::EXTENDED_METADATA,
        "MARIADB_CLIENT_EXTENDED_METADATA",
    ),
    (Capabilities::BULK, "MARIADB_CLIENT_STMT_BULK_OPERATIONS"),
    (
        Capabilities::BULK_UNIT_RESULTS,
        "MARIADB_CLIENT_BULK_UNIT_RESULTS",
    ),
    (Capabilities::QUERY_ATTRIBUTES, "CLIENT_QUERY_ATTRIBUTES"),
];

/// Returns a capability that the pool's clients have negotiated and this server lacks. The server
/// was added, or replaced by an older version, after their logins.
fn lacking(identity: u64, agreed: Capabilities) -> Option<&'static str> {
    let mut promised = FORMATS
        .iter()
        .filter(|(format, _)| Capabilities(identity).has(*format));
    let lacking = promised.find(|(format, _)| !agreed.has(*format));
    lacking.map(|(_, name)| *name)
}

/// Message about the missing capability.
#[derive(Debug)]
struct Lacking(&'static str);

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "does not support {name}, which was negotiated with this client at login; reconnect to \
             use this server"
        )
    }
}

fn question() -> String {
    let followed = state::FOLLOWED.join("','");
    let leaky = state::LEAKY_VARIABLES.join("','");
    let identifying = state::IDENTIFYING.join("','");
    let clustering = state::CLUSTERING.join("','");
    format!(
        "SHOW SESSION VARIABLES WHERE Variable_name IN \
         ('{followed}','{leaky}','{identifying}','{clustering}')"
    )
}

#[cfg(test)]
mod tests {
    use super::super::login::wanted;
    use super::*;

    #[test]
    fn a_server_that_lacks_what_clients_were_promised_does_not_serve_them() {
        let agreed = Capabilities::DEPRECATE_EOF.with(Capabilities::BULK);
        let promised = agreed.with(Capabilities::EXTENDED_METADATA);
        let missed = Some("MARIADB_CLIENT_EXTENDED_METADATA");
        assert_eq!(lacking(promised.0, agreed), missed);
        assert_eq!(lacking(agreed.0, promised), None, "more is no harm");
        let attributes = agreed.with(Capabilities::QUERY_ATTRIBUTES);
        let missed = Some("CLIENT_QUERY_ATTRIBUTES");
        assert_eq!(lacking(attributes.0, agreed), missed);
    }

    #[test]
    fn a_connection_asks_for_what_its_clients_have_and_for_nothing_that_they_may_not_have() {
        let identity = Capabilities::FOUND_ROWS.with(Capabilities::SSL);
        let with = wanted(identity.0);
        assert!(with.has(Capabilities::FOUND_ROWS) && !with.has(Capabilities::LOCAL_FILES));
        assert!(!with.has(Capabilities::SSL) && !with.has(Capabilities::CONNECT_WITH_DB));
        assert!(with.has(Capabilities::SESSION_TRACK) && !with.has(Capabilities::DEPRECATE_EOF));
        assert!(with.has(Capabilities::MULTI_STATEMENTS));
        assert!(
            !wanted(0).has(Capabilities::MULTI_RESULTS),
            "as an old client"
        );
    }
}

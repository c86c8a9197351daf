//! Holds the part of a service that is specific to database protocols: its pools, server info,
//! queues, and the database part of its snapshot.

use std::any::Any;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use evenkeel_engine::panics::lock;
use evenkeel_policy::causality::{self, Consistency};
use evenkeel_policy::connection_pool::{self, SharedPools};
use evenkeel_policy::failover_queue::{self, PrimaryStatus};
use evenkeel_policy::load::Load;
use evenkeel_policy::route;
use evenkeel_policy::server_set::ServerSet;
use evenkeel_tls::{Acceptor, Connector, ServerEncryption};
use evenkeel_wire::SqlProtocol;
use ipnet::IpNet;
use zeroize::Zeroizing;

use super::digests::Digests;
use super::failover_queue::SharedFailoverQueue;
use super::login_limiter::LoginLimiter;
use super::pin_causes::PinCauses;
use super::rules::{Hits, RuleSet};
use super::stats::{ServiceStats, UserStats};
use crate::server::Server;
use crate::server_info::ServerInfo;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::kept_passwords::KeptPasswords;
use crate::upstream::pool_registry::{PoolRegistry, PoolUser};
use evenkeel_sql::session_state::analysis::RoutingHint;

pub use super::login_limiter::LoginLimits;
pub use super::pin_causes::{PinCause, PinCount};
pub use crate::upstream::pool_registry::ConnectionLimits;
pub use crate::upstream::pool_registry::pause::Paused;

/// Current configuration of a database service; replaced together with its
/// [`ServiceSnapshot`](super::ServiceSnapshot).
#[derive(Debug)]
pub struct DatabaseSnapshot {
    /// True if a client keeps its server connection until it disconnects.
    pub session_mode: bool,
    /// Selects the statements that go to replicas.
    pub split: route::SplitSettings,
    /// Consistency that reads require.
    pub consistency: Consistency,
    /// Time since which sessions record their writes; 0: from their beginning.
    pub writes_recorded_since_us: u64,
    /// Limits of the wait for consistency.
    pub causality: causality::CausalitySettings,
    /// Limits of server connections.
    pub connection_limits: ConnectionLimits,
    /// Maximum number of prepared statements kept on one server connection.
    pub statements_max: usize,
    /// Time limits.
    pub time_limits: TimeLimits,
    /// Login rules.
    pub auth: Auth,
    /// Names of the servers in the service, in the snapshot's order: hints use these names.
    pub names: Vec<Box<str>>,
    /// Index of the server that takes writes.
    pub primary: Option<usize>,
    /// Number of changes of the primary.
    pub epoch: u64,
    /// Servers that serve reads, in the snapshot's order, each with its load.
    pub readers: ServerSet,
    /// Number of sessions that have or await a connection at each server, by server index.
    pub server_loads: Vec<Arc<Load>>,
    /// True for replicas that serve reads, by server index.
    pub replicas: Vec<bool>,
    /// True for spare replicas, which may lag and serve reads only while no other replica can; by
    /// server index.
    pub spares: Vec<bool>,
    /// TLS towards clients.
    pub tls: Option<Arc<Acceptor>>,
    /// Encryption towards the servers by server id; a server without an entry cannot be used.
    pub server_encryption: HashMap<u64, ServerEncryption>,
    /// Other Evenkeel instances in front of the same servers, by instance number.
    pub peers: HashMap<u16, Arc<Server>>,
    /// Rules that an operator has set for statements. `None`: no rules.
    pub rules: Option<Arc<RuleSet>>,
}

/// Time limits; zero: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// Limit of a query, from its first byte to the end of its result.
    pub query: Duration,
    /// Limit of a transaction, from its beginning to its end.
    pub transaction: Duration,
    /// Limit of a client's silence in an open transaction.
    pub idle_in_transaction: Duration,
    /// Limit of a login.
    pub login: Duration,
    /// Limit of a login's wait for a server that can check its credentials.
    pub login_server_wait: Duration,
}

/// Login rules.
#[derive(Debug, Clone)]
pub struct Auth {
    /// Source of users that are missing in the file.
    pub source: AuthSource,
    /// The users file.
    pub users: HashMap<String, FileUser>,
    /// Networks that users may connect from.
    pub allow_from: HashMap<String, Vec<IpNet>>,
    /// Networks for all other users; `None`: any address.
    pub allow_others_from: Option<Vec<IpNet>>,
}

/// Source of users that are not in the users file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthSource {
    /// The servers' verifiers, read with the monitor account.
    Server,
    /// A login at a server with the client's password.
    Login,
    /// None: only users of the file may log in.
    File,
}

/// A user of the users file.
#[derive(Clone, Default)]
pub struct FileUser {
    /// Credential that a login is checked against; `None`: the credential at the servers.
    pub credential: Option<FileCredential>,
    /// True if the user may log in with a client certificate.
    pub certificate: bool,
    /// True if the password is requested in clear text.
    pub cleartext: bool,
    /// User for the logins to servers; `None`: the same user.
    pub server_user: Option<String>,
    /// Password for the logins to servers; `None`: the credential of the client's login.
    pub server_password: Option<Zeroizing<String>>,
}

/// Credential that a login is checked against.
#[derive(Clone)]
pub enum FileCredential {
    /// The password.
    Password(Zeroizing<String>),
    /// A verifier in the form that servers store.
    Verifier(Zeroizing<String>),
}

impl std::fmt::Debug for FileUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileUser")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl FileUser {
    /// Returns the password, if logins are checked against one.
    pub(crate) fn password(&self) -> Option<&[u8]> {
        match &self.credential {
            Some(FileCredential::Password(password)) => Some(password.as_bytes()),
            _ => None,
        }
    }
}

impl DatabaseSnapshot {
    /// Returns whether reads may go to replicas; a client in session mode stays at the primary.
    pub(crate) fn splits_reads(&self) -> bool {
        self.split.reads && !self.session_mode
    }

    /// Returns the TLS connector for a server; `None` only if TLS is off there.
    pub(crate) fn connector(&self, server: &Server) -> Result<Option<&Connector>, ConnectError> {
        let why = match self.server_encryption.get(&server.id) {
            Some(ServerEncryption::Plaintext) => return Ok(None),
            Some(ServerEncryption::Encrypted(connector)) => return Ok(Some(connector)),
            Some(ServerEncryption::Broken(why)) => format!("cannot set up TLS: {why}"),
            None => "removed from the configuration".to_owned(),
        };
        Err(ConnectError::unreachable(server, why))
    }

    /// Resolves a hint in a comment for the router.
    pub(crate) fn resolve_hint(&self, hint: &RoutingHint) -> route::ResolvedHint {
        hint.resolve(|name| self.names.iter().position(|known| known.as_bytes() == name))
    }
}

impl Auth {
    /// Returns whether a user may connect from an address; clients of a Unix socket have none, and
    /// may.
    pub(crate) fn may_come_from(&self, user: &str, address: Option<IpAddr>) -> bool {
        let networks = self.allow_from.get(user);
        let (Some(networks), Some(address)) =
            (networks.or(self.allow_others_from.as_ref()), address)
        else {
            return true;
        };
        let address = address.to_canonical();
        networks.iter().any(|network| network.contains(&address))
    }
}

/// State that a service's workers share for the service's lifetime.
#[derive(Debug)]
pub struct DatabaseService {
    pub(crate) pool_registry: Arc<PoolRegistry>,
    /// Information about the servers, collected by the control plane.
    pub server_info: Arc<ServerInfo>,
    pub(crate) failover_queue: SharedFailoverQueue,
    protocol: Arc<dyn ProtocolState>,
    stats: Box<[ServiceStats]>,
    /// Limits clients that have not logged in yet.
    login_limiter: ArcSwap<LoginLimiter>,
    /// Passwords of clients whose logins servers have checked.
    pub(crate) kept_passwords: KeptPasswords,
    /// Number of sessions that have or await a connection at each server, by server id.
    server_loads: Mutex<HashMap<u64, Arc<Load>>>,
    /// Match counts of rules by name, which survive a reload.
    hits: Mutex<HashMap<Box<str>, Arc<Hits>>>,
    /// `None`: statements are not counted separately.
    digests: ArcSwapOption<Digests>,
    pin_causes: PinCauses,
    /// Statistics by worker, user and database. Each entry has one writer and is never removed.
    user_stats: Mutex<HashMap<UserStatsKey, UserStatsEntry>>,
}

/// State of one protocol that the workers share; its sessions know the type.
pub trait ProtocolState: Any + std::fmt::Debug + Send + Sync {
    /// Returns the protocol.
    fn protocol(&self) -> SqlProtocol;
}

/// Worker index, user name, and database name.
type UserStatsKey = (usize, Arc<str>, Arc<str>);

/// Maximum number of entries. Clients can create any number of schemas; beyond this limit,
/// statistics are summed under an empty database name.
const USER_STATS_MAX: usize = 10_000;

/// One worker's statistics of a user in a database.
#[derive(Debug, Clone)]
pub struct UserStatsEntry {
    /// User name.
    pub user: Arc<str>,
    /// Database name.
    pub database: Arc<str>,
    /// Counts of one worker.
    pub stats: Arc<UserStats>,
}

impl DatabaseService {
    /// Returns the causes that have pinned sessions to server connections, the most frequent first.
    pub fn pin_causes(&self) -> Vec<PinCount> {
        self.pin_causes.all()
    }

    /// Counts a pinned session. Returns whether its cause was not seen before.
    pub(crate) fn count_pin(&self, cause: &Arc<PinCause>) -> bool {
        self.pin_causes.count(cause)
    }

    /// Creates the state of a service, without connections or waiting clients.
    pub fn new(
        workers: usize,
        server_info: Arc<ServerInfo>,
        connection_pool: connection_pool::PoolSettings,
        failover_queue: failover_queue::FailoverSettings,
        protocol: Arc<dyn ProtocolState>,
    ) -> Self {
        Self {
            pool_registry: Arc::new(PoolRegistry::new(SharedPools::new(
                workers,
                u32::MAX,
                connection_pool,
            ))),
            server_info,
            failover_queue: SharedFailoverQueue::new(failover_queue),
            protocol,
            stats: (0..workers).map(|_| ServiceStats::new()).collect(),
            login_limiter: ArcSwap::from_pointee(LoginLimiter::new(LoginLimits::default())),
            kept_passwords: KeptPasswords::default(),
            server_loads: Mutex::default(),
            hits: Mutex::default(),
            digests: ArcSwapOption::empty(),
            pin_causes: PinCauses::default(),
            user_stats: Mutex::default(),
        }
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> SqlProtocol {
        self.protocol.protocol()
    }

    /// Returns the state of a protocol. `None`: the service has another protocol.
    pub(crate) fn state_of<P: ProtocolState>(&self) -> Option<Arc<P>> {
        let state: Arc<dyn Any + Send + Sync> = Arc::<dyn ProtocolState>::clone(&self.protocol);
        state.downcast().ok()
    }

    /// Applies changed settings from a reload.
    pub fn set_settings(
        &self,
        connection_pool: connection_pool::PoolSettings,
        failover_queue: failover_queue::FailoverSettings,
    ) {
        self.pool_registry.pools.set_settings(connection_pool);
        self.failover_queue.set_settings(failover_queue);
    }

    /// Sets the limits of concurrent logins. Logins in progress and queued ones keep the previous
    /// limits.
    pub fn set_login_limits(&self, limits: LoginLimits) {
        if self.login_limiter.load().limits() != limits {
            self.login_limiter
                .store(Arc::new(LoginLimiter::new(limits)));
        }
    }

    /// Returns the limiter for clients that have not logged in yet.
    pub(crate) fn login_limiter(&self) -> Arc<LoginLimiter> {
        self.login_limiter.load_full()
    }

    /// Sets the maximum number of statements that are counted separately; zero: none. If it
    /// changes, all counts start at zero.
    pub fn set_digests_max(&self, max: usize) {
        let known = self.digests.load();
        let is_same = known.as_ref().map_or(0, |digests| digests.max()) == max;
        if !is_same {
            let workers = self.stats.len();
            let digests = (max > 0).then(|| Arc::new(Digests::new(max, workers)));
            self.digests.store(digests);
        }
    }

    /// Returns the statements that are counted separately.
    pub fn digests(&self) -> Guard<Option<Arc<Digests>>> {
        self.digests.load()
    }

    /// Sets the status of the primary. Called after each role check; if there is a primary,
    /// waiting clients continue.
    pub fn set_primary_status(&self, primary: PrimaryStatus) {
        self.failover_queue.set_primary(primary);
    }

    /// Returns the number of clients that wait for a primary.
    pub fn waiting_for_primary(&self) -> usize {
        self.failover_queue.len()
    }

    /// Returns the load of a server, which all snapshots share: the number of sessions that have
    /// or await a connection there.
    pub fn server_load(&self, server_id: u64) -> Arc<Load> {
        let mut server_loads = lock(&self.server_loads);
        let load = server_loads
            .entry(server_id)
            .or_insert_with(|| Arc::new(Load::new(None)));
        Arc::clone(load)
    }

    /// Returns the match counts of a rule, which all snapshots with a rule of this name share.
    pub fn hits(&self, rule: &str) -> Arc<Hits> {
        let mut hits = lock(&self.hits);
        if let Some(known) = hits.get(rule) {
            return Arc::clone(known);
        }
        // Counts of rules that no snapshot has are removed.
        hits.retain(|_, known| Arc::strong_count(known) > 1);
        let new = Arc::new(Hits::new(self.stats.len()));
        hits.insert(rule.into(), Arc::clone(&new));
        new
    }

    /// Returns a worker's own statistics of a user in a database.
    pub(crate) fn user_stats(
        &self,
        worker: usize,
        pool_user: &PoolUser,
        database: &Arc<str>,
    ) -> Arc<UserStats> {
        let mut user_stats = lock(&self.user_stats);
        let mut key = (worker, Arc::clone(&pool_user.user), Arc::clone(database));
        if user_stats.len() >= USER_STATS_MAX && !user_stats.contains_key(&key) {
            key.2 = Arc::from("");
        }
        let entry = user_stats
            .entry(key)
            .or_insert_with_key(|(_, user, database)| UserStatsEntry {
                user: Arc::clone(user),
                database: Arc::clone(database),
                stats: Arc::default(),
            });
        Arc::clone(&entry.stats)
    }

    /// Returns the statistics of users in databases: entries of the same user and database must be
    /// summed.
    pub fn all_user_stats(&self) -> Vec<UserStatsEntry> {
        let user_stats = lock(&self.user_stats);
        user_stats.values().cloned().collect()
    }

    /// Returns the counters of each worker.
    pub fn stats(&self) -> &[ServiceStats] {
        &self.stats
    }
}

//! What a service that speaks a database's protocol has besides: what is lent, what is known, who
//! waits; and what its view says of the servers' parts.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use evenkeel_policy::causality::{self, Consistency};
use evenkeel_policy::connection_pool::{self, SharedPools};
use evenkeel_policy::failover_queue::{self, PrimaryStatus};
use evenkeel_policy::load::Load;
use evenkeel_policy::route;
use evenkeel_policy::server_set::ServerSet;
use ipnet::IpNet;
use zeroize::Zeroizing;

use super::digests::Digests;
use super::failover_queue::SharedFailoverQueue;
use super::login_limiter::LoginLimiter;
use super::rules::{Hits, RuleBook};
use super::stats::{ServiceStats, UserStats};
use crate::server::Server;
use crate::server_info::ServerInfo;
use crate::session::pinning::PinCauses;
use crate::session::{mysql, postgres};
use crate::session_state::analysis::RoutingHint;
use crate::tls::{Acceptor, Connector, ServerEncryption};
use crate::upstream::pool_registry::{PoolRegistry, PoolUser};
use crate::upstream::server_login::ConnectError;

pub use super::login_limiter::LoginLimits;
pub use crate::session::pinning::{PinCause, PinCount};
pub use crate::upstream::pool_registry::pause::Paused;

/// How a database is served from now on; replaced with its [`View`](super::View).
#[derive(Debug)]
pub struct DatabaseSnapshot {
    /// A client keeps its server connection until it leaves.
    pub session_mode: bool,
    /// Which statements go to replicas.
    pub split: route::SplitSettings,
    /// What reads must see.
    pub consistency: Consistency,
    /// Since when sessions note what they write; zero: they always did.
    pub noted_since_us: u64,
    /// How long they may wait for it.
    pub causality: causality::CausalitySettings,
    /// Limits of server connections.
    pub sizes: Sizes,
    /// Prepared statements kept on one server connection.
    pub statements_max: usize,
    /// Limits of time.
    pub times: Times,
    /// Who may log in.
    pub auth: Auth,
    /// What the service calls its servers, in the order of the view's: hints name them so.
    pub names: Vec<Box<str>>,
    /// The server that takes writes, by its place in the view.
    pub primary: Option<usize>,
    /// Counts the times that another server became the primary.
    pub epoch: u64,
    /// Who reads: members in the order of the view's servers, with the load of statements that run.
    pub readers: ServerSet,
    /// The same loads, by the server's place.
    pub busy: Vec<Arc<Load>>,
    /// Which servers are replicas that take reads, by their place.
    pub replicas: Vec<bool>,
    /// Which of them are behind the others, and read only while none of these has a connection.
    pub spares: Vec<bool>,
    /// TLS towards clients.
    pub tls: Option<Arc<Acceptor>>,
    /// How the servers are spoken to, by their id; the others are not.
    pub server_encryption: HashMap<u64, ServerEncryption>,
    /// Other Evenkeels before the same clients, by their number.
    pub peers: HashMap<u16, Arc<Server>>,
    /// What an operator wants done with some statements. `None`: nothing.
    pub rules: Option<Arc<RuleBook>>,
}

/// Limits of server connections; [`u32::MAX`]: none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// One user and database at one server.
    pub pool: u32,
    /// All of the service's.
    pub service: u32,
    /// One user's, unless named.
    pub user: u32,
    /// One database's, unless named.
    pub database: u32,
    /// Users with a limit of their own.
    pub users: HashMap<String, u32>,
    /// Databases with a limit of their own.
    pub databases: HashMap<String, u32>,
}

/// Limits of time; zero: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// A query, from its first byte to the end of its result.
    pub query: Duration,
    /// A transaction, from its beginning to its end.
    pub transaction: Duration,
    /// A client that says nothing in an open transaction.
    pub idle_in_transaction: Duration,
    /// A login.
    pub login: Duration,
    /// A login that waits for a server which can be asked.
    pub without_server: Duration,
}

/// Who may log in.
#[derive(Debug, Clone)]
pub struct Auth {
    /// Users that are not in the file are asked for at the servers.
    pub ask_servers: bool,
    /// The file of users.
    pub users: HashMap<String, FileUser>,
    /// Where users may come from.
    pub allow_from: HashMap<String, Vec<IpNet>>,
    /// The others; `None`: from anywhere.
    pub allow_others_from: Option<Vec<IpNet>>,
}

/// A user of the file.
#[derive(Clone, Default)]
pub struct FileUser {
    /// What a login is checked against; `None`: what the servers have.
    pub credential: Option<FileCredential>,
    /// May log in by a client certificate.
    pub certificate: bool,
    /// Is asked for the password as it is.
    pub cleartext: bool,
    /// Who logs in to the servers; `None`: the same.
    pub server_user: Option<String>,
    /// With what; `None`: what the login gave.
    pub server_password: Option<Zeroizing<String>>,
}

/// What a login is checked against.
#[derive(Clone)]
pub enum FileCredential {
    /// The password.
    Password(Zeroizing<String>),
    /// A verifier, as servers keep it.
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
    /// The password, if that is what a login is checked against.
    pub(crate) fn password(&self) -> Option<&[u8]> {
        match &self.credential {
            Some(FileCredential::Password(password)) => Some(password.as_bytes()),
            _ => None,
        }
    }
}

impl DatabaseSnapshot {
    /// Whether reads may go to replicas; a client with a connection of its own stays at the
    /// primary.
    pub(crate) fn splits_reads(&self) -> bool {
        self.split.reads && !self.session_mode
    }

    /// TLS towards a server; `None` only where that is off.
    pub(crate) fn connector(&self, server: &Server) -> Result<Option<&Connector>, ConnectError> {
        let why = match self.server_encryption.get(&server.id) {
            Some(ServerEncryption::Plaintext) => return Ok(None),
            Some(ServerEncryption::Encrypted(connector)) => return Ok(Some(connector)),
            Some(ServerEncryption::Broken(why)) => format!("cannot set up TLS: {why}"),
            None => "removed from the configuration".to_owned(),
        };
        Err(ConnectError::unreachable(server, why))
    }

    /// A hint in a comment, for the router.
    pub(crate) fn routed(&self, hint: &RoutingHint) -> route::ResolvedHint {
        hint.routed(|name| self.names.iter().position(|known| known.as_bytes() == name))
    }
}

impl Auth {
    /// Whether a user may come from an address; clients of a Unix socket have none, and may.
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

impl Sizes {
    pub(crate) fn quotas(&self, user: &str, database: &str) -> connection_pool::PoolLimits {
        connection_pool::PoolLimits {
            pool: self.pool,
            user: *self.users.get(user).unwrap_or(&self.user),
            database: *self.databases.get(database).unwrap_or(&self.database),
        }
    }
}

/// What the workers of a service share, as long as the service lives.
#[derive(Debug)]
pub struct DatabaseService {
    pub(crate) lender: Arc<PoolRegistry>,
    /// What the control plane learns of the servers.
    pub knowledge: Arc<ServerInfo>,
    pub(crate) failover_queue: SharedFailoverQueue,
    pub(crate) own: ProtocolService,
    figures: Box<[ServiceStats]>,
    /// Clients who have not logged in yet.
    doorstep: ArcSwap<LoginLimiter>,
    /// Statements that run at each server, by its id: what balancing looks at.
    busy: Mutex<HashMap<u64, Arc<Load>>>,
    /// How often each rule fitted, by its name: a reload does not forget that.
    hits: Mutex<HashMap<Box<str>, Arc<Hits>>>,
    /// None: statements are not counted apart.
    digests: ArcSwapOption<Digests>,
    pin_causes: PinCauses,
    /// By worker, user and database: each has one writer, and there is one of each for ever.
    usages: Mutex<HashMap<Whose, UserStatsEntry>>,
}

/// What the workers share besides, as the protocol has it.
#[derive(Debug)]
pub(crate) enum ProtocolService {
    Postgres(Arc<postgres::shared::PostgresService>),
    MySql(Arc<mysql::shared::PostgresService>),
}

/// A worker, a user, and a database.
type Whose = (usize, Arc<str>, Arc<str>);

/// A client may make any number of schemas: what users do in more of them is not told apart.
const USAGES_MAX: usize = 10_000;

/// Whose usage it is.
#[derive(Debug, Clone)]
pub struct UserStatsEntry {
    /// Who.
    pub user: Arc<str>,
    /// Where.
    pub database: Arc<str>,
    /// As one worker has counted it.
    pub usage: Arc<UserStats>,
}

impl DatabaseService {
    /// What has pinned sessions to server connections, the most frequent cause first.
    pub fn pin_causes(&self) -> Vec<PinCount> {
        self.pin_causes.all()
    }

    /// A session was pinned. Returns whether its cause is a new one.
    pub(crate) fn pinned(&self, cause: &Arc<PinCause>) -> bool {
        self.pin_causes.count(cause)
    }

    /// For PostgreSQL: nothing is open and nobody waits.
    pub fn postgres(
        workers: usize,
        knowledge: Arc<ServerInfo>,
        connection_pool: connection_pool::PoolSettings,
        failover_queue: failover_queue::FailoverSettings,
    ) -> Self {
        let own = ProtocolService::Postgres(Arc::new(postgres::shared::PostgresService::new()));
        Self::new(workers, knowledge, connection_pool, failover_queue, own)
    }

    /// The same for MySQL.
    pub fn mysql(
        workers: usize,
        knowledge: Arc<ServerInfo>,
        connection_pool: connection_pool::PoolSettings,
        failover_queue: failover_queue::FailoverSettings,
    ) -> Self {
        let own = ProtocolService::MySql(Arc::default());
        Self::new(workers, knowledge, connection_pool, failover_queue, own)
    }

    fn new(
        workers: usize,
        knowledge: Arc<ServerInfo>,
        connection_pool: connection_pool::PoolSettings,
        failover_queue: failover_queue::FailoverSettings,
        own: ProtocolService,
    ) -> Self {
        Self {
            lender: Arc::new(PoolRegistry::new(SharedPools::new(
                workers,
                u32::MAX,
                connection_pool,
            ))),
            knowledge,
            failover_queue: SharedFailoverQueue::new(failover_queue),
            own,
            figures: (0..workers).map(|_| ServiceStats::new()).collect(),
            doorstep: ArcSwap::from_pointee(LoginLimiter::new(LoginLimits::default())),
            busy: Mutex::default(),
            hits: Mutex::default(),
            digests: ArcSwapOption::empty(),
            pin_causes: PinCauses::default(),
            usages: Mutex::default(),
        }
    }

    /// None: it does not speak PostgreSQL.
    pub(crate) fn of_postgres(&self) -> Option<&Arc<postgres::shared::PostgresService>> {
        match &self.own {
            ProtocolService::Postgres(own) => Some(own),
            ProtocolService::MySql(_) => None,
        }
    }

    /// None: it does not speak MySQL.
    pub(crate) fn of_mysql(&self) -> Option<&Arc<mysql::shared::PostgresService>> {
        match &self.own {
            ProtocolService::MySql(own) => Some(own),
            ProtocolService::Postgres(_) => None,
        }
    }

    /// Other settings, from a reload.
    pub fn set_settings(
        &self,
        connection_pool: connection_pool::PoolSettings,
        failover_queue: failover_queue::FailoverSettings,
    ) {
        self.lender.books.set_settings(connection_pool);
        self.failover_queue.set_settings(failover_queue);
    }

    /// So many may be at their login from now on. Who is at it, or waits, is by the number of
    /// before.
    pub fn set_login_places(&self, places: LoginLimits) {
        if self.doorstep.load().places() != places {
            self.doorstep.store(Arc::new(LoginLimiter::new(places)));
        }
    }

    /// Where clients wait who have not logged in yet.
    pub(crate) fn doorstep(&self) -> Arc<LoginLimiter> {
        self.doorstep.load_full()
    }

    /// So many different statements are counted apart from now on; zero: none are. If that was
    /// another number before, counting begins anew.
    pub fn set_digests(&self, max: usize) {
        let known = self.digests.load();
        let is_same = known.as_ref().map_or(0, |digests| digests.max()) == max;
        if !is_same {
            let workers = self.figures.len();
            let digests = (max > 0).then(|| Arc::new(Digests::new(max, workers)));
            self.digests.store(digests);
        }
    }

    /// The statements that are counted apart.
    pub fn digests(&self) -> Guard<Option<Arc<Digests>>> {
        self.digests.load()
    }

    /// What the roles are now, after every look at them: who waits for a primary goes on when there
    /// is one.
    pub fn turn(&self, primary: PrimaryStatus) {
        self.failover_queue.turn(primary);
    }

    /// How many wait for a primary.
    pub fn waiting_for_primary(&self) -> usize {
        self.failover_queue.len()
    }

    /// The statements that run at a server, the same in every view.
    pub fn busy(&self, server_id: u64) -> Arc<Load> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let load = busy
            .entry(server_id)
            .or_insert_with(|| Arc::new(Load::new(None)));
        Arc::clone(load)
    }

    /// The hits of a rule, the same in every view that has one of this name.
    pub fn hits(&self, rule: &str) -> Arc<Hits> {
        let mut hits = self.hits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hits.get(rule) {
            return Arc::clone(known);
        }
        // Those of rules that no view has are forgotten.
        hits.retain(|_, known| Arc::strong_count(known) > 1);
        let new = Arc::new(Hits::new(self.figures.len()));
        hits.insert(rule.into(), Arc::clone(&new));
        new
    }

    /// A worker's own count of what a user does in a database.
    pub(crate) fn usage(
        &self,
        worker: usize,
        who: &PoolUser,
        database: &Arc<str>,
    ) -> Arc<UserStats> {
        let mut usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (worker, Arc::clone(&who.user), Arc::clone(database));
        if usages.len() >= USAGES_MAX && !usages.contains_key(&key) {
            key.2 = Arc::from("");
        }
        let of = usages
            .entry(key)
            .or_insert_with_key(|(_, user, database)| UserStatsEntry {
                user: Arc::clone(user),
                database: Arc::clone(database),
                usage: Arc::default(),
            });
        Arc::clone(&of.usage)
    }

    /// What users did in databases: several entries of one user and database are to be summed.
    pub fn usages(&self) -> Vec<UserStatsEntry> {
        let usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        usages.values().cloned().collect()
    }

    /// What each worker has counted.
    pub fn figures(&self) -> &[ServiceStats] {
        &self.figures
    }
}

//! What a service that speaks a database's protocol has besides: what is lent, what is known, who
//! waits; and what its view says of the servers' parts.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_policy::causality::{self, Consistency};
use evenkeel_policy::lending::{self, Books};
use evenkeel_policy::load::Load;
use evenkeel_policy::pool::Pool;
use evenkeel_policy::route;
use evenkeel_policy::waiting::{self, Primary};
use ipnet::IpNet;
use zeroize::Zeroizing;

use super::figures::{Figures, Usage};
use super::line::Line;
use crate::knowledge::Knowledge;
use crate::server::Server;
use crate::session::{mysql, postgres};
use crate::tls::{Acceptor, Connector};
use crate::upstream::lender::{Lender, Who};

pub use crate::upstream::lender::pause::Paused;

/// How a database is served from now on; replaced with its [`View`](super::View).
#[derive(Debug)]
pub struct DatabaseView {
    /// A client keeps its server connection until it leaves.
    pub session_mode: bool,
    /// Which statements go to replicas.
    pub split: route::Settings,
    /// What reads must see.
    pub consistency: Consistency,
    /// How long they may wait for it.
    pub causality: causality::Settings,
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
    pub readers: Pool,
    /// The same loads, by the server's place.
    pub busy: Vec<Arc<Load>>,
    /// Which servers are replicas that take reads, by their place.
    pub replicas: Vec<bool>,
    /// TLS towards clients.
    pub tls: Option<Arc<Acceptor>>,
    /// TLS towards servers, by the server's id; the others are spoken to in plaintext.
    pub connectors: HashMap<u64, Connector>,
    /// Other Evenkeels before the same clients, by their number.
    pub peers: HashMap<u16, Arc<Server>>,
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
    pub(crate) fn quotas(&self, user: &str, database: &str) -> lending::Quotas {
        lending::Quotas {
            pool: self.pool,
            user: *self.users.get(user).unwrap_or(&self.user),
            database: *self.databases.get(database).unwrap_or(&self.database),
        }
    }
}

/// What the workers of a service share, as long as the service lives.
#[derive(Debug)]
pub struct DatabaseService {
    pub(crate) lender: Arc<Lender>,
    /// What the control plane learns of the servers.
    pub knowledge: Arc<Knowledge>,
    pub(crate) line: Line,
    pub(crate) own: Own,
    figures: Box<[Figures]>,
    /// Statements that run at each server, by its id: what balancing looks at.
    busy: Mutex<HashMap<u64, Arc<Load>>>,
    /// By worker, user and database: each has one writer, and there is one of each for ever.
    usages: Mutex<HashMap<(usize, u64, u64), UsageOf>>,
}

/// What the workers share besides, as the protocol has it.
#[derive(Debug)]
pub(crate) enum Own {
    Postgres(Arc<postgres::shared::Shared>),
    MySql(Arc<mysql::shared::Shared>),
}

/// Whose usage it is.
#[derive(Debug, Clone)]
pub struct UsageOf {
    /// Who.
    pub user: Arc<str>,
    /// Where.
    pub database: Arc<str>,
    /// As one worker has counted it.
    pub usage: Arc<Usage>,
}

impl DatabaseService {
    /// For PostgreSQL: nothing is open and nobody waits.
    pub fn postgres(
        workers: usize,
        knowledge: Arc<Knowledge>,
        lending: lending::Settings,
        waiting: waiting::Settings,
    ) -> Self {
        let own = Own::Postgres(Arc::new(postgres::shared::Shared::new()));
        Self::new(workers, knowledge, lending, waiting, own)
    }

    /// The same for MySQL.
    pub fn mysql(
        workers: usize,
        knowledge: Arc<Knowledge>,
        lending: lending::Settings,
        waiting: waiting::Settings,
    ) -> Self {
        let own = Own::MySql(Arc::default());
        Self::new(workers, knowledge, lending, waiting, own)
    }

    fn new(
        workers: usize,
        knowledge: Arc<Knowledge>,
        lending: lending::Settings,
        waiting: waiting::Settings,
        own: Own,
    ) -> Self {
        Self {
            lender: Arc::new(Lender::new(Books::new(workers, u32::MAX, lending))),
            knowledge,
            line: Line::new(waiting),
            own,
            figures: (0..workers).map(|_| Figures::new()).collect(),
            busy: Mutex::default(),
            usages: Mutex::default(),
        }
    }

    /// None: it does not speak PostgreSQL.
    pub(crate) fn of_postgres(&self) -> Option<&Arc<postgres::shared::Shared>> {
        match &self.own {
            Own::Postgres(own) => Some(own),
            Own::MySql(_) => None,
        }
    }

    /// None: it does not speak MySQL.
    pub(crate) fn of_mysql(&self) -> Option<&Arc<mysql::shared::Shared>> {
        match &self.own {
            Own::MySql(own) => Some(own),
            Own::Postgres(_) => None,
        }
    }

    /// Other settings, from a reload.
    pub fn set_settings(&self, lending: lending::Settings, waiting: waiting::Settings) {
        self.lender.books.set_settings(lending);
        self.line.set_settings(waiting);
    }

    /// What the roles are now, after every look at them: who waits for a primary goes on when there
    /// is one.
    pub fn turn(&self, primary: Primary) {
        self.line.turn(primary);
    }

    /// How many wait for a primary.
    pub fn waiting_for_primary(&self) -> usize {
        self.line.len()
    }

    /// The statements that run at a server, the same in every view.
    pub fn busy(&self, server_id: u64) -> Arc<Load> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let load = busy
            .entry(server_id)
            .or_insert_with(|| Arc::new(Load::new(None)));
        Arc::clone(load)
    }

    /// A worker's own count of what a user does in a database.
    pub(crate) fn usage(&self, worker: usize, who: &Who) -> Arc<Usage> {
        let mut usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (worker, who.user_number, who.database_number);
        let of = usages.entry(key).or_insert_with(|| UsageOf {
            user: Arc::clone(&who.user),
            database: Arc::clone(&who.database),
            usage: Arc::default(),
        });
        Arc::clone(&of.usage)
    }

    /// What users did in databases: several entries of one user and database are to be summed.
    pub fn usages(&self) -> Vec<UsageOf> {
        let usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        usages.values().cloned().collect()
    }

    /// What each worker has counted.
    pub fn figures(&self) -> &[Figures] {
        &self.figures
    }
}

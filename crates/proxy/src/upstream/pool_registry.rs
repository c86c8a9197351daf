//! Holds what a service's workers share about its pools: their users and their servers.

mod limits;
mod name_ids;
pub(crate) mod pause;

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use evenkeel_engine::clock;
use evenkeel_engine::panics::lock;
use evenkeel_policy::connection_pool::{Pool, PoolKey, SharedPools, WorkerTask};
use evenkeel_wire::{mysql, postgres};

pub use self::limits::ConnectionLimits;
pub(crate) use self::name_ids::NameId;

use self::name_ids::NameIds;
use self::pause::Paused;
use super::kept_passwords::KeptPassword;
use crate::server::Server;

/// All pools of a service.
#[derive(Debug)]
pub(crate) struct PoolRegistry {
    pub(crate) pools: Arc<SharedPools>,
    by_key: Mutex<HashMap<PoolKey, Arc<PoolHandle>>>,
    paused: Mutex<Paused>,
    /// Numbers of the paused databases, which may have no clients yet.
    paused_numbers: Mutex<HashMap<String, NameId>>,
    numbers: Mutex<NameIds>,
}

/// One pool with the server and the user of its connections.
pub(crate) struct PoolHandle {
    pub(crate) pool: Arc<Pool>,
    pub(crate) server: Arc<Server>,
    pub(crate) pool_user: Arc<PoolUser>,
}

/// A user in a database, with the credential for logins to servers.
pub(crate) struct PoolUser {
    /// Name that the client sent.
    pub(crate) user: Arc<str>,
    /// Name of the user at the servers.
    pub(crate) server_user: Box<str>,
    /// Empty if a connection may be used for all databases.
    pub(crate) database: Arc<str>,
    pub(crate) credential: Credential,
    /// Distinguishes credentials of one user.
    pub(crate) generation: u64,
    /// Further properties that connections must have in common to be shared.
    pub(crate) identity: u64,
    /// Parameters of a replication client's startup packet, except user and database. The servers
    /// receive the same parameters, and the connection is not shared.
    pub(crate) replication: Option<Parameters>,
    pub(crate) user_number: NameId,
    pub(crate) database_number: NameId,
}

/// Names and values of a startup packet.
pub(crate) type Parameters = Vec<(Box<[u8]>, Box<[u8]>)>;

/// Credential that logs a user in to servers.
pub(crate) enum Credential {
    Postgres(postgres::login::Credential),
    Mysql(mysql::login::Credential),
    /// Servers of a protocol without logins.
    None,
    /// A password that a server has accepted.
    Kept(Arc<KeptPassword>),
}

impl From<postgres::login::Credential> for Credential {
    fn from(credential: postgres::login::Credential) -> Self {
        Credential::Postgres(credential)
    }
}

impl From<mysql::login::Credential> for Credential {
    fn from(credential: mysql::login::Credential) -> Self {
        Credential::Mysql(credential)
    }
}

impl PoolUser {
    /// Returns PostgreSQL's credential. `None`: not a user of PostgreSQL.
    pub(crate) fn postgres(&self) -> Option<postgres::login::Credential> {
        match &self.credential {
            Credential::Postgres(credential) => Some(credential.clone()),
            Credential::Kept(kept) => Some(postgres::login::Credential::Password(kept.copy())),
            Credential::Mysql(_) | Credential::None => None,
        }
    }

    /// Returns MySQL's credential. `None`: not a user of MySQL.
    pub(crate) fn mysql(&self) -> Option<mysql::login::Credential> {
        match &self.credential {
            Credential::Mysql(credential) => Some(credential.clone()),
            Credential::Kept(kept) => Some(mysql::login::Credential::Password(kept.copy())),
            Credential::Postgres(_) | Credential::None => None,
        }
    }
}

impl fmt::Debug for PoolHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled")
            .field("server", &self.server.name)
            .field("user", &self.pool_user.user)
            .field("database", &self.pool_user.database)
            .finish_non_exhaustive()
    }
}

impl PoolRegistry {
    pub(crate) fn new(pools: SharedPools) -> Self {
        Self {
            pools: Arc::new(pools),
            by_key: Mutex::default(),
            paused: Mutex::default(),
            paused_numbers: Mutex::default(),
            numbers: Mutex::default(),
        }
    }

    /// Returns a number for a name: the same number for as long as any holder keeps it.
    pub(crate) fn number(&self, name: &[u8]) -> NameId {
        lock(&self.numbers).of(name)
    }

    /// Returns the pool with this key, if it exists.
    pub(crate) fn pool_handle(&self, key: &PoolKey) -> Option<Arc<PoolHandle>> {
        self.map().get(key).cloned()
    }

    /// Returns all pools.
    pub(crate) fn all(&self) -> Vec<Arc<PoolHandle>> {
        self.map().values().cloned().collect()
    }

    fn map(&self) -> MutexGuard<'_, HashMap<PoolKey, Arc<PoolHandle>>> {
        lock(&self.by_key)
    }

    /// Returns a user's pool at a server.
    pub(super) fn pool_for(
        &self,
        pool_user: &Arc<PoolUser>,
        server: &Arc<Server>,
        limits: &ConnectionLimits,
    ) -> Arc<PoolHandle> {
        let key = PoolKey {
            server: server.id,
            user: pool_user.user_number.get(),
            generation: pool_user.generation,
            database: pool_user.database_number.get(),
            identity: pool_user.identity,
        };
        let mut map = self.map();
        if let Some(known) = map.get(&key).filter(|known| !known.pool.is_retired()) {
            return Arc::clone(known);
        }
        let limits = limits.limits_of(&pool_user.user, &pool_user.database);
        let pool_handle = Arc::new(PoolHandle {
            pool: self.pools.pool(key, &limits, &server.load),
            server: Arc::clone(server),
            pool_user: Arc::clone(pool_user),
        });
        map.insert(key, Arc::clone(&pool_handle));
        pool_handle
    }

    /// Changes the limits of the existing pools.
    pub(crate) fn resize(&self, connection_limits: &ConnectionLimits, tasks: &mut Vec<WorkerTask>) {
        for one in self.all() {
            let limits = connection_limits.limits_of(&one.pool_user.user, &one.pool_user.database);
            self.pools.set_pool_limits(&one.pool, &limits);
        }
        self.pools.serve(clock::now_ms(), tasks);
    }

    /// Adds a pool of a test.
    #[cfg(test)]
    pub(crate) fn insert(&self, pool_handle: &Arc<PoolHandle>) {
        let key = *pool_handle.pool.key();
        self.map().insert(key, Arc::clone(pool_handle));
    }

    /// Forgets pools that are not in use.
    pub(crate) fn remove_unused(&self) {
        self.map()
            .retain(|_, pool_handle| Arc::strong_count(pool_handle) > 1);
    }
}

/// Hashes credentials in order to distinguish them without keeping them. `all` must include
/// everything that is checked here or sent to servers: otherwise a reload of it would not affect
/// new sessions.
pub(crate) fn generation_of(all: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    all.hash(&mut hasher);
    hasher.finish()
}

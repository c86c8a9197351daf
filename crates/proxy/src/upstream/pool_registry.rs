//! What the workers of a service share of its pools: for whom there are any, and where their
//! connections go.

mod name_ids;
pub(crate) mod pause;

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_policy::connection_pool::{Pool, PoolKey, SharedPools, WorkerTask};
use evenkeel_wire::{mysql, postgres};

pub(crate) use self::name_ids::NameId;

use self::name_ids::NameIds;
use self::pause::Paused;
use crate::clock;
use crate::server::Server;
use crate::service::database::{DatabaseSnapshot, Sizes};

/// All pools of a service.
#[derive(Debug)]
pub(crate) struct PoolRegistry {
    pub(crate) books: Arc<SharedPools>,
    pooled: Mutex<HashMap<PoolKey, Arc<PoolHandle>>>,
    paused: Mutex<Paused>,
    /// Of the databases among them, which may have no clients yet.
    paused_numbers: Mutex<HashMap<String, NameId>>,
    numbers: Mutex<NameIds>,
}

/// One pool, and how its connections are made.
pub(crate) struct PoolHandle {
    pub(crate) pool: Arc<Pool>,
    pub(crate) server: Arc<Server>,
    pub(crate) who: Arc<PoolUser>,
}

/// A user in a database, with what logs in to servers.
pub(crate) struct PoolUser {
    /// As the client calls itself.
    pub(crate) user: Arc<str>,
    /// As it is called at the servers.
    pub(crate) server_user: Box<str>,
    /// Empty where a connection may be used for all of them.
    pub(crate) database: Arc<str>,
    pub(crate) credential: Credential,
    /// Tells credentials of one user apart.
    pub(crate) generation: u64,
    /// What else connections must agree in to be shared.
    pub(crate) identity: u64,
    /// What a replication client's startup packet says beside its name and database: the servers
    /// are told the same, and its connection is its own.
    pub(crate) replication: Option<Parameters>,
    pub(crate) user_number: NameId,
    pub(crate) database_number: NameId,
}

/// Names and values of a startup packet.
pub(crate) type Parameters = Vec<(Box<[u8]>, Box<[u8]>)>;

/// What logs a user in to servers.
pub(crate) enum Credential {
    Postgres(postgres::login::Credential),
    MySql(mysql::login::Credential),
}

impl PoolUser {
    /// None: it is not a user of PostgreSQL.
    pub(crate) fn postgres(&self) -> Option<&postgres::login::Credential> {
        match &self.credential {
            Credential::Postgres(credential) => Some(credential),
            Credential::MySql(_) => None,
        }
    }

    /// None: it is not a user of MySQL.
    pub(crate) fn mysql(&self) -> Option<&mysql::login::Credential> {
        match &self.credential {
            Credential::MySql(credential) => Some(credential),
            Credential::Postgres(_) => None,
        }
    }
}

impl fmt::Debug for PoolHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled")
            .field("server", &self.server.name)
            .field("user", &self.who.user)
            .field("database", &self.who.database)
            .finish_non_exhaustive()
    }
}

impl PoolRegistry {
    pub(crate) fn new(books: SharedPools) -> Self {
        Self {
            books: Arc::new(books),
            pooled: Mutex::default(),
            paused: Mutex::default(),
            paused_numbers: Mutex::default(),
            numbers: Mutex::default(),
        }
    }

    /// A number for a name: the same for the same one as long as anybody has it.
    pub(crate) fn number(&self, name: &[u8]) -> NameId {
        let numbers = self.numbers.lock();
        numbers.unwrap_or_else(PoisonError::into_inner).of(name)
    }

    /// The pool of that key, while there is one.
    pub(crate) fn pooled(&self, key: &PoolKey) -> Option<Arc<PoolHandle>> {
        self.map().get(key).cloned()
    }

    /// Every pool.
    pub(crate) fn all(&self) -> Vec<Arc<PoolHandle>> {
        self.map().values().cloned().collect()
    }

    fn map(&self) -> MutexGuard<'_, HashMap<PoolKey, Arc<PoolHandle>>> {
        self.pooled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user's pool at a server.
    pub(super) fn pool_for(
        &self,
        who: &Arc<PoolUser>,
        server: &Arc<Server>,
        view: &DatabaseSnapshot,
    ) -> Arc<PoolHandle> {
        let key = PoolKey {
            server: server.id,
            user: who.user_number.get(),
            generation: who.generation,
            database: who.database_number.get(),
            identity: who.identity,
        };
        let mut map = self.map();
        if let Some(known) = map.get(&key).filter(|known| !known.pool.is_retired()) {
            return Arc::clone(known);
        }
        let quotas = view.sizes.quotas(&who.user, &who.database);
        let pooled = Arc::new(PoolHandle {
            pool: self.books.pool(key, &quotas, &server.load),
            server: Arc::clone(server),
            who: Arc::clone(who),
        });
        map.insert(key, Arc::clone(&pooled));
        pooled
    }

    /// Other limits for the pools that there are.
    pub(crate) fn resize(&self, sizes: &Sizes, orders: &mut Vec<WorkerTask>) {
        for one in self.all() {
            let quotas = sizes.quotas(&one.who.user, &one.who.database);
            self.books.set_quotas(&one.pool, &quotas);
        }
        self.books.serve(clock::now_ms(), orders);
    }

    /// Forgets pools that nobody uses.
    pub(crate) fn tidy(&self) {
        self.map().retain(|_, pooled| Arc::strong_count(pooled) > 1);
    }
}

/// Tells credentials apart without keeping them: all that is checked here, and all that logs in to
/// servers, or a reload of it would change nothing for those who come next.
pub(crate) fn generation_of(all: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    all.hash(&mut hasher);
    hasher.finish()
}

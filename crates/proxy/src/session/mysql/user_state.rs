//! What is known of an account at the servers: how its connections begin, and which schemas it may
//! use. Any worker learns it of a server connection, for all workers.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::server::ServerConnection;
use super::server_login::Baseline;
use crate::service::database::DatabaseService;
use crate::session_state::mysql::TextAnalysis;
use crate::session_state::templates::Templates;
use crate::upstream::pool_registry::PoolUser;
use crate::upstream::worker_pool;

/// What the sessions of one worker share that are the same user.
pub(crate) type Account = worker_pool::UserPools<ServerConnection>;

/// Accounts that nobody uses are forgotten when there are more.
const KNOWN_MAX: usize = 1_000;

/// Schemas of one account that are remembered.
const SCHEMAS_MAX: usize = 1_000;

/// For so long nobody asks again whether a schema is there.
const SCHEMA_MS: u64 = 10_000;

/// As one worker has it.
pub(crate) struct UserState {
    learned: Arc<BaselineEntry>,
    /// What its texts mean.
    pub(super) templates: RefCell<Templates<Arc<TextAnalysis>>>,
}

/// All of a service.
#[derive(Debug, Default)]
pub(crate) struct BaselineCache {
    known: Mutex<HashMap<Identity, Arc<BaselineEntry>>>,
}

/// User, credential generation, and what else connections agree in.
type Identity = (u64, u64, u64);

/// Of one account.
#[derive(Debug, Default)]
struct BaselineEntry {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    fresh: Option<Arc<Baseline>>,
    /// A client has set global variables since.
    is_outdated: bool,
    /// When a server let the account use them.
    schemas: HashMap<Box<[u8]>, u64>,
}

impl UserState {
    pub(super) fn of(who: &PoolUser, service: &DatabaseService) -> Self {
        let learned = service
            .of_mysql()
            .map(|shared| shared.logins.greetings.of(who))
            .unwrap_or_default();
        Self {
            learned,
            templates: RefCell::default(),
        }
    }

    /// How a connection of the account begins; `None`: none has been opened yet.
    pub(super) fn fresh(&self) -> Option<Arc<Baseline>> {
        lock(&self.learned.inner).fresh.clone()
    }

    /// Whether that is known, and the same as far as can be told from here.
    pub(super) fn is_current(&self) -> bool {
        let inner = lock(&self.learned.inner);
        inner.fresh.is_some() && !inner.is_outdated
    }

    /// Whether a server let the account use a schema a moment ago.
    pub(super) fn may_use(&self, schema: &[u8], now_ms: u64) -> bool {
        let inner = lock(&self.learned.inner);
        let since_ms = inner.schemas.get(schema);
        since_ms.is_some_and(|since_ms| now_ms.saturating_sub(*since_ms) < SCHEMA_MS)
    }

    /// Whether a server ever did.
    pub(super) fn could_use(&self, schema: &[u8]) -> bool {
        lock(&self.learned.inner).schemas.contains_key(schema)
    }

    /// A server does now.
    pub(super) fn has_used(&self, schema: &[u8], now_ms: u64) {
        let mut inner = lock(&self.learned.inner);
        if inner.schemas.len() >= SCHEMAS_MAX {
            inner.schemas.clear();
        }
        inner.schemas.insert(schema.into(), now_ms);
    }

    pub(super) fn learn(&self, fresh: &Arc<Baseline>) {
        self.learned.learn(fresh);
    }
}

impl BaselineCache {
    /// That of an account; nothing is known if nobody else is logged in so: much may have changed
    /// since.
    fn of(&self, who: &PoolUser) -> Arc<BaselineEntry> {
        let mut known = lock(&self.known);
        if known.len() > KNOWN_MAX {
            known.retain(|_, learned| Arc::strong_count(learned) > 1);
        }
        let learned = known.entry(identity(who)).or_default();
        if Arc::strong_count(learned) == 1 {
            *learned = Arc::default();
        }
        Arc::clone(learned)
    }

    /// A connection has just logged in: servers may have changed since the last one did.
    pub(super) fn refresh(&self, who: &PoolUser, fresh: &Arc<Baseline>) {
        let learned = lock(&self.known).get(&identity(who)).map(Arc::clone);
        if let Some(learned) = learned {
            learned.learn(fresh);
        }
    }

    /// Global variables were set: the next to log in is told of the new ones.
    pub(super) fn outdate(&self) {
        for learned in lock(&self.known).values() {
            lock(&learned.inner).is_outdated = true;
        }
    }
}

impl BaselineEntry {
    fn learn(&self, fresh: &Arc<Baseline>) {
        let mut inner = lock(&self.inner);
        inner.fresh = Some(Arc::clone(fresh));
        inner.is_outdated = false;
    }
}

fn identity(who: &PoolUser) -> Identity {
    (who.user_number.get(), who.generation, who.identity)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_asked_for_again_after_a_while() {
        let known = UserState {
            learned: Arc::default(),
            templates: RefCell::default(),
        };
        assert!(!known.may_use(b"shop", 1_000));
        known.has_used(b"shop", 1_000);
        assert!(known.may_use(b"shop", 1_000 + SCHEMA_MS - 1));
        assert!(!known.may_use(b"shop", 1_000 + SCHEMA_MS));
        assert!(known.could_use(b"shop") && !known.could_use(b"Shop"));
        assert!(!known.may_use(b"Shop", 1_001));
    }
}

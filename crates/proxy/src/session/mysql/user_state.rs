//! Caches, for all workers, facts about an account at the servers: the baseline of its connections,
//! and the schemas it may use.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use evenkeel_engine::panics::lock;

use super::server::ServerConnection;
use super::server_login::Baseline;
use super::shared::MysqlService;
use crate::service::database::DatabaseService;
use crate::upstream::pool_registry::PoolUser;
use crate::upstream::worker_pool;
use evenkeel_sql::session_state::mysql::TextAnalysis;
use evenkeel_sql::session_state::templates::Templates;

/// State shared by the sessions of one user on one worker.
pub(crate) type Account = worker_pool::UserPools<ServerConnection>;

/// Number of accounts above which unused ones are removed.
const KNOWN_MAX: usize = 1_000;

/// Maximum number of schemas remembered per account.
const SCHEMAS_MAX: usize = 1_000;

/// Time in milliseconds for which the existence of a schema is not queried again.
const SCHEMA_MS: u64 = 10_000;

/// Account facts as used by one worker.
pub(crate) struct UserState {
    learned: Arc<BaselineEntry>,
    /// Cached analyses of its texts.
    pub(super) templates: RefCell<Templates<Arc<TextAnalysis>>>,
}

/// Accounts of a service.
#[derive(Debug, Default)]
pub(crate) struct BaselineCache {
    known: Mutex<HashMap<Identity, Arc<BaselineEntry>>>,
}

/// User, credential generation, and the capabilities that connections must share.
type Identity = (u64, u64, u64);

/// Facts about one account.
#[derive(Debug, Default)]
struct BaselineEntry {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    baseline: Option<Arc<Baseline>>,
    /// True if a client has set global variables since.
    is_outdated: bool,
    /// Times in milliseconds at which a server permitted the use of each schema.
    schemas: HashMap<Box<[u8]>, u64>,
}

impl UserState {
    pub(super) fn of(pool_user: &PoolUser, service: &DatabaseService) -> Self {
        let learned = service
            .state_of::<MysqlService>()
            .map(|shared| shared.logins.baselines.of(pool_user))
            .unwrap_or_default();
        Self {
            learned,
            templates: RefCell::default(),
        }
    }

    /// Returns the baseline of the account's connections; `None` if none has been opened yet.
    pub(super) fn baseline(&self) -> Option<Arc<Baseline>> {
        lock(&self.learned.inner).baseline.clone()
    }

    /// Returns whether the baseline is known and not known to be outdated.
    pub(super) fn is_current(&self) -> bool {
        let inner = lock(&self.learned.inner);
        inner.baseline.is_some() && !inner.is_outdated
    }

    /// Returns whether a server recently permitted the use of the schema.
    pub(super) fn may_use(&self, schema: &[u8], now_ms: u64) -> bool {
        let inner = lock(&self.learned.inner);
        let since_ms = inner.schemas.get(schema);
        since_ms.is_some_and(|since_ms| now_ms.saturating_sub(*since_ms) < SCHEMA_MS)
    }

    /// Returns whether a server ever permitted the use of the schema.
    pub(super) fn was_usable(&self, schema: &[u8]) -> bool {
        lock(&self.learned.inner).schemas.contains_key(schema)
    }

    /// Records that a server permits the use of the schema.
    pub(super) fn record_use(&self, schema: &[u8], now_ms: u64) {
        let mut inner = lock(&self.learned.inner);
        if inner.schemas.len() >= SCHEMAS_MAX {
            inner.schemas.clear();
        }
        inner.schemas.insert(schema.into(), now_ms);
    }

    pub(super) fn update_baseline(&self, baseline: &Arc<Baseline>) {
        self.learned.update(baseline);
    }
}

impl BaselineCache {
    /// Returns the entry of an account. The entry is reset if no other session of the account
    /// exists, since the servers may have changed.
    fn of(&self, pool_user: &PoolUser) -> Arc<BaselineEntry> {
        let mut known = lock(&self.known);
        if known.len() > KNOWN_MAX {
            known.retain(|_, learned| Arc::strong_count(learned) > 1);
        }
        let learned = known.entry(identity(pool_user)).or_default();
        if Arc::strong_count(learned) == 1 {
            *learned = Arc::default();
        }
        Arc::clone(learned)
    }

    /// Updates the baseline from a new connection, since the servers may have changed.
    pub(super) fn refresh(&self, pool_user: &PoolUser, baseline: &Arc<Baseline>) {
        let learned = lock(&self.known).get(&identity(pool_user)).map(Arc::clone);
        if let Some(learned) = learned {
            learned.update(baseline);
        }
    }

    /// Marks all baselines as outdated after global variables were set; the next login queries
    /// them.
    pub(super) fn outdate(&self) {
        for learned in lock(&self.known).values() {
            lock(&learned.inner).is_outdated = true;
        }
    }
}

impl BaselineEntry {
    fn update(&self, baseline: &Arc<Baseline>) {
        let mut inner = lock(&self.inner);
        inner.baseline = Some(Arc::clone(baseline));
        inner.is_outdated = false;
    }
}

fn identity(pool_user: &PoolUser) -> Identity {
    (
        pool_user.user_number.get(),
        pool_user.generation,
        pool_user.identity,
    )
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
        known.record_use(b"shop", 1_000);
        assert!(known.may_use(b"shop", 1_000 + SCHEMA_MS - 1));
        assert!(!known.may_use(b"shop", 1_000 + SCHEMA_MS));
        assert!(known.was_usable(b"shop") && !known.was_usable(b"Shop"));
        assert!(!known.may_use(b"Shop", 1_001));
    }
}

//! Holds the state that all workers of a PostgreSQL service share, besides that of any database
//! service.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use evenkeel_engine::panics::lock;
use evenkeel_engine::secret;
use evenkeel_wire::SqlProtocol;

use super::listening::ListenHub;
use super::login::Verifiers;
use super::parsed_statements::ParsedStatements;
use super::sequences::SequenceRead;
use super::statements::Interned;
use super::user_state::baseline::BaselineCache;
use crate::service::database::ProtocolState;
use crate::session::password_rate_limit::PasswordRateLimit;
use crate::upstream::pool_registry::PoolUser;

/// Shared state of a PostgreSQL service, kept for the service's life.
#[derive(Debug)]
pub(crate) struct PostgresService {
    pub(crate) statements: Interned,
    pub(crate) baselines: BaselineCache,
    pub(crate) verifiers: Verifiers,
    /// Secret for mock verifiers, which make unknown users look like known ones.
    pub(crate) mock_secret: [u8; 32],
    /// Rate limit of cleartext passwords.
    pub(crate) rate_limit: PasswordRateLimit,
    history: Mutex<HashMap<OfWho, Arc<UserHistory>>>,
    /// Hubs of the databases whose clients listen.
    hubs: Mutex<HashMap<Arc<str>, Weak<ListenHub>>>,
}

/// Observations about the clients of one user in one database, on all workers.
#[derive(Debug, Default)]
pub(crate) struct UserHistory {
    /// True if a client has used `currval` or `lastval`.
    asks_sequences: AtomicBool,
    /// True if a client has used them in a way that only its connection can answer.
    pins_sequences: AtomicBool,
    /// Statements that need no server to be prepared again.
    pub(super) parsed: ParsedStatements,
}

/// User and database.
type OfWho = (Arc<str>, Arc<str>);

/// Limit above which entries without a session are removed, except those with `asks_sequences`.
const HABITS_MAX: usize = 1_000;

impl PostgresService {
    pub(crate) fn new() -> Self {
        Self {
            statements: Interned::default(),
            baselines: BaselineCache::default(),
            verifiers: Verifiers::default(),
            mock_secret: secret(),
            rate_limit: PasswordRateLimit::default(),
            history: Mutex::default(),
            hubs: Mutex::default(),
        }
    }

    /// Returns the hub through which the clients of a database listen.
    pub(super) fn hub(&self, database: &Arc<str>) -> Arc<ListenHub> {
        let mut hubs = lock(&self.hubs);
        if let Some(known) = hubs.get(database).and_then(Weak::upgrade) {
            return known;
        }
        hubs.retain(|_, hub| hub.strong_count() > 0);
        let hub = Arc::default();
        hubs.insert(Arc::clone(database), Arc::downgrade(&hub));
        hub
    }

    pub(crate) fn history(&self, pool_user: &PoolUser) -> Arc<UserHistory> {
        let mut history = lock(&self.history);
        if history.len() > HABITS_MAX {
            history.retain(|_, one| one.asks_sequences() || Arc::strong_count(one) > 1);
        }
        let of_who = (Arc::clone(&pool_user.user), Arc::clone(&pool_user.database));
        Arc::clone(history.entry(of_who).or_default())
    }
}

impl ProtocolState for PostgresService {
    fn protocol(&self) -> SqlProtocol {
        SqlProtocol::Postgres
    }
}

impl UserHistory {
    pub(crate) fn asks_sequences(&self) -> bool {
        self.asks_sequences.load(Relaxed)
    }

    pub(crate) fn pins_sequences(&self) -> bool {
        self.pins_sequences.load(Relaxed)
    }

    pub(crate) fn asked_sequences(&self, read: SequenceRead) {
        self.asks_sequences.store(true, Relaxed);
        if read == SequenceRead::Other {
            self.pins_sequences.store(true, Relaxed);
        }
    }
}

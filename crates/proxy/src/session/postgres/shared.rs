//! What the workers of a service share that speaks PostgreSQL, beside what every database has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_policy::statement_verifier::StatementVerifier;

use super::login::Verifiers;
use super::statements::Interned;
use super::user_state::baseline::BaselineCache;
use crate::random::secret;
use crate::session::password_rate_limit::PasswordRateLimit;
use crate::upstream::pool_registry::PoolUser;

/// As long as the service lives.
#[derive(Debug)]
pub(crate) struct PostgresService {
    pub(crate) statements: Interned,
    pub(crate) greetings: BaselineCache,
    pub(crate) verifiers: Verifiers,
    /// The secret behind mock verifiers: unknown users look like known ones.
    pub(crate) mock_secret: [u8; 32],
    /// Of passwords that are sent as they are.
    pub(crate) pace: PasswordRateLimit,
    habits: Mutex<HashMap<OfWho, Arc<UserHistory>>>,
}

/// What was found of the clients of a user in a database, on whichever worker.
#[derive(Debug, Default)]
pub(crate) struct UserHistory {
    /// Somebody has asked what its session drew from a sequence.
    asks_sequences: AtomicBool,
    /// What their statements leave behind, against what was read of them.
    trials: Mutex<StatementVerifier>,
}

/// A user in a database.
type OfWho = (Arc<str>, Arc<str>);

/// Those without a session that have not asked are forgotten when there are more.
const HABITS_MAX: usize = 1_000;

impl PostgresService {
    pub(crate) fn new() -> Self {
        Self {
            statements: Interned::default(),
            greetings: BaselineCache::default(),
            verifiers: Verifiers::default(),
            mock_secret: secret(),
            pace: PasswordRateLimit::default(),
            habits: Mutex::default(),
        }
    }

    pub(crate) fn habits(&self, who: &PoolUser) -> Arc<UserHistory> {
        let mut habits = lock(&self.habits);
        if habits.len() > HABITS_MAX {
            habits.retain(|_, one| one.asks_sequences() || Arc::strong_count(one) > 1);
        }
        let of_who = (Arc::clone(&who.user), Arc::clone(&who.database));
        Arc::clone(habits.entry(of_who).or_default())
    }
}

impl PostgresService {
    /// Statements are on trial again, in a database or (`None`) in all of them.
    pub(crate) fn forget_trials(&self, database: Option<&str>) {
        let habits = lock(&self.habits);
        let of_database = |of: &OfWho| database.is_none_or(|name| *name == *of.1);
        let meant = habits.iter().filter(|(of, _)| of_database(of));
        meant.for_each(|(_, one)| one.trials().forget());
    }
}

impl UserHistory {
    pub(crate) fn asks_sequences(&self) -> bool {
        self.asks_sequences.load(Relaxed)
    }

    pub(crate) fn asked_sequences(&self) {
        self.asks_sequences.store(true, Relaxed);
    }

    pub(crate) fn trials(&self) -> MutexGuard<'_, StatementVerifier> {
        lock(&self.trials)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

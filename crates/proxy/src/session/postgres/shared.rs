//! What the workers of a service share that speaks PostgreSQL, beside what every database has.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::account::greeting::Greetings;
use super::login::Verifiers;
use super::statements::Interned;
use crate::random::secret;
use crate::session::pace::Pace;
use crate::upstream::lender::Who;

/// As long as the service lives.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) statements: Interned,
    pub(crate) greetings: Greetings,
    pub(crate) verifiers: Verifiers,
    /// The secret behind mock verifiers: unknown users look like known ones.
    pub(crate) mock_secret: [u8; 32],
    /// Of passwords that are sent as they are.
    pub(crate) pace: Pace,
    asking: Mutex<HashMap<OfWho, Arc<AtomicBool>>>,
}

/// A user in a database.
type OfWho = (Arc<str>, Arc<str>);

/// Those without a session that have not asked are forgotten when there are more.
const ASKING_MAX: usize = 1_000;

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            statements: Interned::default(),
            greetings: Greetings::default(),
            verifiers: Verifiers::default(),
            mock_secret: secret(),
            pace: Pace::default(),
            asking: Mutex::default(),
        }
    }

    /// Whether any client of this user in this database has ever asked what its session drew from a
    /// sequence.
    pub(crate) fn asks_sequences(&self, who: &Who) -> Arc<AtomicBool> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if asking.len() > ASKING_MAX {
            asking.retain(|_, asks| asks.load(Relaxed) || Arc::strong_count(asks) > 1);
        }
        let of_who = (Arc::clone(&who.user), Arc::clone(&who.database));
        Arc::clone(asking.entry(of_who).or_default())
    }
}

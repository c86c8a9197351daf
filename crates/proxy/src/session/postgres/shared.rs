//! What the workers of a service share that speaks PostgreSQL, beside what every database has.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::account::greeting::Greetings;
use super::statements::Interned;
use crate::random::secret;

/// As long as the service lives.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) statements: Interned,
    pub(crate) greetings: Greetings,
    /// The secret behind mock verifiers: unknown users look like known ones.
    pub(crate) mock_secret: [u8; 32],
    asks_sequences: AtomicBool,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            statements: Interned::default(),
            greetings: Greetings::default(),
            mock_secret: secret(),
            asks_sequences: AtomicBool::new(false),
        }
    }

    /// Whether any client has ever asked what its session drew from a sequence.
    pub(crate) fn asks_sequences(&self) -> bool {
        self.asks_sequences.load(Relaxed)
    }

    pub(crate) fn asked_sequences(&self) {
        self.asks_sequences.store(true, Relaxed);
    }
}

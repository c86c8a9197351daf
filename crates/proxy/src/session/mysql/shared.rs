//! What the workers of a service share that speaks MySQL, beside what every database has.

use super::login::Logins;
use super::statements::Interned;
use crate::state::mysql::Asked;

/// As long as the service lives.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) statements: Interned,
    /// What statements have asked about the ones before them.
    pub(crate) asked: Asked,
    pub(super) logins: Logins,
    /// The secret behind mock accounts: unknown users look like known ones.
    pub(crate) mock_secret: [u8; 32],
}

impl Shared {
    pub(crate) fn new(mock_secret: [u8; 32]) -> Self {
        Self {
            statements: Interned::default(),
            asked: Asked::default(),
            logins: Logins::default(),
            mock_secret,
        }
    }
}

//! What the workers of a service share that speaks MySQL, beside what every database has.

use super::login::Logins;
use super::statements::Interned;
use crate::state::mysql::Asked;

/// As long as the service lives.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) statements: Interned,
    /// What statements have asked about the ones before them.
    pub(crate) asked: Asked,
    pub(super) logins: Logins,
}

//! What the workers of a service share that speaks MySQL, beside what every database has.

use evenkeel_wire::sql::mysql::LexerModes;

use super::login::Logins;
use super::statements::Interned;
use crate::service::ServiceSnapshot;
use crate::session_state::mysql::InfoUsage;

/// As long as the service lives.
#[derive(Debug, Default)]
pub(crate) struct PostgresService {
    pub(crate) statements: Interned,
    /// What statements have asked about the ones before them.
    pub(crate) asked: InfoUsage,
    pub(super) logins: Logins,
}

impl PostgresService {
    /// How texts of clients are read that have set nothing; `None`: no server has greeted yet.
    pub(crate) fn modes(&self, view: &ServiceSnapshot) -> Option<LexerModes> {
        self.logins.faces.modes(view)
    }
}

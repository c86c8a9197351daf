//! Holds the MySQL state that the workers of a service share.

use evenkeel_wire::sql::mysql::LexerModes;

use super::login::Logins;
use super::statements::Interned;
use crate::service::ServiceSnapshot;
use crate::session_state::mysql::ObservedResultReads;

/// MySQL state of a service, kept as long as the service lives.
#[derive(Debug, Default)]
pub(crate) struct MysqlService {
    pub(crate) statements: Interned,
    /// Results of previous statements that clients of the service have read so far.
    pub(crate) observed_reads: ObservedResultReads,
    pub(super) logins: Logins,
}

impl MysqlService {
    /// Returns the lexer modes for clients that have changed no setting; `None` if no server has
    /// sent a greeting yet.
    pub(crate) fn modes(&self, view: &ServiceSnapshot) -> Option<LexerModes> {
        self.logins.greetings.modes(view)
    }
}

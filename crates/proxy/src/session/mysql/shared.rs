//! Holds the MySQL state that the workers of a service share.

use evenkeel_sql::mysql::LexerModes;
use evenkeel_wire::SqlProtocol;

use super::login::Logins;
use super::statements::Interned;
use crate::service::database::ProtocolState;
use crate::service::{Service, ServiceSnapshot};
use evenkeel_sql::session_state::mysql::ObservedResultReads;

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

/// Returns the modes in which MySQL servers read texts of clients that have set none. `None`: no
/// server has sent a greeting yet, or the service is not MySQL.
pub fn lexer_modes(service: &Service) -> Option<LexerModes> {
    let state = service.database()?.state_of::<MysqlService>()?;
    state.modes(&service.snapshot())
}

impl ProtocolState for MysqlService {
    fn protocol(&self) -> SqlProtocol {
        SqlProtocol::Mysql
    }
}

//! Accounts as the servers store them, and which of them is effective.
//!
//! The monitor reads them at each login; sessions check the client against them.

mod mysql;
mod postgres;

use std::fmt;

pub use mysql::{AuthMethod, MysqlAuthRecord, MysqlAuthRecords, RequiredNames, TlsRequirement};
pub use postgres::{PostgresAuthRecord, Verifier};

/// Reason why there is no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupError {
    /// No such user at the servers.
    NoSuchUser,
    /// Lookup not possible: for the log, not for the client.
    Unavailable(String),
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LookupError::NoSuchUser => "no such user",
            LookupError::Unavailable(why) => why,
        })
    }
}

impl std::error::Error for LookupError {}

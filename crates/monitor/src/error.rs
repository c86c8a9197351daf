//! Reasons why a server gave no usable reply to a query of the monitor account.

use crate::probe::ProbeFailure;

/// Reason why a server gave no usable reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The server could not be reached, broke the connection, or took too long.
    #[error("{0}")]
    Away(String),
    /// The server is alive, but rejects the login of the monitor account.
    #[error("{0}")]
    LoginRefused(String),
    /// The server is alive, and has no database of that name.
    #[error("{0}")]
    NoDatabase(String),
    /// The server is alive, but a privilege is missing, it is full, or its reply is invalid.
    #[error("{0}")]
    CannotTell(String),
}

impl From<ProbeFailure> for WatchError {
    fn from(failure: ProbeFailure) -> Self {
        match failure {
            ProbeFailure::Failed(why) | ProbeFailure::Misconfigured(why) => Self::Away(why),
            ProbeFailure::LoginRefused(why) => Self::LoginRefused(why),
            ProbeFailure::NoDatabase(why) => Self::NoDatabase(why),
            ProbeFailure::Full(why) => Self::CannotTell(why),
        }
    }
}

//! Classifies failures of commands, logins and connections, for any protocol.

use std::fmt;

/// Failure of a command, a login or a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server rejected this command; the session continues.
    Refused(SqlError),
    /// The server reported why it ends the session.
    Ended(SqlError),
    /// The connection broke without an error message.
    Lost(String),
    /// No answer arrived in time.
    TimedOut(String),
    /// The answer violates the protocol, or belongs to another session.
    Broken(String),
}

/// An error message of a server or of the pooler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SqlError {
    /// SQLSTATE; for MySQL the error number, which is more specific.
    pub(super) code: String,
    pub(super) text: String,
    pub(super) outcome: CommandOutcome,
}

/// Outcome of a command that an error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandOutcome {
    /// The command was not executed.
    NotExecuted,
    /// The outcome is unknown.
    Unknown,
    /// The command was cancelled on request.
    Cancelled,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(error) => write!(f, "{} ({})", error.text, error.code),
            Failure::Ended(error) => write!(f, "ended: {} ({})", error.text, error.code),
            Failure::Lost(why) => write!(f, "connection lost: {why}"),
            Failure::TimedOut(what) => write!(f, "timed out: {what}"),
            Failure::Broken(what) => write!(f, "broken: {what}"),
        }
    }
}

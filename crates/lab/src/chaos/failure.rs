//! Why something did not come to its end, in whatever protocol.

use std::fmt;

/// What became of a command, a login, a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server said no to this one command; the session goes on.
    Refused(SqlError),
    /// The server said why it ends the session.
    Ended(SqlError),
    /// The connection broke without a word.
    Lost(String),
    /// No answer within the limit.
    Late(String),
    /// What came is not what the protocol allows, or belongs to somebody else.
    Broken(String),
}

/// An error message of a server, or of who speaks in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SqlError {
    /// SQLSTATE; of MySQL the number, which tells more.
    pub(super) code: String,
    pub(super) text: String,
    pub(super) means: Means,
}

/// What an error says of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// It was not done.
    NotDone,
    /// Perhaps it was done.
    Doubtful,
    /// Somebody has asked that it be cancelled.
    Cancelled,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(error) => write!(f, "{} ({})", error.text, error.code),
            Failure::Ended(error) => write!(f, "ended: {} ({})", error.text, error.code),
            Failure::Lost(why) => write!(f, "connection lost: {why}"),
            Failure::Late(what) => write!(f, "late: {what}"),
            Failure::Broken(what) => write!(f, "broken: {what}"),
        }
    }
}

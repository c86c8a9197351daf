//! Defines the errors of the console, with the codes of both protocols.

use evenkeel_wire::mysql::backend::SqlState as MySqlState;
use evenkeel_wire::postgres::backend::SqlState;

use crate::status::Stopped;

/// Error of the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConsoleError {
    pub(super) kind: ConsoleErrorKind,
    pub(super) message: String,
}

/// Kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConsoleErrorKind {
    /// The console cannot parse the statement.
    Syntax,
    UnknownTable,
    UnknownColumn,
    UnknownVariable,
    /// A value is invalid.
    InvalidValue,
    /// The command requires the token.
    PermissionDenied,
    /// The client may not connect.
    AuthFailed,
    /// The control plane refused the command, or the query could not be executed.
    CommandFailed,
    /// The process is shutting down.
    ShuttingDown,
    /// The protocol has the feature, the console does not.
    Unsupported,
    /// The client violated the protocol.
    Protocol,
    /// There is no prepared statement of this name or number.
    UnknownStatement,
    /// There is no portal of this name.
    UnknownPortal,
    /// The client exceeds a limit on prepared statements or portals.
    TooManyStatements,
    /// The query exceeded its time limit.
    QueryTimedOut,
    /// The query or its result exceeded a size limit.
    TooLarge,
}

impl ConsoleError {
    pub(super) fn new(kind: ConsoleErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }
}

impl ConsoleErrorKind {
    /// Returns PostgreSQL's code for the error.
    pub(super) fn postgres(self) -> SqlState {
        SqlState(*match self {
            ConsoleErrorKind::Syntax => b"42601",
            ConsoleErrorKind::UnknownTable => b"42P01",
            ConsoleErrorKind::UnknownColumn => b"42703",
            ConsoleErrorKind::UnknownVariable => b"42704",
            ConsoleErrorKind::InvalidValue => b"22023",
            ConsoleErrorKind::PermissionDenied => b"42501",
            ConsoleErrorKind::AuthFailed => b"28000",
            ConsoleErrorKind::CommandFailed => b"55000",
            ConsoleErrorKind::ShuttingDown => b"57P01",
            ConsoleErrorKind::Unsupported => b"0A000",
            ConsoleErrorKind::Protocol => b"08P01",
            ConsoleErrorKind::UnknownStatement => b"26000",
            ConsoleErrorKind::UnknownPortal => b"34000",
            ConsoleErrorKind::TooManyStatements | ConsoleErrorKind::TooLarge => b"54000",
            ConsoleErrorKind::QueryTimedOut => b"57014",
        })
    }

    /// Returns MySQL's code and state for the error.
    pub(super) fn mysql(self) -> (u16, MySqlState) {
        let (code, state) = match self {
            ConsoleErrorKind::Syntax => (1064, b"42000"),
            ConsoleErrorKind::UnknownTable => (1146, b"42S02"),
            ConsoleErrorKind::UnknownColumn => (1054, b"42S22"),
            ConsoleErrorKind::UnknownVariable => (1193, b"HY000"),
            ConsoleErrorKind::InvalidValue => (1210, b"HY000"),
            ConsoleErrorKind::PermissionDenied => (1227, b"42000"),
            ConsoleErrorKind::AuthFailed => (1045, b"28000"),
            ConsoleErrorKind::CommandFailed => (1105, b"HY000"),
            ConsoleErrorKind::ShuttingDown => (1053, b"08S01"),
            ConsoleErrorKind::Unsupported => (1295, b"HY000"),
            ConsoleErrorKind::Protocol => (1835, b"HY000"),
            ConsoleErrorKind::UnknownStatement | ConsoleErrorKind::UnknownPortal => {
                (1243, b"HY000")
            }
            ConsoleErrorKind::TooManyStatements => (1461, b"42000"),
            ConsoleErrorKind::QueryTimedOut => (3024, b"HY000"),
            ConsoleErrorKind::TooLarge => (1104, b"42000"),
        };
        (code, MySqlState(*state))
    }
}

impl From<Stopped> for ConsoleError {
    fn from(stopped: Stopped) -> Self {
        Self::new(ConsoleErrorKind::ShuttingDown, stopped.to_string())
    }
}

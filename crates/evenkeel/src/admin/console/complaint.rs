//! Why something was not done, in numbers that clients of either protocol know.

use evenkeel_wire::mysql::backend::SqlState as MySqlState;
use evenkeel_wire::postgres::backend::SqlState;

use crate::status::Stopped;

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) why: Why,
    pub(super) message: String,
}

/// Whose fault it is, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The console does not understand it.
    Syntax,
    NoTable,
    NoColumn,
    NoVariable,
    /// A value that cannot be meant.
    Value,
    /// It takes the token.
    Forbidden,
    /// Who asks may not come in.
    Stranger,
    /// The control plane would not.
    NotNow,
    /// The process ends.
    Ending,
    /// The protocol has it, the console has not.
    NotHere,
    /// The client does not keep to the protocol.
    Protocol,
    NoStatement,
    NoPortal,
    /// More than a client may have.
    TooMany,
    /// It runs longer than a query may.
    TooLong,
    /// It takes or gives more than a query may.
    TooLarge,
}

impl Complaint {
    pub(super) fn new(why: Why, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { why, message }
    }
}

impl Why {
    /// As PostgreSQL numbers it.
    pub(super) fn postgres(self) -> SqlState {
        SqlState(*match self {
            Why::Syntax => b"42601",
            Why::NoTable => b"42P01",
            Why::NoColumn => b"42703",
            Why::NoVariable => b"42704",
            Why::Value => b"22023",
            Why::Forbidden => b"42501",
            Why::Stranger => b"28000",
            Why::NotNow => b"55000",
            Why::Ending => b"57P01",
            Why::NotHere => b"0A000",
            Why::Protocol => b"08P01",
            Why::NoStatement => b"26000",
            Why::NoPortal => b"34000",
            Why::TooMany | Why::TooLarge => b"54000",
            Why::TooLong => b"57014",
        })
    }

    /// As MySQL numbers it.
    pub(super) fn mysql(self) -> (u16, MySqlState) {
        let (code, state) = match self {
            Why::Syntax => (1064, b"42000"),
            Why::NoTable => (1146, b"42S02"),
            Why::NoColumn => (1054, b"42S22"),
            Why::NoVariable => (1193, b"HY000"),
            Why::Value => (1210, b"HY000"),
            Why::Forbidden => (1227, b"42000"),
            Why::Stranger => (1045, b"28000"),
            Why::NotNow => (1105, b"HY000"),
            Why::Ending => (1053, b"08S01"),
            Why::NotHere => (1295, b"HY000"),
            Why::Protocol => (1835, b"HY000"),
            Why::NoStatement | Why::NoPortal => (1243, b"HY000"),
            Why::TooMany => (1461, b"42000"),
            Why::TooLong => (3024, b"HY000"),
            Why::TooLarge => (1104, b"42000"),
        };
        (code, MySqlState(*state))
    }
}

impl From<Stopped> for Complaint {
    fn from(stopped: Stopped) -> Self {
        Self::new(Why::Ending, stopped.to_string())
    }
}

//! Builds the errors that Evenkeel itself sends to MySQL clients.

use std::fmt::Display;

use evenkeel_policy::failover_queue::PrimaryError;
use evenkeel_wire::mysql::backend::{ErrorReport, SqlState};
use evenkeel_wire::mysql::build;

use crate::error_catalog::{self, CatalogEntry};
use crate::record::TerminationReason;
use crate::session::acquirer::AcquireError;
use crate::upstream::connect_error::{ConnectError, ErrorCode};

/// Error to be sent to a client. The message states what happened and, if possible, what to do.
#[derive(Debug, Clone)]
pub(crate) struct ErrorReply {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl ErrorReply {
    /// Creates the error of a catalog entry without arguments.
    pub(crate) fn new(entry: &CatalogEntry) -> Self {
        Self::with(entry, &[])
    }

    /// Creates the error of a catalog entry with these arguments.
    pub(crate) fn with(entry: &CatalogEntry, arguments: &[&dyn Display]) -> Self {
        let (number, sqlstate) = entry.mysql_code();
        Self {
            code: ErrorCode { number, sqlstate },
            message: entry.message_and_hint(arguments),
        }
    }

    /// Creates the error that a server has reported, with a prefix.
    pub(crate) fn of_report(report: &ErrorReport<'_>, prefix: &str) -> Self {
        let code = ErrorCode {
            number: report.code,
            sqlstate: report.sqlstate.unwrap_or(SqlState::GENERAL).0,
        };
        let text = String::from_utf8_lossy(report.message);
        Self {
            code,
            message: format!("{prefix}{text}"),
        }
    }

    /// Replaces the code of the catalog by a more specific one.
    pub(crate) fn code(self, number: u16, sqlstate: SqlState) -> Self {
        let sqlstate = sqlstate.0;
        Self {
            code: ErrorCode { number, sqlstate },
            ..self
        }
    }

    /// Appends a detail to the message.
    pub(crate) fn detail(mut self, detail: impl Display) -> Self {
        self.message = format!("{} ({detail})", self.message);
        self
    }

    /// Creates the error for a client that violates the protocol.
    pub(crate) fn protocol(what: impl Display) -> Self {
        Self::with(&error_catalog::PROTOCOL_VIOLATION, &[&what])
    }

    /// Creates the error for a statement that a rule rejects with this message.
    pub(crate) fn by_rule(message: String) -> Self {
        Self {
            message,
            ..Self::new(&error_catalog::REJECTED_BY_RULE)
        }
    }

    /// Creates the error for a failed acquisition of a server connection; the command was not
    /// executed.
    pub(super) fn from_acquire_error(error: &AcquireError) -> Self {
        match error {
            AcquireError::Refused(refusal) => Self::new(CatalogEntry::of_pool(*refusal)),
            AcquireError::TimedOut => Self::new(&error_catalog::POOL_TIMEOUT),
            AcquireError::NoPrimary(error) => Self::from_primary_error(*error),
            AcquireError::ConnectFailed(error) => Self::from_connect_error(error),
        }
    }

    /// Creates the error for a failed connection attempt to a server. An error of the server keeps
    /// its code.
    pub(crate) fn from_connect_error(error: &ConnectError) -> Self {
        let reply = Self::with(&error_catalog::CONNECT_FAILED, &[&error.client_message()]);
        match error.code {
            Some(code) => Self { code, ..reply },
            None => reply,
        }
    }

    /// Creates the error for a primary that is missing or was lost.
    pub(crate) fn from_primary_error(error: PrimaryError) -> Self {
        let (entry, argument) = CatalogEntry::of_primary(error);
        Self::with(entry, &[&argument])
    }

    /// Creates the error for a session that Evenkeel terminates.
    pub(crate) fn of_ending(reason: &TerminationReason) -> Self {
        let (entry, argument) = CatalogEntry::of_termination(reason);
        Self::with(entry, &[&argument])
    }

    /// Writes the error as an ERR packet with this sequence number.
    pub(crate) fn write(&self, sequence: u8, out: &mut Vec<u8>) {
        let error = build::ErrorText {
            code: self.code.number,
            sqlstate: SqlState(self.code.sqlstate),
            message: self.message.as_bytes(),
        };
        build::error(out, sequence, &error);
    }
}

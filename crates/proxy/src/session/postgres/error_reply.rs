//! Builds the errors that Evenkeel itself sends to clients of a PostgreSQL service.

use std::fmt::Display;

use evenkeel_policy::failover_queue::PrimaryError;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::build;

use crate::error_catalog::{self, CatalogEntry};
use crate::record::TerminationReason;
use crate::session::acquirer::AcquireError;
use crate::upstream::connect_error::ConnectError;

/// Error to be sent to a client. The message states what happened and, if possible, what to do.
#[derive(Debug, Clone)]
pub(crate) struct ErrorReply {
    pub(crate) sqlstate: SqlState,
    pub(crate) message: String,
    detail: Option<String>,
    hint: Option<&'static str>,
}

impl ErrorReply {
    /// Creates the error of a catalog entry without arguments.
    pub(crate) fn new(entry: &CatalogEntry) -> Self {
        Self::with(entry, &[])
    }

    /// Creates the error of a catalog entry with these arguments.
    pub(crate) fn with(entry: &CatalogEntry, arguments: &[&dyn Display]) -> Self {
        Self {
            sqlstate: SqlState(entry.sqlstate()),
            message: entry.message(arguments),
            detail: None,
            hint: entry.hint_text(),
        }
    }

    /// Creates the error that a server has reported.
    pub(crate) fn from_server(sqlstate: SqlState, message: impl Into<String>) -> Self {
        Self {
            sqlstate,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    /// Replaces the SQLSTATE of the catalog by a more specific one.
    pub(crate) fn sqlstate(self, sqlstate: SqlState) -> Self {
        Self { sqlstate, ..self }
    }

    pub(crate) fn detail(self, detail: impl Into<String>) -> Self {
        Self {
            detail: Some(detail.into()),
            ..self
        }
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

    /// Creates the error for a failed acquisition of a server connection.
    pub(super) fn from_acquire_error(error: &AcquireError) -> Self {
        match error {
            AcquireError::Refused(refusal) => Self::new(CatalogEntry::of_pool(*refusal)),
            AcquireError::TimedOut => Self::new(&error_catalog::POOL_TIMEOUT),
            AcquireError::NoPrimary(error) => Self::from_primary_error(*error),
            AcquireError::ConnectFailed(error) => Self::from_connect_error(error),
        }
    }

    /// Creates the error for a failed connection attempt to a server. An error of the server keeps
    /// its SQLSTATE.
    pub(crate) fn from_connect_error(error: &ConnectError) -> Self {
        let reply = Self::with(&error_catalog::CONNECT_FAILED, &[&error.client_message()]);
        match error.code {
            Some(code) => reply.sqlstate(SqlState(code.sqlstate)),
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

    /// Writes the error as one after which the session continues.
    pub(crate) fn write_error(&self, out: &mut Vec<u8>) {
        self.write(out, "ERROR");
    }

    /// Writes the error as one that ends the session.
    pub(crate) fn write_fatal(&self, out: &mut Vec<u8>) {
        self.write(out, "FATAL");
    }

    fn write(&self, out: &mut Vec<u8>, severity: &str) {
        let text = build::ErrorText {
            severity,
            sqlstate: self.sqlstate,
            message: &self.message,
            detail: self.detail.as_deref().unwrap_or_default(),
            hint: self.hint.unwrap_or_default(),
        };
        build::error(out, &text);
    }
}

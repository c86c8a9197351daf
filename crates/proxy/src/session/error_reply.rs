//! Builds the errors that Evenkeel itself sends to clients of databases. Each protocol has its own
//! codes, and writes the errors in its own format.

use std::fmt::{Debug, Display};

use evenkeel_policy::failover_queue::PrimaryError;

use super::acquirer::AcquireError;
use crate::error_catalog::{self, CatalogEntry};
use crate::record::TerminationReason;
use crate::upstream::connect_error::{ConnectError, ErrorCode};

/// Error to be sent to a client. The message states what happened and, if possible, what to do.
#[derive(Debug, Clone)]
pub(crate) struct ErrorReply<C: ReplyCode> {
    pub(crate) code: C,
    pub(crate) message: String,
    pub(super) notes: C::Notes,
}

/// Code of an error in one protocol.
pub(crate) trait ReplyCode: Sized {
    /// Texts that the protocol sends beside the message. Sessions keep errors, so that a protocol
    /// without such texts must not pay for them.
    type Notes: Debug + Clone + Default;

    /// Returns the error of a catalog entry with these arguments.
    fn reply(entry: &CatalogEntry, arguments: &[&dyn Display]) -> ErrorReply<Self>;

    /// Returns the code that a server has sent.
    fn of_server(code: ErrorCode) -> Self;
}

impl<C: ReplyCode> ErrorReply<C> {
    /// Creates the error of a catalog entry without arguments.
    pub(crate) fn new(entry: &CatalogEntry) -> Self {
        Self::with(entry, &[])
    }

    /// Creates the error of a catalog entry with these arguments.
    pub(crate) fn with(entry: &CatalogEntry, arguments: &[&dyn Display]) -> Self {
        C::reply(entry, arguments)
    }

    /// Creates the error that a server has reported.
    pub(crate) fn from_server(code: C, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            notes: C::Notes::default(),
        }
    }

    /// Replaces the code of the catalog by a more specific one.
    pub(crate) fn coded(self, code: C) -> Self {
        Self { code, ..self }
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

    /// Creates the error for a failed acquisition of a server connection; the statement was not
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
            Some(code) => reply.coded(C::of_server(code)),
            None => reply,
        }
    }

    /// Creates the error of a login at a server, as the server has sent it.
    pub(super) fn from_login_error(error: &ConnectError) -> Self {
        match (error.code, &error.text) {
            (Some(code), Some(text)) => Self::from_server(C::of_server(code), text),
            _ => Self::from_connect_error(error),
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
}

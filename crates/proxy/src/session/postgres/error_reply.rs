//! Builds the errors that Evenkeel itself sends to clients of a PostgreSQL service.

use evenkeel_policy::connection_pool::PoolRefusal;
use evenkeel_policy::failover_queue::PrimaryError;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::build;

use crate::record::{CutReason, TerminationReason};
use crate::session::acquirer::AcquireError;
use crate::session::statement_interner::OF_CLIENT_MAX;
use crate::upstream::server_login::ConnectError;

/// Error to be sent to a client. The message states what happened and, if possible, what to do.
#[derive(Debug, Clone)]
pub(crate) struct ErrorReply {
    pub(crate) sqlstate: SqlState,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<&'static str>,
}

impl ErrorReply {
    pub(crate) fn new(sqlstate: &[u8; 5], message: impl Into<String>) -> Self {
        Self {
            sqlstate: SqlState(*sqlstate),
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    pub(crate) fn detail(self, detail: impl Into<String>) -> Self {
        Self {
            detail: Some(detail.into()),
            ..self
        }
    }

    pub(crate) fn hint(self, hint: &'static str) -> Self {
        Self {
            hint: Some(hint),
            ..self
        }
    }

    /// Client has violated the protocol.
    pub(crate) fn protocol(what: impl std::fmt::Display) -> Self {
        Self::new(b"08P01", format!("protocol violation: {what}"))
    }

    /// COPY has failed with more messages in flight than can be distinguished (§54.2.6).
    pub(crate) fn undecidable() -> Self {
        Self::new(
            b"08P01",
            "terminating connection: COPY failed, and replies can no longer be matched to the \
             messages sent with it",
        )
        .hint("Send only copy data between the start of a COPY and its end.")
    }

    /// Timeout of the wait for a server connection.
    pub(crate) fn waited() -> Self {
        Self::new(
            b"53300",
            "timed out waiting for a server connection; statement not executed, retry",
        )
        .hint("All connections of the pool were in use: see size and wait_ms in [service.pool].")
    }

    /// Timeout of a login that waited for other logins to complete.
    pub(super) fn too_many_logins() -> Self {
        Self::new(b"53300", "too many concurrent logins, try again")
            .hint("See logins_at_once and logins_per_address of the service.")
    }

    /// All process ids are in use by other clients.
    pub(super) fn out_of_ids() -> Self {
        Self::new(b"53300", "too many clients: all process ids are in use")
    }

    /// Pool refused to queue the session.
    pub(crate) fn refused(refusal: PoolRefusal) -> Self {
        match refusal {
            PoolRefusal::QueueFull => Self::new(
                b"53300",
                "too many clients are waiting for a server connection; statement not executed, \
                 retry later",
            )
            .hint("See size and queue_length in [service.pool]."),
            PoolRefusal::LimitIsZero => Self::new(
                b"53300",
                "no server connection is allowed by the configured limits; statement not executed",
            )
            .hint("A limit of [service.pool] or max_connections of a server is 0."),
            PoolRefusal::Outdated => Self::new(
                b"57P01",
                "the server or the credentials of this session are no longer in use; reconnect",
            ),
        }
    }

    /// Acquisition of a server connection has failed.
    pub(super) fn from_acquire_error(denial: &AcquireError) -> Self {
        match denial {
            AcquireError::Refused(refusal) => Self::refused(*refusal),
            AcquireError::TimedOut => Self::waited(),
            AcquireError::Trouble(trouble) => Self::from_primary_error(*trouble),
            AcquireError::ConnectFailed(error) => Self::from_connect_error(error),
        }
    }

    /// Opening a server connection has failed.
    pub(crate) fn from_connect_error(error: &ConnectError) -> Self {
        let sqlstate = error.code.map_or(*b"08006", |code| code.sqlstate);
        Self::new(&sqlstate, error.message.clone())
    }

    /// configuration_limit_exceeded: the statements would use up the memory available to others.
    pub(crate) fn too_many_statements() -> Self {
        let text = format!(
            "terminating connection: more than {OF_CLIENT_MAX} prepared statements, or more than \
             64 MiB of them"
        );
        Self::new(b"53400", text).hint("Deallocate statements that are no longer needed.")
    }

    /// insufficient_privilege: a rule refuses the statement.
    pub(crate) fn by_rule(why: String) -> Self {
        Self::new(b"42501", why)
    }

    /// No primary is available, or it was lost.
    pub(crate) fn from_primary_error(trouble: PrimaryError) -> Self {
        let sqlstate = match trouble {
            PrimaryError::NoPrimary { .. } => b"57P03",
            PrimaryError::QueueFull => b"53300",
            PrimaryError::TransactionLost => b"40001",
            PrimaryError::OutcomeUnknown => b"08007",
        };
        Self::new(sqlstate, trouble.to_string())
    }

    /// Session is terminated by a limit, a command or the failure of a server.
    pub(crate) fn of_ending(ending: &TerminationReason) -> Self {
        match ending {
            TerminationReason::IdleTimeout => Self::new(
                b"57P05",
                "terminating connection due to idle-session timeout (idle_timeout_ms)",
            ),
            TerminationReason::TransactionTimeout => Self::new(
                b"25P04",
                "terminating connection due to transaction timeout (transaction_timeout_ms)",
            ),
            TerminationReason::IdleInTransaction => Self::new(
                b"25P03",
                "terminating connection due to idle-in-transaction timeout \
                 (idle_in_transaction_timeout_ms)",
            ),
            TerminationReason::Cut(CutReason::ServerDown | CutReason::PrimaryChanged) => Self::new(
                b"57P01",
                "terminating connection: the server that ran its transaction is down or no longer \
                 the primary; transaction rolled back, retry it from the beginning",
            ),
            ending => Self::new(b"57P01", format!("terminating connection: {ending}")),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::documented;
    use crate::upstream::server_login::ConnectErrorKind;

    #[test]
    fn every_error_is_documented() {
        let ends = [
            TerminationReason::IdleTimeout,
            TerminationReason::TransactionTimeout,
            TerminationReason::IdleInTransaction,
            TerminationReason::Cut(CutReason::ServerDown),
            TerminationReason::Cut(CutReason::Command),
        ];
        let primary = [
            PrimaryError::NoPrimary { waited_ms: 5 },
            PrimaryError::QueueFull,
            PrimaryError::TransactionLost,
            PrimaryError::OutcomeUnknown,
        ];
        let pool = [
            PoolRefusal::QueueFull,
            PoolRefusal::LimitIsZero,
            PoolRefusal::Outdated,
        ];
        let connect = ConnectError {
            kind: ConnectErrorKind::Unreachable,
            code: None,
            message: "server db1 refused the connection".to_owned(),
            server_id: 1,
        };
        let mut replies = vec![
            ErrorReply::protocol("malformed message 'P'"),
            ErrorReply::undecidable(),
            ErrorReply::waited(),
            ErrorReply::too_many_logins(),
            ErrorReply::out_of_ids(),
            ErrorReply::from_connect_error(&connect),
            ErrorReply::too_many_statements(),
            ErrorReply::by_rule("rejected by rule \"r\": no".to_owned()),
        ];
        replies.extend(ends.iter().map(ErrorReply::of_ending));
        replies.extend(primary.map(ErrorReply::from_primary_error));
        replies.extend(pool.map(ErrorReply::refused));
        let replies = replies.into_iter().map(|reply| {
            let sqlstate = String::from_utf8_lossy(&reply.sqlstate.0).into_owned();
            (sqlstate, reply.message)
        });
        documented::check("PostgreSQL", &replies.collect::<Vec<_>>());
    }
}

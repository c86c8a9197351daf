//! Defines the errors that Evenkeel itself sends to MySQL clients.

use evenkeel_policy::connection_pool::PoolRefusal;
use evenkeel_policy::failover_queue::PrimaryError;
use evenkeel_wire::mysql::backend::{ErrorReport, SqlState};
use evenkeel_wire::mysql::build;

use crate::record::{CutReason, TerminationReason};
use crate::session::acquirer::AcquireError;
use crate::session::statement_interner::OF_CLIENT_MAX;
use crate::upstream::server_login::{ConnectError, ErrorCode};

/// Error to send to a client. Every text states what happened, and the remedy if there is one.
///
/// The codes are the closest matches in the servers' "Error Message Reference", so that clients
/// react as they would without Evenkeel.
#[derive(Debug, Clone)]
pub(crate) struct ErrorReply {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl ErrorReply {
    pub(crate) fn new(number: u16, sqlstate: &[u8; 5], message: impl Into<String>) -> Self {
        let code = ErrorCode {
            number,
            sqlstate: *sqlstate,
        };
        Self {
            code,
            message: message.into(),
        }
    }

    /// Appends a detail to the message.
    pub(crate) fn detail(mut self, detail: impl std::fmt::Display) -> Self {
        self.message = format!("{} ({detail})", self.message);
        self
    }

    /// Creates an error from a server's report, prefixed with `why`.
    pub(crate) fn of_report(report: &ErrorReport<'_>, why: &str) -> Self {
        let sqlstate = report.sqlstate.unwrap_or(SqlState::GENERAL);
        let text = String::from_utf8_lossy(report.message);
        Self::new(report.code, &sqlstate.0, format!("{why}{text}"))
    }

    /// Returns ER_MALFORMED_PACKET: the client violated the protocol.
    pub(crate) fn protocol(what: impl std::fmt::Display) -> Self {
        Self::new(1835, b"HY000", format!("protocol violation: {what}"))
    }

    /// Returns ER_UNKNOWN_COM_ERROR.
    pub(crate) fn unknown_command() -> Self {
        Self::new(1047, b"08S01", "Unknown command")
    }

    /// Returns ER_UNKNOWN_STMT_HANDLER with the servers' text.
    pub(crate) fn unknown_statement(number: u32, to: &str) -> Self {
        let text = format!("Unknown prepared statement handler ({number}) given to {to}");
        Self::new(1243, b"HY000", text)
    }

    /// Returns ER_MAX_PREPARED_STMT_COUNT_REACHED: one client must not exhaust the memory for all
    /// others.
    pub(crate) fn too_many_statements() -> Self {
        let text = format!(
            "Can't create more than {OF_CLIENT_MAX} prepared statements, or more than 64 MiB of \
             them, in one session: close some first"
        );
        Self::new(1461, b"42000", text)
    }

    /// Returns ER_NEED_REPREPARE: the settings of the statement's preparation can no longer be
    /// restored.
    pub(crate) fn must_prepare_again() -> Self {
        let text = "Prepared statement needs to be re-prepared: SQL mode, character set or schema \
                    changed since it was prepared";
        Self::new(1615, b"HY000", text)
    }

    /// Returns ER_NEED_REPREPARE for an execution whose full packet cannot take the parameter
    /// types.
    pub(crate) fn types_left_out() -> Self {
        let text = "Prepared statement needs to be re-prepared: an execution of 16 MiB or more \
                    does not include its parameter types; not executed";
        Self::new(1615, b"HY000", text)
    }

    /// Returns the error for an execution with long data that reached no server.
    pub(crate) fn data_lost() -> Self {
        let text = "parameter data sent with COM_STMT_SEND_LONG_DATA was lost; statement not \
                    executed, send the data again and retry";
        Self::new(1205, b"HY000", text)
    }

    /// Returns ER_STMT_HAS_NO_OPEN_CURSOR with the servers' text.
    pub(crate) fn no_cursor(number: u32) -> Self {
        let text = format!("The statement ({number}) has no open cursor");
        Self::new(1421, b"HY000", text)
    }

    /// Returns ER_QUERY_INTERRUPTED.
    pub(crate) fn interrupted() -> Self {
        Self::new(1317, b"70100", "Query execution was interrupted")
    }

    /// Returns ER_NOT_SUPPORTED_YET: the server could apply the id to the connection of another
    /// client.
    pub(crate) fn kill_of_stranger() -> Self {
        let text = "KILL CONNECTION must be the only statement and name a connection id assigned \
                    by Evenkeel; ids reported by the servers are not valid here";
        Self::new(1235, b"42000", text)
    }

    /// Returns ER_UNSUPPORTED_PS, after which clients send the statement as text.
    pub(crate) fn kill_prepared() -> Self {
        let text = "KILL CONNECTION cannot be prepared; send it as a text statement";
        Self::new(1295, b"HY000", text)
    }

    /// Returns the error for a wait for a connection that timed out.
    pub(crate) fn waited() -> Self {
        Self::new(
            1040,
            b"08004",
            "timed out waiting for a server connection; statement not executed, retry. All \
             connections of the pool were in use: see size and wait_ms in [service.pool]",
        )
    }

    /// Returns the error for a connection request that the pool rejected.
    pub(crate) fn refused(refusal: PoolRefusal) -> Self {
        match refusal {
            PoolRefusal::QueueFull => Self::new(
                1040,
                b"08004",
                "too many clients are waiting for a server connection; statement not executed, \
                 retry later. See size and queue_length in [service.pool]",
            ),
            PoolRefusal::LimitIsZero => Self::new(
                1040,
                b"08004",
                "no server connection is allowed: a limit of [service.pool] or max_connections of \
                 a server is 0; statement not executed",
            ),
            PoolRefusal::Outdated => Self::new(
                1053,
                b"08S01",
                "the server or the credentials of this session are no longer in use; reconnect",
            ),
        }
    }

    /// Returns the error for a failed acquisition; the command was not executed.
    pub(super) fn from_acquire_error(denial: &AcquireError) -> Self {
        match denial {
            AcquireError::Refused(refusal) => Self::refused(*refusal),
            AcquireError::TimedOut => Self::waited(),
            AcquireError::Trouble(trouble) => Self::from_primary_error(*trouble),
            AcquireError::ConnectFailed(error) => Self::from_connect_error(error),
        }
    }

    /// Returns the error for a failed connection attempt to a server.
    pub(crate) fn from_connect_error(error: &ConnectError) -> Self {
        match error.code {
            Some(code) => Self {
                code,
                message: error.message.clone(),
            },
            None => Self::new(2003, b"08S01", error.message.clone()),
        }
    }

    /// Returns the error for the loss of a server connection that held session state.
    pub(crate) fn pinned_state_lost() -> Self {
        let text = "lost the server connection that this session was pinned to; reconnect";
        Self::new(1053, b"08S01", text)
    }

    /// Returns ER_OPTION_PREVENTS_STATEMENT, as a replica would.
    pub(crate) fn bound_to_replica() -> Self {
        let text = "session is pinned to a read-only replica, and the statement may write or lock; \
                    not executed. End the READ ONLY transaction or reset the connection first";
        Self::new(1290, b"HY000", text)
    }

    /// Returns ER_NOT_ALLOWED_COMMAND: a rule rejects the command.
    pub(crate) fn by_rule(why: String) -> Self {
        Self::new(1148, b"42000", why)
    }

    /// Returns the error for a primary that is missing or was lost.
    pub(crate) fn from_primary_error(trouble: PrimaryError) -> Self {
        let (number, sqlstate) = match trouble {
            // ER_OPTION_PREVENTS_STATEMENT, as a replica would return it.
            PrimaryError::NoPrimary { .. } => (1290, b"HY000"),
            PrimaryError::QueueFull => (1040, b"08004"),
            // ER_LOCK_DEADLOCK: the whole transaction is rolled back and may be retried.
            PrimaryError::TransactionLost => (1213, b"40001"),
            PrimaryError::OutcomeUnknown => (2013, b"08S01"),
        };
        Self::new(number, sqlstate, trouble.to_string())
    }

    /// Returns the error for a session that is terminated by Evenkeel.
    pub(crate) fn of_ending(ending: &TerminationReason) -> Self {
        let text = match ending {
            TerminationReason::IdleTimeout => {
                "connection terminated: idle for longer than idle_timeout_ms or wait_timeout"
                    .to_owned()
            }
            TerminationReason::TransactionTimeout => {
                "connection terminated: transaction exceeded transaction_timeout_ms".to_owned()
            }
            TerminationReason::IdleInTransaction => {
                "connection terminated: idle in transaction for longer than \
                 idle_in_transaction_timeout_ms"
                    .to_owned()
            }
            TerminationReason::Cut(CutReason::ServerDown | CutReason::PrimaryChanged) => {
                "connection terminated: the server that ran its transaction is down or no longer \
                 the primary; transaction rolled back, retry it from the beginning"
                    .to_owned()
            }
            ending => format!("connection terminated: {ending}"),
        };
        // ER_SERVER_SHUTDOWN
        Self::new(1053, b"08S01", text)
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
            ErrorReply::protocol("packet out of order"),
            ErrorReply::unknown_command(),
            ErrorReply::unknown_statement(7, "mysqld_stmt_execute"),
            ErrorReply::too_many_statements(),
            ErrorReply::must_prepare_again(),
            ErrorReply::types_left_out(),
            ErrorReply::data_lost(),
            ErrorReply::no_cursor(7),
            ErrorReply::interrupted(),
            ErrorReply::kill_of_stranger(),
            ErrorReply::kill_prepared(),
            ErrorReply::waited(),
            ErrorReply::from_connect_error(&connect),
            ErrorReply::pinned_state_lost(),
            ErrorReply::bound_to_replica(),
            ErrorReply::by_rule("rejected by rule \"r\": no".to_owned()),
        ];
        replies.extend(ends.iter().map(ErrorReply::of_ending));
        replies.extend(primary.map(ErrorReply::from_primary_error));
        replies.extend(pool.map(ErrorReply::refused));
        let replies = replies.into_iter().map(|reply| {
            let sqlstate = String::from_utf8_lossy(&reply.code.sqlstate).into_owned();
            (format!("{} ({sqlstate})", reply.code.number), reply.message)
        });
        documented::check("MySQL and MariaDB", &replies.collect::<Vec<_>>());
    }
}

//! Lists the errors that Evenkeel itself sends to database clients, with their codes in both
//! protocols. `docs/errors.md` documents each entry; a test compares the two.

use std::fmt::{Display, Write as _};

use evenkeel_policy::connection_pool::PoolRefusal;
use evenkeel_policy::failover_queue::PrimaryError;

use crate::record::{CutReason, TerminationReason};

/// Codes and texts of one error.
///
/// SQLSTATEs and numbers are the closest matches in the servers' own lists (PostgreSQL: "Error
/// Codes" in the manual; MySQL: "Error Message Reference"), so that clients react as they would
/// without Evenkeel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CatalogEntry {
    /// Message. Each `…` stands for an argument.
    message: &'static str,
    /// Advice to the user, as a sentence. Empty if there is none.
    hint: &'static str,
    postgres: Option<[u8; 5]>,
    mysql: Option<(u16, [u8; 5])>,
}

impl CatalogEntry {
    const fn hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }

    /// Returns the SQLSTATE in PostgreSQL. An entry of MySQL alone yields internal_error.
    pub(crate) fn sqlstate(&self) -> [u8; 5] {
        debug_assert!(self.postgres.is_some(), "{self:?} is not for PostgreSQL");
        self.postgres.unwrap_or(*b"XX000")
    }

    /// Returns the number and SQLSTATE in MySQL. An entry of PostgreSQL alone yields
    /// ER_UNKNOWN_ERROR.
    pub(crate) fn mysql_code(&self) -> (u16, [u8; 5]) {
        debug_assert!(self.mysql.is_some(), "{self:?} is not for MySQL");
        self.mysql.unwrap_or((1105, *b"HY000"))
    }

    /// Returns the message with its arguments.
    pub(crate) fn message(&self, arguments: &[&dyn Display]) -> String {
        let mut parts = self.message.split('…');
        let mut message = parts.next().unwrap_or_default().to_owned();
        let mut arguments = arguments.iter();
        for part in parts {
            if let Some(argument) = arguments.next() {
                // Writing to a String cannot fail.
                let _ = write!(message, "{argument}");
            }
            message.push_str(part);
        }
        message
    }

    /// Returns the advice for the hint field of PostgreSQL.
    pub(crate) fn hint_text(&self) -> Option<&'static str> {
        (!self.hint.is_empty()).then_some(self.hint)
    }

    /// Returns the message with its arguments, followed by the hint, since MySQL has no field for
    /// one.
    pub(crate) fn message_and_hint(&self, arguments: &[&dyn Display]) -> String {
        let message = self.message(arguments);
        match self.hint.trim_end_matches('.') {
            "" => message,
            hint => format!("{message}. {hint}"),
        }
    }
}

const fn both(
    postgres: &[u8; 5],
    number: u16,
    mysql: &[u8; 5],
    message: &'static str,
) -> CatalogEntry {
    CatalogEntry {
        message,
        hint: "",
        postgres: Some(*postgres),
        mysql: Some((number, *mysql)),
    }
}

const fn postgres(sqlstate: &[u8; 5], message: &'static str) -> CatalogEntry {
    CatalogEntry {
        message,
        hint: "",
        postgres: Some(*sqlstate),
        mysql: None,
    }
}

const fn mysql(number: u16, sqlstate: &[u8; 5], message: &'static str) -> CatalogEntry {
    CatalogEntry {
        message,
        hint: "",
        postgres: None,
        mysql: Some((number, *sqlstate)),
    }
}

/// Defines the entries, and lists them for the test.
macro_rules! catalog {
    ($($name:ident = $entry:expr;)*) => {
        $(pub(crate) static $name: CatalogEntry = $entry;)*
        #[cfg(test)]
        static ENTRIES: &[&CatalogEntry] = &[$(&$name),*];
    };
}

catalog! {
    // Both protocols: requests, pool, cluster, ends of sessions, logins. MariaDB's client library
    // takes errors from 2000 on for its own, and reports such a reply as malformed: servers that
    // cannot be reached are 1429 (ER_CONNECT_TO_FOREIGN_DATA_SOURCE), not 2003.
    PROTOCOL_VIOLATION = both(b"08P01", 1835, b"HY000", "protocol violation: …");
    REJECTED_BY_RULE = both(b"42501", 1148, b"42000", "rejected by rule …: …");

    POOL_TIMEOUT = both(b"53300", 1040, b"08004",
        "timed out waiting for a server connection; statement not executed, retry")
        .hint("All connections of the pool were in use: see size and wait_ms in [service.pool].");
    POOL_QUEUE_FULL = both(b"53300", 1040, b"08004",
        "too many clients are waiting for a server connection; statement not executed, retry later")
        .hint("See size and queue_length in [service.pool].");
    POOL_LIMIT_IS_ZERO = both(b"53300", 1040, b"08004",
        "no server connection is allowed by the configured limits; statement not executed")
        .hint("A limit of [service.pool] or max_connections of a server is 0.");
    POOL_OUTDATED = both(b"57P01", 1053, b"08S01",
        "the server was removed or the user's credentials have changed; reconnect");
    CONNECT_FAILED = both(b"08006", 1429, b"08S01", "…");
    SERVER_CONNECTION_LOST = both(b"08006", 2013, b"08S01", "server …: …");

    NO_PRIMARY = both(b"57P03", 1290, b"HY000",
        "no primary available after … ms; statement not executed, retry");
    NO_PRIMARY_YET = both(b"57P03", 1290, b"HY000",
        "no primary available; statement not executed, retry");
    PRIMARY_QUEUE_FULL = both(b"53300", 1040, b"08004",
        "no primary available and too many clients are waiting for one; statement not executed, \
         retry later")
        .hint("See queue_length in [service.failover].");
    TRANSACTION_LOST = both(b"40001", 1213, b"40001",
        "lost the server that ran this transaction; transaction rolled back, retry it from the \
         beginning");
    OUTCOME_UNKNOWN = both(b"08007", 2013, b"08S01",
        "lost the server before it answered; the statement may or may not have been executed, \
         check before retrying");
    PINNED_CONNECTION_LOST = both(b"57P01", 1053, b"08S01",
        "terminating connection: lost the server connection that this session was pinned to");

    IDLE_TIMEOUT = both(b"57P05", 1053, b"08S01",
        "terminating connection due to idle-session timeout")
        .hint("See idle_timeout_ms of the service; in MySQL, wait_timeout of the session too.");
    TRANSACTION_TIMEOUT = both(b"25P04", 1053, b"08S01",
        "terminating connection due to transaction timeout")
        .hint("See transaction_timeout_ms of the service.");
    IDLE_IN_TRANSACTION_TIMEOUT = both(b"25P03", 1053, b"08S01",
        "terminating connection due to idle-in-transaction timeout")
        .hint("See idle_in_transaction_timeout_ms of the service.");
    TERMINATED_IN_TRANSACTION = both(b"57P01", 1053, b"08S01",
        "terminating connection: the server that ran its transaction is down or no longer the \
         primary; transaction rolled back, retry it from the beginning");
    TERMINATED = both(b"57P01", 1053, b"08S01", "terminating connection: …");

    TOO_MANY_LOGINS = both(b"53300", 1040, b"08004", "too many concurrent logins, try again")
        .hint("See logins_at_once and logins_per_address of the service.");
    LOGIN_TIMEOUT = both(b"08P01", 1159, b"08S01", "login not completed within … ms…")
        .hint("See login_timeout_ms of the service.");
    CREDENTIALS_UNAVAILABLE = both(b"57P03", 1429, b"HY000",
        "cannot verify credentials: …");
    NO_SERVER_AVAILABLE = both(b"57P03", 1429, b"HY000", "no server available: …");
    SERVER_UNRESPONSIVE = both(b"57P03", 1429, b"HY000",
        "server … does not respond, try again");
    LOGIN_REQUIRES_TLS = both(b"28000", 3159, b"HY000",
        "the servers of this service check the password itself, which is accepted over TLS or a \
         Unix socket only")
        .hint("Connect with TLS.");
    PASSWORD_NOT_KEPT = both(b"28000", 1045, b"28000",
        "the password is longer than … bytes, or there is no memory for it");
    AUTHENTICATION_FAILED = both(b"28000", 1251, b"08004", "authentication failed: …");

    // PostgreSQL: logins.
    STARTUP_REJECTED = postgres(b"08P01", "startup packet: …");
    NAME_NOT_UTF8 = postgres(b"28000", "user or database name is not valid UTF-8");
    TLS_REQUIRED = postgres(b"28000", "this service requires TLS")
        .hint("Connect with sslmode=require or better.");
    CLEARTEXT_REQUIRES_TLS = postgres(b"28000",
        "user \"…\" authenticates with a cleartext password, which requires TLS")
        .hint("Connect with sslmode=require or better.");
    ADDRESS_NOT_ALLOWED = postgres(b"28000",
        "user \"…\" is not allowed to connect from this address")
        .hint("See allow_from in [service.auth].");
    WRONG_PASSWORD = postgres(b"28P01", "password authentication failed for user \"…\"");
    TOO_MANY_PASSWORD_CHECKS = postgres(b"57P03",
        "too many password checks in progress, try again");
    ROLE_CANNOT_LOG_IN = postgres(b"28000", "role \"…\" is not permitted to log in");
    DATABASE_CLOSED = postgres(b"55000",
        "database \"…\" is not currently accepting connections");
    DATABASE_FORBIDDEN = postgres(b"42501", "permission denied for database \"…\"");
    OUT_OF_PROCESS_IDS = postgres(b"53300", "too many clients: all process ids are in use");

    // PostgreSQL: sessions.
    QUERY_CANCELED = postgres(b"57014", "canceling statement due to user request");
    COPY_UNDECIDABLE = postgres(b"08P01",
        "terminating connection: the client sent other messages during a COPY that failed")
        .hint("Send only copy data between the start of a COPY and its end.");
    STATEMENTS_OVER_LIMIT = postgres(b"53400",
        "terminating connection: more than … prepared statements, or more than 64 MiB of them")
        .hint("Deallocate statements that are no longer needed.");
    PIPELINE_ON_REPLICA = postgres(b"42501",
        "cannot execute statement: this pipeline started on a read-only replica; send Sync \
         before statements that may write");
    REPLICA_SESSION_CANNOT_WRITE = postgres(b"57P01",
        "terminating connection: session is pinned to a read-only replica and cannot write: …")
        .hint("The session was pinned in a READ ONLY transaction. Reconnect to write.");
    LISTENING_LOST = postgres(b"57P01",
        "terminating connection: lost the server connection that listens for this session; \
         notifications may be lost")
        .hint("Reconnect, LISTEN again, and look for work that was notified meanwhile.");
    NOTIFICATIONS_OVER_LIMIT = postgres(b"53400",
        "terminating connection: more than 4 MiB of notifications wait for this client")
        .hint("Read notifications, and keep transactions short.");
    SETTING_REJECTED = postgres(b"22023",
        "the server rejected a setting of this session: …");
    STARTUP_SETTINGS_LOST = postgres(b"22023",
        "terminating connection: cannot restore startup settings after RESET: …");

    // MySQL: logins.
    ACCESS_DENIED = mysql(1045, b"28000",
        "Access denied for user '…'@'…' (using password: …)");
    ACCOUNT_LOCKED_MARIADB = mysql(4151, b"HY000", "Access denied, this account is locked");
    ACCOUNT_LOCKED_MYSQL = mysql(3118, b"HY000",
        "Access denied for user '…'@'…'. Account is locked.");
    PASSWORD_EXPIRED = mysql(1862, b"HY000",
        "Your password has expired. To log in you must change it using a client that supports \
         expired passwords, connected to the server itself.");
    SECURE_TRANSPORT_REQUIRED = mysql(3159, b"HY000",
        "Connections using insecure transport are prohibited while \
         --require_secure_transport=ON.");
    BAD_HANDSHAKE = mysql(1043, b"08S01", "Bad handshake");
    MALFORMED_HANDSHAKE = mysql(1043, b"08S01", "Bad handshake: …");
    CLIENT_TOO_OLD = mysql(1251, b"08004",
        "Client does not support authentication protocol requested by server; consider \
         upgrading MySQL client");
    NO_SERVER_CREDENTIAL = mysql(1251, b"08004",
        "authentication succeeded, but … provides no credential for the servers: add the user \
         with server_password to users_file of [service.auth]");

    // MySQL: packets and statements.
    PACKET_TOO_LONG = mysql(1153, b"08S01",
        "Got a packet bigger than 'max_allowed_packet' bytes: …");
    PACKETS_OUT_OF_ORDER = mysql(1156, b"08S01", "Got packets out of order");
    UNKNOWN_COMMAND = mysql(1047, b"08S01", "Unknown command");
    STATEMENT_TOO_LONG = mysql(1153, b"08S01", "statement to prepare exceeds … bytes");
    UNKNOWN_STATEMENT = mysql(1243, b"HY000",
        "Unknown prepared statement handler (…) given to …");
    TOO_MANY_STATEMENTS = mysql(1461, b"42000",
        "Can't create more than … prepared statements, or more than 64 MiB of them, in one \
         session: close some first");
    STATEMENT_SETTINGS_CHANGED = mysql(1615, b"HY000",
        "Prepared statement needs to be re-prepared: SQL mode, character set or schema changed \
         since it was prepared");
    PARAMETER_TYPES_MISSING = mysql(1615, b"HY000",
        "Prepared statement needs to be re-prepared: an execution of 16 MiB or more does not \
         include its parameter types; not executed");
    LONG_DATA_LOST = mysql(1205, b"HY000",
        "parameter data sent with COM_STMT_SEND_LONG_DATA was lost; statement not executed, \
         send the data again and retry");
    NO_OPEN_CURSOR = mysql(1421, b"HY000", "The statement (…) has no open cursor");
    REPLICA_TOO_LATE = mysql(1205, b"HY000",
        "timed out waiting for the server to apply this session's earlier writes");
    PINNED_TO_REPLICA = mysql(1290, b"HY000",
        "session is pinned to a read-only replica, and the statement may write or lock; not \
         executed. End the READ ONLY transaction or reset the connection first");

    // MySQL: KILL.
    QUERY_INTERRUPTED = mysql(1317, b"70100", "Query execution was interrupted");
    KILL_OF_UNKNOWN_ID = mysql(1094, b"HY000", "Unknown thread id: …");
    KILL_NOT_OWNER = mysql(1095, b"HY000", "You are not owner of thread …");
    KILL_OF_SERVER_ID = mysql(1235, b"42000",
        "KILL CONNECTION must be the only statement and name a connection id assigned by \
         Evenkeel; ids reported by the servers are not valid here");
    KILL_PREPARED = mysql(1295, b"HY000",
        "KILL CONNECTION cannot be prepared; send it as a text statement");
}

impl CatalogEntry {
    /// Returns the entry for a connection request that the pool has rejected.
    pub(crate) fn of_pool(refusal: PoolRefusal) -> &'static Self {
        match refusal {
            PoolRefusal::QueueFull => &POOL_QUEUE_FULL,
            PoolRefusal::LimitIsZero => &POOL_LIMIT_IS_ZERO,
            PoolRefusal::Outdated => &POOL_OUTDATED,
        }
    }

    /// Returns the entry for a primary that is missing or was lost, and its argument.
    pub(crate) fn of_primary(error: PrimaryError) -> (&'static Self, u64) {
        match error {
            PrimaryError::NoPrimary { waited_ms: 0 } => (&NO_PRIMARY_YET, 0),
            PrimaryError::NoPrimary { waited_ms } => (&NO_PRIMARY, waited_ms),
            PrimaryError::QueueFull => (&PRIMARY_QUEUE_FULL, 0),
            PrimaryError::TransactionLost => (&TRANSACTION_LOST, 0),
            PrimaryError::OutcomeUnknown => (&OUTCOME_UNKNOWN, 0),
        }
    }

    /// Returns the entry for a session that Evenkeel terminates, and its argument.
    pub(crate) fn of_termination(reason: &TerminationReason) -> (&'static Self, String) {
        let entry = match reason {
            TerminationReason::IdleTimeout => &IDLE_TIMEOUT,
            TerminationReason::TransactionTimeout => &TRANSACTION_TIMEOUT,
            TerminationReason::IdleInTransaction => &IDLE_IN_TRANSACTION_TIMEOUT,
            TerminationReason::Cut(CutReason::ServerDown | CutReason::PrimaryChanged) => {
                &TERMINATED_IN_TRANSACTION
            }
            TerminationReason::Cut(reason) => return (&TERMINATED, reason.to_string()),
            reason => return (&TERMINATED, reason.to_string()),
        };
        (entry, String::new())
    }
}

#[cfg(test)]
mod tests;

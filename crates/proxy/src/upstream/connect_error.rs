//! Classifies the reasons why server connections could not be opened.

use std::fmt;

use crate::server::Server;

/// Reason why a server connection could not be opened.
#[derive(Debug, Clone)]
pub(crate) struct ConnectError {
    pub(crate) kind: ConnectErrorKind,
    /// Error code from the server; `None`: the server has not sent one.
    pub(crate) code: Option<ErrorCode>,
    /// Error text, with the server's name.
    pub(crate) message: String,
    /// Error text as the server has sent it; `None`: the server has sent none.
    pub(crate) text: Option<String>,
    pub(crate) server_id: u64,
}

/// Class of a connect error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectErrorKind {
    /// The server could not be reached, or stopped responding.
    Unreachable,
    /// The server's certificate is not accepted.
    Untrusted,
    /// The TLS handshake has failed for another reason.
    Tls,
    /// The server has no free connections; a retry later may succeed.
    Full,
    /// The server is starting or stopping; a retry later may succeed.
    NotReady,
    /// The server rejects this user, or has no such database.
    Refused,
    /// The pool is no longer current.
    Outdated,
}

/// A server's code for an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorCode {
    /// MySQL's error number; PostgreSQL has none.
    pub(crate) number: u16,
    pub(crate) sqlstate: [u8; 5],
}

impl ErrorCode {
    /// Returns whether the server has no database of this name: ER_BAD_DB_ERROR of MySQL, SQLSTATE
    /// invalid_catalog_name of PostgreSQL.
    fn is_unknown_database(self) -> bool {
        self.number == 1049 || self.sqlstate == *b"3D000"
    }
}

impl ConnectError {
    pub(crate) fn outdated() -> Self {
        Self {
            kind: ConnectErrorKind::Outdated,
            code: None,
            message: "the pool has been replaced".to_owned(),
            text: None,
            server_id: 0,
        }
    }

    pub(crate) fn unreachable(server: &Server, why: impl fmt::Display) -> Self {
        Self {
            kind: ConnectErrorKind::Unreachable,
            code: None,
            message: format!("server {}: {why}", server.name),
            text: None,
            server_id: server.id,
        }
    }

    /// Returns an error of the TLS handshake.
    pub(crate) fn tls(server: &Server, kind: ConnectErrorKind, why: impl fmt::Display) -> Self {
        Self {
            kind,
            ..Self::unreachable(server, format!("TLS: {why}"))
        }
    }

    /// Returns an error that the server has reported.
    pub(crate) fn refused(
        server: &Server,
        kind: ConnectErrorKind,
        code: ErrorCode,
        text: &str,
    ) -> Self {
        Self {
            kind,
            code: Some(code),
            message: format!("server {}: {text}", server.name),
            text: Some(text.to_owned()),
            server_id: server.id,
        }
    }

    /// Returns an error for a server that accepts the login but cannot serve the clients of this
    /// pool.
    pub(crate) fn unsuitable(server: &Server, why: impl fmt::Display) -> Self {
        Self {
            kind: ConnectErrorKind::NotReady,
            ..Self::unreachable(server, why)
        }
    }

    /// Returns the text for the client. An unknown database is the client's mistake: it reads the
    /// server's own text, which its driver may compare.
    pub(crate) fn client_message(&self) -> &str {
        match (&self.text, self.code) {
            (Some(text), Some(code)) if code.is_unknown_database() => text,
            _ => &self.message,
        }
    }

    /// Returns whether the server has no free connections.
    pub(crate) fn is_full(&self) -> bool {
        self.kind == ConnectErrorKind::Full
    }

    /// Returns whether another server, or this one later, may accept the connection.
    pub(crate) fn is_passing(&self) -> bool {
        match self.kind {
            ConnectErrorKind::Unreachable
            | ConnectErrorKind::Untrusted
            | ConnectErrorKind::Tls
            | ConnectErrorKind::Full
            | ConnectErrorKind::NotReady => true,
            ConnectErrorKind::Refused | ConnectErrorKind::Outdated => false,
        }
    }
}

#[cfg(test)]
mod tests;

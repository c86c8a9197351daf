//! Parses and classifies ERR packets.

use crate::mysql::cursor::Cursor;

/// A five-character SQLSTATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqlState(pub [u8; 5]);

impl SqlState {
    /// General error.
    pub const GENERAL: SqlState = SqlState(*b"HY000");
    /// The connection was lost, or could not be established.
    pub const CONNECTION: SqlState = SqlState(*b"08S01");
    /// Wrong password, unknown user.
    pub const ACCESS: SqlState = SqlState(*b"28000");
}

/// Error report of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorReport<'a> {
    /// Error number.
    pub code: u16,
    /// SQLSTATE; `None` before the handshake ends.
    pub sqlstate: Option<SqlState>,
    /// Human-readable text.
    pub message: &'a [u8],
    /// True if the sequence number is that of the first packet of a conversation: the error answers
    /// no command.
    pub is_unasked: bool,
}

impl<'a> ErrorReport<'a> {
    /// MariaDB's progress report; the reply continues after it.
    pub const PROGRESS: u16 = 0xffff;

    /// Parses an ERR packet, or the beginning of a long one.
    #[must_use]
    pub fn read(payload: &'a [u8]) -> Option<Self> {
        let mut body = Cursor(payload);
        body.byte()?;
        let code = body.le_u16()?;
        let mut sqlstate = None;
        let mut message = body.rest();
        if let Some((b'#', rest)) = message.split_first()
            && let Some((state, rest)) = rest.split_first_chunk()
        {
            sqlstate = Some(SqlState(*state));
            message = rest;
        }
        Some(ErrorReport {
            code,
            sqlstate,
            message,
            is_unasked: false,
        })
    }

    /// Returns whether the server rejects writes, permanently or for now. A write may be retried on
    /// another server, because it was not executed.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self.code {
            // ER_OPTION_PREVENTS_STATEMENT, for any option.
            1290 => memchr::memmem::find(self.message, b"read-only").is_some(),
            // ER_READ_ONLY_MODE
            code => code == 1836,
        }
    }

    /// Returns whether this is a Galera node that has lost its cluster, or not joined it yet, and
    /// therefore rejects all commands.
    #[must_use]
    pub fn is_without_cluster(&self) -> bool {
        // ER_UNKNOWN_COM_ERROR, with another text than for an unknown command
        self.code == 1047 && self.message.starts_with(b"WSREP")
    }

    /// Returns whether the server had closed the connection before it read the last command: the
    /// packet is not a reply, and its sequence number shows that.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        // ER_CLIENT_INTERACTION_TIMEOUT, which MySQL sends after wait_timeout without a command. As
        // a reply it is MariaDB's ER_REFERENCED_TRG_DOES_NOT_EXIST, or an error of SIGNAL.
        self.code == 4031 && self.is_unasked
    }

    /// Returns whether the server's connection limit is reached, which does not mean that it is
    /// down.
    #[must_use]
    pub fn is_full(&self) -> bool {
        // ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED
        matches!(self.code, 1040 | 1203 | 1226)
    }

    /// Returns whether the server closes the connection after the error.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        // ER_SERVER_SHUTDOWN, ER_NORMAL_SHUTDOWN, ER_NET_*, ER_CONNECTION_KILLED,
        // ER_NET_PACKET_TOO_LARGE
        self.is_unread() || matches!(self.code, 1053 | 1077 | 1153 | 1155..=1161 | 1927)
    }
}

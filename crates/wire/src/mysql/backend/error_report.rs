//! An ERR packet.

use crate::mysql::cursor::Cursor;

/// Five characters that SQL defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SqlState(pub [u8; 5]);

impl SqlState {
    /// Nothing more exact is known.
    pub const GENERAL: SqlState = SqlState(*b"HY000");
    /// The connection was lost, or could not be made.
    pub const CONNECTION: SqlState = SqlState(*b"08S01");
    /// Wrong password, unknown user.
    pub const ACCESS: SqlState = SqlState(*b"28000");
}

/// An error, as the server reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorReport<'a> {
    /// The number that servers and clients know.
    pub code: u16,
    /// Missing before the handshake ends.
    pub sqlstate: Option<SqlState>,
    /// Words for people.
    pub message: &'a [u8],
    /// Its packet is numbered as the first one of a conversation: it answers nothing.
    pub is_unasked: bool,
}

impl<'a> ErrorReport<'a> {
    /// MariaDB's report of progress; the reply goes on.
    pub const PROGRESS: u16 = 0xffff;

    /// Reads an ERR packet, or the beginning of a long one.
    #[must_use]
    pub fn read(payload: &'a [u8]) -> Option<Self> {
        let mut body = Cursor(payload);
        body.byte()?;
        let code = body.u16()?;
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

    /// Whether it says that this server cannot write, or not now: a write may go elsewhere, for the
    /// server has done nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self.code {
            // ER_OPTION_PREVENTS_STATEMENT, of whatever option.
            1290 => memchr::memmem::find(self.message, b"read-only").is_some(),
            // ER_READ_ONLY_MODE
            code => code == 1836,
        }
    }

    /// Whether a Galera node that has lost its cluster, or has not joined it yet, refuses whatever
    /// it is asked.
    #[must_use]
    pub fn is_without_cluster(&self) -> bool {
        // ER_UNKNOWN_COM_ERROR, in other words than for an unknown command
        self.code == 1047 && self.message.starts_with(b"WSREP")
    }

    /// Whether the server had ended the connection before it read what was sent last: its packet is
    /// no answer, and numbered as none.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        // ER_CLIENT_INTERACTION_TIMEOUT, which MySQL says where nothing comes for wait_timeout. As
        // an answer it is MariaDB's ER_REFERENCED_TRG_DOES_NOT_EXIST, or what a SIGNAL says.
        self.code == 4031 && self.is_unasked
    }

    /// Whether the server has no place for more connections: that is not death.
    #[must_use]
    pub fn is_full(&self) -> bool {
        // ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED
        matches!(self.code, 1040 | 1203 | 1226)
    }

    /// Whether the server ends the connection with it.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        // ER_SERVER_SHUTDOWN, ER_NORMAL_SHUTDOWN, ER_NET_*, ER_CONNECTION_KILLED,
        // ER_NET_PACKET_TOO_LARGE
        self.is_unread() || matches!(self.code, 1053 | 1077 | 1153 | 1155..=1161 | 1927)
    }
}

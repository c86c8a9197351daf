//! Capabilities of the two sides, and the status flags of every reply.

/// Capabilities of one side: the 32 bits of the handshake, and above them MariaDB's 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// `CLIENT_LONG_PASSWORD`. MariaDB calls it `CLIENT_MYSQL`: it sends extended capabilities only
    /// where this is not set.
    pub const LONG_PASSWORD: Capabilities = Capabilities(1);
    /// Affected rows count the rows found, not those changed.
    pub const FOUND_ROWS: Capabilities = Capabilities(1 << 1);
    /// `CLIENT_LONG_FLAG`
    pub const LONG_FLAG: Capabilities = Capabilities(1 << 2);
    /// The handshake names a schema.
    pub const CONNECT_WITH_DB: Capabilities = Capabilities(1 << 3);
    /// Rejects `schema.table.column`.
    pub const NO_SCHEMA: Capabilities = Capabilities(1 << 4);
    /// Packets are compressed by zlib.
    pub const COMPRESS: Capabilities = Capabilities(1 << 5);
    /// `CLIENT_ODBC`, without effect.
    pub const ODBC: Capabilities = Capabilities(1 << 6);
    /// LOAD DATA LOCAL.
    pub const LOCAL_FILES: Capabilities = Capabilities(1 << 7);
    /// Blanks between a function's name and its parenthesis (sql_mode IGNORE_SPACE).
    pub const IGNORE_SPACE: Capabilities = Capabilities(1 << 8);
    /// The protocol of 4.1, the only one supported here.
    pub const PROTOCOL_41: Capabilities = Capabilities(1 << 9);
    /// The idle time is `interactive_timeout`.
    pub const INTERACTIVE: Capabilities = Capabilities(1 << 10);
    /// TLS.
    pub const SSL: Capabilities = Capabilities(1 << 11);
    /// `CLIENT_IGNORE_SIGPIPE`, relevant only to the client.
    pub const IGNORE_SIGPIPE: Capabilities = Capabilities(1 << 12);
    /// Status flags in replies.
    pub const TRANSACTIONS: Capabilities = Capabilities(1 << 13);
    /// `CLIENT_RESERVED`, a former flag of 4.1.
    pub const RESERVED: Capabilities = Capabilities(1 << 14);
    /// `CLIENT_SECURE_CONNECTION`: the proof of the password is preceded by its length.
    pub const SECURE_CONNECTION: Capabilities = Capabilities(1 << 15);
    /// Several statements in one COM_QUERY.
    pub const MULTI_STATEMENTS: Capabilities = Capabilities(1 << 16);
    /// Several results of one COM_QUERY.
    pub const MULTI_RESULTS: Capabilities = Capabilities(1 << 17);
    /// Several results of one COM_STMT_EXECUTE.
    pub const PS_MULTI_RESULTS: Capabilities = Capabilities(1 << 18);
    /// Names of authentication plugins.
    pub const PLUGIN_AUTH: Capabilities = Capabilities(1 << 19);
    /// Attributes in the handshake.
    pub const CONNECT_ATTRS: Capabilities = Capabilities(1 << 20);
    /// The proof of the password may be longer than 255 bytes.
    pub const PLUGIN_AUTH_LENENC: Capabilities = Capabilities(1 << 21);
    /// Logs in with an expired password.
    pub const EXPIRED_PASSWORDS: Capabilities = Capabilities(1 << 22);
    /// Session trackers in OK.
    pub const SESSION_TRACK: Capabilities = Capabilities(1 << 23);
    /// No EOF packets; results end in an OK whose header is 0xfe.
    pub const DEPRECATE_EOF: Capabilities = Capabilities(1 << 24);
    /// Results without metadata if the client requests that. Not supported here.
    pub const OPTIONAL_METADATA: Capabilities = Capabilities(1 << 25);
    /// Packets are compressed by zstd.
    pub const ZSTD: Capabilities = Capabilities(1 << 26);
    /// Attributes in COM_QUERY and COM_STMT_EXECUTE.
    pub const QUERY_ATTRIBUTES: Capabilities = Capabilities(1 << 27);
    /// Several factors of authentication. Not supported here.
    pub const MULTI_FACTOR: Capabilities = Capabilities(1 << 28);
    /// MariaDB: progress reports, which look like errors.
    pub const PROGRESS: Capabilities = Capabilities(1 << 32);
    /// MariaDB: COM_MULTI, which no server supports any more.
    pub const COM_MULTI: Capabilities = Capabilities(1 << 33);
    /// MariaDB: COM_STMT_BULK_EXECUTE.
    pub const BULK: Capabilities = Capabilities(1 << 34);
    /// MariaDB: types and formats in column definitions.
    pub const EXTENDED_METADATA: Capabilities = Capabilities(1 << 35);
    /// MariaDB: the columns of a known statement are not sent again.
    pub const CACHE_METADATA: Capabilities = Capabilities(1 << 36);
    /// MariaDB: COM_STMT_BULK_EXECUTE returns a result for each row.
    pub const BULK_UNIT_RESULTS: Capabilities = Capabilities(1 << 37);

    /// Capabilities that Evenkeel supports: all except compression and those marked as not
    /// supported.
    pub const SPOKEN: Capabilities = Capabilities(
        0x0fff_ffff & !(1 << 5) & !(1 << 25) & !(1 << 26)
            | Self::PROGRESS.0
            | Self::BULK.0
            | Self::EXTENDED_METADATA.0
            | Self::CACHE_METADATA.0
            | Self::BULK_UNIT_RESULTS.0,
    );

    /// Returns whether all of these are set.
    #[must_use]
    #[inline]
    pub const fn has(self, all: Capabilities) -> bool {
        self.0 & all.0 == all.0
    }

    /// Returns the capabilities of both.
    #[must_use]
    pub const fn both(self, other: Capabilities) -> Capabilities {
        Capabilities(self.0 & other.0)
    }

    /// Returns the set with `more` added.
    #[must_use]
    pub const fn with(self, more: Capabilities) -> Capabilities {
        Capabilities(self.0 | more.0)
    }

    /// Returns the set with `less` removed.
    #[must_use]
    pub const fn without(self, less: Capabilities) -> Capabilities {
        Capabilities(self.0 & !less.0)
    }

    /// Returns the 32 bits that every side knows.
    #[must_use]
    pub const fn common(self) -> u32 {
        self.0 as u32
    }

    /// Returns MariaDB's 32 bits.
    #[must_use]
    pub const fn extended(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Creates a set from the bits of the handshake; MariaDB's are valid only where the first bit
    /// is not set.
    #[must_use]
    pub const fn of(common: u32, extended: u32) -> Capabilities {
        let extended = if common & 1 == 0 { extended } else { 0 };
        Capabilities(common as u64 | (extended as u64) << 32)
    }
}

/// The status flags of OK and EOF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status(pub u16);

impl Status {
    /// `SERVER_STATUS_IN_TRANS`
    pub const IN_TRANSACTION: Status = Status(1);
    /// `SERVER_STATUS_AUTOCOMMIT`
    pub const AUTOCOMMIT: Status = Status(1 << 1);
    /// `SERVER_MORE_RESULTS_EXISTS`: another reply follows this one.
    pub const MORE_RESULTS: Status = Status(1 << 3);
    /// `SERVER_STATUS_CURSOR_EXISTS`: no rows follow; they must be fetched.
    pub const CURSOR_EXISTS: Status = Status(1 << 6);
    /// `SERVER_STATUS_LAST_ROW_SENT`: the cursor is exhausted and closed.
    pub const LAST_ROW_SENT: Status = Status(1 << 7);
    /// `SERVER_STATUS_DB_DROPPED`
    pub const SCHEMA_DROPPED: Status = Status(1 << 8);
    /// `SERVER_STATUS_NO_BACKSLASH_ESCAPES`: backslashes in strings are not escapes.
    pub const NO_BACKSLASH_ESCAPES: Status = Status(1 << 9);
    /// `SERVER_PS_OUT_PARAMS`: the result has the OUT parameters of a CALL.
    pub const OUT_PARAMETERS: Status = Status(1 << 12);
    /// `SERVER_STATUS_IN_TRANS_READONLY`
    pub const READ_ONLY: Status = Status(1 << 13);
    /// `SERVER_SESSION_STATE_CHANGED`: session trackers are present.
    pub const SESSION_STATE_CHANGED: Status = Status(1 << 14);
    /// MariaDB's `SERVER_STATUS_ANSI_QUOTES`: `"` quotes names.
    pub const ANSI_QUOTES: Status = Status(1 << 15);

    /// Returns whether any of these is set.
    #[must_use]
    #[inline]
    pub const fn has(self, any: Status) -> bool {
        self.0 & any.0 != 0
    }

    /// Returns the flags with `more` added.
    #[must_use]
    pub const fn with(self, more: Status) -> Status {
        Status(self.0 | more.0)
    }

    /// Returns the flags with `less` removed.
    #[must_use]
    pub const fn without(self, less: Status) -> Status {
        Status(self.0 & !less.0)
    }
}

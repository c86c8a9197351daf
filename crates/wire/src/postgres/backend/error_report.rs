//! Parses the fields of errors and notices (§54.8 "Error and Notice Message Fields"), and
//! CommandComplete.

use std::fmt;

use crate::postgres::cursor::Cursor;

/// A five-character SQLSTATE (appendix A of the manual).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub [u8; 5]);

/// The fields of an error or a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorReport<'a>(&'a [u8]);

impl<'a> ErrorReport<'a> {
    /// Returns a report if the body is a list of fields that ends with a zero byte, and with no
    /// byte after it.
    #[must_use]
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let mut rest = Cursor(body);
        loop {
            match rest.byte()? {
                0 => return rest.end(ErrorReport(body)),
                _ => rest.text()?,
            };
        }
    }

    /// Returns a report of the first bytes of a long body. A truncated field is left out.
    #[must_use]
    pub(crate) fn beginning(body: &'a [u8]) -> Self {
        ErrorReport(body)
    }

    /// Returns the letter and the text of each field.
    pub fn fields(self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = Cursor(self.0);
        std::iter::from_fn(move || {
            let code = rest.byte().filter(|code| *code != 0)?;
            Some((code, rest.text()?))
        })
    }

    /// Returns the text of one field.
    #[must_use]
    pub fn field(self, code: u8) -> Option<&'a [u8]> {
        let mut fields = self.fields();
        fields
            .find(|(found, _)| *found == code)
            .map(|(_, text)| text)
    }

    /// Returns the SQLSTATE, or `XX000` (internal error) where a server sends none.
    #[must_use]
    pub fn sqlstate(self) -> SqlState {
        let code = self.field(b'C').and_then(|text| text.try_into().ok());
        SqlState(code.unwrap_or(*b"XX000"))
    }

    /// Returns whether the server ends the connection after the error: severity FATAL or PANIC.
    /// Uses the field that is never translated (`V`, since 9.6) if it is present.
    #[must_use]
    pub fn is_fatal(self) -> bool {
        let severity = self.field(b'V').or_else(|| self.field(b'S'));
        matches!(severity, Some(b"FATAL" | b"PANIC"))
    }

    /// Returns the human-readable message.
    #[must_use]
    pub fn text(self) -> &'a [u8] {
        self.field(b'M').unwrap_or_default()
    }
}

impl SqlState {
    /// Write on a replica (or a row lock, a `nextval()` call…).
    pub const READ_ONLY: SqlState = SqlState(*b"25006");
    /// The transaction cannot continue; also sent by a replica when replay cancels a query.
    pub const SERIALIZATION_FAILURE: SqlState = SqlState(*b"40001");
    /// Shutdown of the server, or termination of the connection by an administrator.
    pub const ADMIN_SHUTDOWN: SqlState = SqlState(*b"57P01");
    /// Crash of another server process, because of which this one was terminated.
    pub const CRASH_SHUTDOWN: SqlState = SqlState(*b"57P02");
    /// The server is starting, stopping or recovering.
    pub const CANNOT_CONNECT_NOW: SqlState = SqlState(*b"57P03");
    /// A query was cancelled.
    pub const QUERY_CANCELED: SqlState = SqlState(*b"57014");
    /// Wrong password.
    pub const INVALID_PASSWORD: SqlState = SqlState(*b"28P01");
    /// Login refused for another reason.
    pub const INVALID_AUTHORIZATION: SqlState = SqlState(*b"28000");
    /// Protocol violation by the peer.
    pub const PROTOCOL_VIOLATION: SqlState = SqlState(*b"08P01");
    /// No free connection slot.
    pub const TOO_MANY_CONNECTIONS: SqlState = SqlState(*b"53300");
    /// Unsupported feature; also "cached plan must not change result type".
    pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState(*b"0A000");
    /// Unknown prepared statement.
    pub const UNDEFINED_STATEMENT: SqlState = SqlState(*b"26000");
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text of CommandComplete, such as `INSERT 0 5` or `CREATE TABLE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandTag<'a>(pub &'a [u8]);

impl<'a> CommandTag<'a> {
    /// Returns the command's words, without numbers.
    #[must_use]
    pub fn command(self) -> &'a [u8] {
        let digits = |byte: &u8| byte.is_ascii_digit() || *byte == b' ';
        let numbers = self.0.iter().rev().take_while(|byte| digits(byte)).count();
        let end = self.0.len().saturating_sub(numbers);
        self.0.get(..end).unwrap_or_default()
    }

    /// Returns how many rows were affected or returned: the last number, if there is one.
    #[must_use]
    pub fn rows(self) -> Option<u64> {
        let last = self.0.rsplit(|byte| *byte == b' ').next()?;
        str::from_utf8(last).ok()?.parse().ok()
    }
}

//! Writes the errors that Evenkeel itself sends to MySQL clients.

use std::fmt::Display;

use evenkeel_wire::mysql::backend::{ErrorReport, SqlState};
use evenkeel_wire::mysql::build;

use crate::error_catalog::CatalogEntry;
use crate::session::error_reply::{self, ReplyCode};
use crate::upstream::connect_error::ErrorCode;

pub(crate) type ErrorReply = error_reply::ErrorReply<ErrorCode>;

impl ReplyCode for ErrorCode {
    type Notes = ();

    fn reply(entry: &CatalogEntry, arguments: &[&dyn Display]) -> ErrorReply {
        let (number, sqlstate) = entry.mysql_code();
        let message = entry.message_and_hint(arguments);
        ErrorReply::from_server(ErrorCode { number, sqlstate }, message)
    }

    fn of_server(code: ErrorCode) -> Self {
        code
    }
}

impl ErrorReply {
    /// Creates the error that a server has reported, with a prefix.
    pub(crate) fn of_report(report: &ErrorReport<'_>, prefix: &str) -> Self {
        let code = ErrorCode {
            number: report.code,
            sqlstate: report.sqlstate.unwrap_or(SqlState::GENERAL).0,
        };
        let text = String::from_utf8_lossy(report.message);
        Self::from_server(code, format!("{prefix}{text}"))
    }

    /// Appends a detail to the message.
    pub(crate) fn detail(mut self, detail: impl Display) -> Self {
        self.message = format!("{} ({detail})", self.message);
        self
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

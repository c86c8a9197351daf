//! Writes the errors that Evenkeel itself sends to clients of a PostgreSQL service.

use std::fmt::Display;

use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::build;

use crate::error_catalog::CatalogEntry;
use crate::session::error_reply::{self, ReplyCode};
use crate::upstream::connect_error::ErrorCode;

pub(crate) type ErrorReply = error_reply::ErrorReply<SqlState>;

/// Fields of an error beside its message.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    detail: Option<String>,
    hint: Option<&'static str>,
}

impl ReplyCode for SqlState {
    type Notes = Notes;

    fn reply(entry: &CatalogEntry, arguments: &[&dyn Display]) -> ErrorReply {
        ErrorReply {
            code: SqlState(entry.sqlstate()),
            message: entry.message(arguments),
            notes: Notes {
                detail: None,
                hint: entry.hint_text(),
            },
        }
    }

    fn of_server(code: ErrorCode) -> Self {
        SqlState(code.sqlstate)
    }
}

impl ErrorReply {
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.notes.detail = Some(detail.into());
        self
    }

    /// Writes the error as one after which the session continues.
    pub(crate) fn write_error(&self, out: &mut Vec<u8>) {
        self.write_as(out, "ERROR");
    }

    /// Writes the error as one that ends the session.
    pub(crate) fn write_fatal(&self, out: &mut Vec<u8>) {
        self.write_as(out, "FATAL");
    }

    fn write_as(&self, out: &mut Vec<u8>, severity: &str) {
        let text = build::ErrorText {
            severity,
            sqlstate: self.code,
            message: &self.message,
            detail: self.notes.detail.as_deref().unwrap_or_default(),
            hint: self.notes.hint.unwrap_or_default(),
        };
        build::error(out, &text);
    }
}

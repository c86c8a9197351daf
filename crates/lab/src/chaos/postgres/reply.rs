//! Represents a server's reply between two ReadyForQuery messages.

use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::backend::{ErrorReport, Message, values};

use crate::chaos::client::{Row, Rows};
use crate::chaos::failure::{ErrorMeaning, Failure, SqlError};

/// One complete reply.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) rows: Rows,
    /// Command tag of CommandComplete, for each statement.
    pub(super) tags: Vec<String>,
    pub(super) error: Option<SqlError>,
    /// Channels of received notifications.
    pub(super) notified: Vec<String>,
    pub(super) status: Option<TransactionStatus>,
    pub(super) key: Option<(u32, Vec<u8>)>,
}

impl Reply {
    /// Returns the reply, or a failure if it contains an error.
    pub(super) fn good(self) -> Result<Reply, Failure> {
        match self.error {
            Some(error) => Err(Failure::Refused(error)),
            None => Ok(self),
        }
    }

    /// Returns the value in this row and column.
    pub(super) fn value(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.value(row, column)
    }

    /// Processes a message; returns true at the last one.
    pub(super) fn take(&mut self, message: &Message<'_>) -> Result<bool, Failure> {
        match message {
            Message::ReadyForQuery(status) => {
                self.status = Some(*status);
                return Ok(true);
            }
            Message::DataRow(body) => self.rows.0.push(row(body)),
            Message::CommandComplete(tag) => self.tags.push(text(tag.0)),
            Message::Error(report) if report.is_fatal() => {
                return Err(Failure::Ended(error(*report)));
            }
            // The first error is the cause; a pipeline skips what follows.
            Message::Error(report) => self.error = self.error.take().or(Some(error(*report))),
            Message::Notification { channel, .. } => self.notified.push(text(channel)),
            Message::BackendKeyData { process, secret } => {
                self.key = Some((*process, secret.to_vec()));
            }
            _ => {}
        }
        Ok(false)
    }
}

pub(super) fn error(report: ErrorReport<'_>) -> SqlError {
    let (code, text) = (text(&report.sqlstate().0), text(report.text()));
    let meaning = match code.as_str() {
        // The code has other causes too: statement timeouts, conflicts on a standby.
        "57014" if text.contains("user request") => ErrorMeaning::Cancelled,
        // 40003 means completion unknown; class 08 are lost connections, 57P operator
        // interventions.
        "40003" => ErrorMeaning::Doubtful,
        code if code.starts_with("08") || code.starts_with("57P") => ErrorMeaning::Doubtful,
        _ => ErrorMeaning::NotDone,
    };
    SqlError {
        code,
        text,
        meaning,
    }
}

fn row(body: &[u8]) -> Row {
    values(body).map(|value| value.map(text)).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

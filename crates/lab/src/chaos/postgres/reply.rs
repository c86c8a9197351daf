//! Represents a server's reply between two ReadyForQuery messages.

use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::backend::{ErrorReport, Message, values};

use crate::chaos::client::{Row, Rows};
use crate::chaos::failure::{CommandOutcome, Failure, SqlError};

/// One complete reply.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) rows: Rows,
    /// Command tag of CommandComplete, for each statement.
    pub(super) tags: Vec<String>,
    pub(super) error: Option<SqlError>,
    /// Channels of received notifications.
    pub(super) notification_channels: Vec<String>,
    pub(super) status: Option<TransactionStatus>,
    pub(super) cancel_key: Option<(u32, Vec<u8>)>,
}

impl Reply {
    /// Returns the reply, or a failure if it contains an error.
    pub(super) fn into_result(self) -> Result<Reply, Failure> {
        match self.error {
            Some(error) => Err(Failure::Refused(error)),
            None => Ok(self),
        }
    }

    /// Returns the value in this row and column.
    pub(super) fn value(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.value(row, column)
    }

    /// Adds a message of the server; returns true if it is the last one.
    pub(super) fn add_message(&mut self, message: &Message<'_>) -> Result<bool, Failure> {
        match message {
            Message::ReadyForQuery(status) => {
                self.status = Some(*status);
                return Ok(true);
            }
            Message::DataRow(body) => self.rows.0.push(row(body)),
            Message::CommandComplete(tag) => self.tags.push(decode(tag.0)),
            Message::Error(report) if report.is_fatal() => {
                return Err(Failure::Ended(error(*report)));
            }
            // The first error is the cause; the server skips the rest of the pipeline.
            Message::Error(report) => self.error = self.error.take().or(Some(error(*report))),
            Message::Notification { channel, .. } => {
                self.notification_channels.push(decode(channel))
            }
            Message::BackendKeyData { process, secret } => {
                self.cancel_key = Some((*process, secret.to_vec()));
            }
            _ => {}
        }
        Ok(false)
    }
}

pub(super) fn error(report: ErrorReport<'_>) -> SqlError {
    let (code, text) = (decode(&report.sqlstate().0), decode(report.text()));
    let outcome = match code.as_str() {
        // The code has other causes too: statement timeouts, conflicts on a standby.
        "57014" if text.contains("user request") => CommandOutcome::Cancelled,
        // 40003 means completion unknown; class 08 are lost connections, 57P operator
        // interventions.
        "40003" => CommandOutcome::Unknown,
        code if code.starts_with("08") || code.starts_with("57P") => CommandOutcome::Unknown,
        _ => CommandOutcome::NotExecuted,
    };
    SqlError {
        code,
        text,
        outcome,
    }
}

fn row(body: &[u8]) -> Row {
    values(body).map(|value| value.map(decode)).collect()
}

fn decode(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

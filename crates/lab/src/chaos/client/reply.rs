//! What a server says between two ReadyForQuery messages.

use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::backend::{Message, Report, values};

use super::{Failure, SqlError};

/// The values of a row as text; NULL is `None`.
pub(in crate::chaos) type Row = Vec<Option<String>>;

/// All of one reply.
#[derive(Debug, Default)]
pub(in crate::chaos) struct Reply {
    pub(in crate::chaos) rows: Vec<Row>,
    /// What CommandComplete said, for each statement.
    pub(in crate::chaos) tags: Vec<String>,
    pub(in crate::chaos) error: Option<SqlError>,
    /// Channels of notifications that came.
    pub(in crate::chaos) notified: Vec<String>,
    pub(in crate::chaos) status: Option<TransactionStatus>,
    pub(super) key: Option<(u32, Vec<u8>)>,
}

impl Reply {
    /// The reply as it should be; an error of the server is a failure.
    pub(in crate::chaos) fn good(self) -> Result<Reply, Failure> {
        match self.error {
            Some(error) => Err(Failure::Refused(error)),
            None => Ok(self),
        }
    }

    /// The value in this row and column.
    pub(in crate::chaos) fn value(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.get(row)?.get(column)?.as_deref()
    }

    /// Takes a message in; true at the last one.
    pub(super) fn take(&mut self, message: &Message<'_>) -> Result<bool, Failure> {
        match message {
            Message::ReadyForQuery(status) => {
                self.status = Some(*status);
                return Ok(true);
            }
            Message::DataRow(body) => self.rows.push(row(body)),
            Message::CommandComplete(tag) => self.tags.push(text(tag.0)),
            Message::Error(report) if report.is_fatal() => {
                return Err(Failure::Ended(error(*report)));
            }
            // The first says why; what follows it in a pipeline is skipped.
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

pub(super) fn error(report: Report<'_>) -> SqlError {
    SqlError {
        state: text(&report.sqlstate().0),
        text: text(report.text()),
    }
}

fn row(body: &[u8]) -> Row {
    values(body).map(|value| value.map(text)).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

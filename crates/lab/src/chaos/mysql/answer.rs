//! Represents a server's answer to a command.

use evenkeel_wire::mysql::backend::ErrorReport;

use crate::chaos::client::Rows;
use crate::chaos::failure::{CommandOutcome, Failure, SqlError};

/// One result.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) rows: Rows,
    pub(super) affected: u64,
    /// First number that was assigned to a row.
    pub(super) insert_id: u64,
    /// True if another result follows.
    pub(super) has_more: bool,
}

impl Answer {
    pub(super) fn value(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.value(row, column)
    }
}

pub(super) fn text(value: Option<&[u8]>) -> Option<String> {
    value.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Interprets an error packet; with `ends`, the session is over for any error.
pub(super) fn failure(payload: &[u8], ends: bool) -> Failure {
    let Some(report) = ErrorReport::read(payload) else {
        return Failure::Broken(format!("{payload:?} as an error"));
    };
    let error = SqlError {
        code: report.code.to_string(),
        text: String::from_utf8_lossy(report.message).into_owned(),
        outcome: outcome(report.code),
    };
    match ends || report.is_fatal() {
        true => Failure::Ended(error),
        false => Failure::Refused(error),
    }
}

fn outcome(code: u16) -> CommandOutcome {
    match code {
        // ER_QUERY_INTERRUPTED
        1317 => CommandOutcome::Cancelled,
        // ER_UNKNOWN_COM_ERROR (a Galera node without its cluster), ER_SERVER_SHUTDOWN,
        // ER_NORMAL_SHUTDOWN, ER_ERROR_DURING_COMMIT, ER_CONNECTION_KILLED, CR_SERVER_LOST,
        // ER_RUN_HOOK_ERROR
        1047 | 1053 | 1077 | 1180 | 1927 | 2013 | 3100 => CommandOutcome::Unknown,
        _ => CommandOutcome::NotExecuted,
    }
}

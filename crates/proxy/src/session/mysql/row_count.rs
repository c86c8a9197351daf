//! Tracks ROW_COUNT() after the client's last command, which the client may read on another server
//! connection.
//!
//! The count is the number of rows in an OK, and -1 after a result or an error (manual:
//! "Information Functions"). Seen with MariaDB 10.11 and MySQL 9.7: COM_STMT_PREPARE,
//! COM_STMT_CLOSE and COM_STATISTICS leave it as it was, COM_PING and COM_STMT_RESET set it to 0.

use evenkeel_wire::mysql::frontend::Request;
use evenkeel_wire::mysql::server_scanner::Event;

use super::Session;
use super::active_request::CommandKind;
use super::query_text::effective;

/// ROW_COUNT() after a statement that returns rows, or fails.
pub(super) const NO_COUNT: i64 = -1;

impl Session<'_> {
    /// Records the count after a command, unless its reply shows it.
    pub(super) fn count_of_command(&mut self, command: &Request<'_>) {
        self.row_count = match command {
            Request::Prepare { .. }
            | Request::Close(_)
            | Request::LongData { .. }
            | Request::Fetch { .. } => self.row_count,
            Request::Ping | Request::Reset(_) => Some(0),
            _ => None,
        };
    }

    /// Records the count after a reply of the server to the client's command.
    pub(super) fn count_of_reply(&mut self, event: &Event<'_>) {
        let is_text = match self.active.what {
            CommandKind::Query | CommandKind::Execute(_) => {
                let meaning = effective(&self.active.what, &self.active.statement);
                meaning.is_some_and(|meaning| meaning.counts_rows_in_reply())
            }
            CommandKind::InitDb => true,
            CommandKind::Prepare(_) => matches!(event, Event::Error(_)),
            _ => return,
        };
        let count = match event {
            Event::Ok(ok) => i64::try_from(ok.affected_rows).ok(),
            Event::ResultEnd(_) | Event::Error(_) => Some(NO_COUNT),
            _ => return,
        };
        self.row_count = count.filter(|_| is_text);
    }
}

//! Finds out whether a text that is too long to be parsed leaves state: it is read while it is
//! forwarded.

use std::sync::Arc;

use evenkeel_sql::Dialect;
use evenkeel_sql::mysql::LongTextReader;
use evenkeel_sql::session_state::mysql::CatalogLookup;
use evenkeel_wire::mysql::frontend::{self, Request};

use super::Session;
use super::active_request::CommandStatement;

/// Text with the same effects as one write of literals.
const WRITE: &[u8] = b"REPLACE t VALUES (1)";

impl Session<'_> {
    /// Begins to read a command whose text has more bytes than are parsed. `None`: it is no such
    /// command, or has several packets.
    pub(super) fn read_long_text(&self, begin: &[u8]) -> Option<Box<LongTextReader>> {
        if self.rest.is_over() || !self.rest.is_one_packet() || self.may_run_triggers() {
            return None;
        }
        let request = frontend::request(begin, self.handshake.agreed).ok()?;
        let (Request::Query { text, .. }, Some(Dialect::Mysql(modes))) =
            (request, self.state.dialect())
        else {
            return None;
        };
        let mut reader = LongTextReader::new(modes);
        reader.read(text);
        Some(Box::new(reader))
    }

    /// Returns whether any write may run code that leaves state in the session.
    fn may_run_triggers(&self) -> bool {
        let routines = self.core.service.server_info.routines();
        routines.is_some_and(|routines| routines.has_pins())
    }

    /// Replaces the analysis of a long text that has turned out to be one write of literals.
    pub(super) fn long_text_ended(&mut self) {
        let Some(reader) = self.active.long_text.take() else {
            return;
        };
        if self.rest.is_over() && reader.only_writes() {
            let meaning = self.state.read(WRITE, None);
            self.active.statement = CommandStatement::Text(Arc::new(meaning));
        }
    }
}

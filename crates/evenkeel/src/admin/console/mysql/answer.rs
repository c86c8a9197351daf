//! Builds the packets of a response.

use evenkeel_wire::mysql::backend::OkPacket;
use evenkeel_wire::mysql::build::{self, ErrorText};
use evenkeel_wire::mysql::flags::{Capabilities, Status};

use crate::admin::console::error::ConsoleError;
use crate::admin::console::show::Table;

/// Bytes of the response to one command.
pub(super) struct Answer {
    out: Vec<u8>,
    /// Sequence number of the next packet.
    sequence: u8,
    capabilities: Capabilities,
    /// True if another result follows the current one.
    pub(super) has_more_results: bool,
}

impl Answer {
    /// Creates an empty response. `sequence` is the number of its first packet.
    pub(super) fn new(sequence: u8, capabilities: Capabilities) -> Self {
        Self {
            out: Vec::new(),
            sequence,
            capabilities,
            has_more_results: false,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.out
    }

    fn status(&self) -> Status {
        match self.has_more_results {
            true => Status::AUTOCOMMIT.with(Status::MORE_RESULTS),
            false => Status::AUTOCOMMIT,
        }
    }

    /// Adds an OK packet with a message that clients show.
    pub(super) fn ok(&mut self, info: &str) {
        let ok = OkPacket {
            status: self.status(),
            info: info.as_bytes(),
            ..OkPacket::default()
        };
        self.sequence = build::ok(&mut self.out, self.sequence, &ok, self.capabilities);
    }

    pub(super) fn error(&mut self, error: &ConsoleError) {
        let (code, sqlstate) = error.kind.mysql();
        let text = ErrorText {
            code,
            sqlstate,
            message: error.message.as_bytes(),
        };
        self.sequence = build::error(&mut self.out, self.sequence, &text);
    }

    /// Adds a packet of plain text.
    pub(super) fn text(&mut self, text: &str) {
        let put = |out: &mut Vec<u8>| out.extend_from_slice(text.as_bytes());
        self.sequence = build::packet(&mut self.out, self.sequence, put);
    }

    pub(super) fn table(&mut self, table: &Table) {
        let (out, capabilities) = (&mut self.out, self.capabilities);
        let count = table.columns.len() as u64;
        self.sequence = build::column_count(out, self.sequence, count, capabilities);
        for name in &table.columns {
            self.sequence = build::column(out, self.sequence, name.as_bytes(), capabilities);
        }
        if !capabilities.has(Capabilities::DEPRECATE_EOF) {
            self.end();
        }
        for row in &table.rows {
            let values = row.iter().map(|value| value.as_ref().map(String::as_bytes));
            let values: Vec<_> = values.collect();
            self.sequence = build::text_row(&mut self.out, self.sequence, &values);
        }
        self.end();
    }

    /// Adds the end of rows or of another list.
    pub(super) fn end(&mut self) {
        let status = self.status();
        self.sequence = build::result_end(&mut self.out, self.sequence, status, self.capabilities);
    }
}

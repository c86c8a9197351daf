//! A statement that names trackers finds those of its client on the connection; behind it ours are
//! put on again, before anything else is run there.

use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::{Parsed, backend, frame};

use super::query_text::effective;
use super::server::ServerConnection;
use super::{AfterDiscard, Session, Stage};

impl Session<'_> {
    /// Puts the client's trackers on the connection if the command is to find them there.
    pub(super) fn show_trackers(&mut self, out: &mut Vec<u8>) {
        let meaning = effective(&self.unit.what, &self.unit.sense);
        let is_named = meaning.is_some_and(|meaning| meaning.names_trackers);
        let Some(server) = self.server.as_mut().filter(|_| is_named) else {
            return;
        };
        let text = self.journal.show_trackers(is_in_transaction(server));
        server.show_trackers(&text, out);
        if let Some(at) = &mut self.borrower.at {
            // If it commits what was written before, nobody is told where in the log that is.
            at.written.is_partial |= at.written.is_some;
        }
    }

    /// Whether the connection has the client's, and no command may be sent.
    pub(super) fn owes_trackers(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.shows_trackers)
    }

    /// Whether the answers that come are about trackers.
    pub(super) fn takes_back(&self) -> bool {
        matches!(
            self.stage,
            Stage::DiscardReply(AfterDiscard::TookBack { .. })
        )
    }

    /// Puts ours on again; all that was sent is with the kernel. False: they are on.
    pub(super) fn take_trackers_back(&mut self) -> bool {
        let Some(server) = self.server.as_mut().filter(|one| one.shows_trackers) else {
            return false;
        };
        let version = server.version.number();
        let back = self.journal.take_back(version, is_in_transaction(server));
        let mut out = self.worker.spare();
        server.ask_back(&back, &mut out);
        // If it fails, the next receive says so.
        let _ = server.lent.stream.send_own(self.worker, out);
        self.stage = Stage::DiscardReply(AfterDiscard::TookBack { is_whole: true });
        true
    }

    /// The server has said all.
    pub(super) fn took_back(&mut self, is_whole: bool) {
        let unit = self.drop_unit();
        self.is_doubtful = false;
        if let Some(server) = &mut self.server {
            let interner = self.worker.interner();
            match is_whole {
                true => {
                    let row = backend::values(last_row(&unit.word));
                    self.journal.took_back(row, &mut server.settings, interner);
                }
                false => self.journal.lost_trackers(!server.shows_trackers),
            }
            let status = server.conversation.status();
            self.journal
                .ready(Some(status), &mut server.settings, interner);
            self.counts_writes(status);
        }
        self.pins_changed();
        if !self.asks_between(false) {
            self.shows();
        }
    }
}

fn is_in_transaction(server: &ServerConnection) -> bool {
    server.conversation.status().has(Status::IN_TRANSACTION)
}

/// The last packet of what was kept of a result.
pub(super) fn last_row(word: &[u8]) -> &[u8] {
    let (mut rest, mut last): (_, &[u8]) = (word, b"");
    while let Parsed::Frame(packet, length) = frame::frame(rest, u32::MAX) {
        last = packet.payload;
        rest = rest.get(length..).unwrap_or_default();
    }
    last
}

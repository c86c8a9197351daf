//! Enables the client's session trackers for statements that name them, and restores Evenkeel's
//! trackers before the connection is used further.

use evenkeel_wire::mysql::flags::Status;
use evenkeel_wire::mysql::{Parsed, backend, frame};

use super::query_text::effective;
use super::server::ServerConnection;
use super::{AfterDiscard, Session, Stage};
use evenkeel_sql::session_state::mysql::TextForm;

impl Session<'_> {
    /// Enables the client's trackers on the connection if the command names them.
    pub(super) fn show_trackers(&mut self, out: &mut Vec<u8>) {
        let meaning = effective(&self.active.what, &self.active.statement);
        let is_named = meaning.is_some_and(|meaning| meaning.form == TextForm::Trackers);
        let Some(server) = self.core.server.as_mut().filter(|_| is_named) else {
            return;
        };
        let text = self.state.show_trackers(is_in_transaction(server));
        server.show_trackers(&text, out);
        if let Some(at) = &mut self.core.acquirer.at {
            // The log position of earlier writes is not reported if the command commits them.
            at.written.is_partial |= at.written.is_some;
        }
    }

    /// Returns whether the client's trackers are enabled, so that no command may be sent.
    pub(super) fn owes_trackers(&self) -> bool {
        let server = self.core.server.as_ref();
        server.is_some_and(|server| server.shows_trackers)
    }

    /// Returns whether the expected replies are about the trackers.
    pub(super) fn takes_back(&self) -> bool {
        matches!(
            self.stage,
            Stage::DiscardReply(AfterDiscard::TookBack { .. })
        )
    }

    /// Restores Evenkeel's trackers; requires that the kernel has accepted all data sent to the
    /// server. Returns false if they are enabled already.
    pub(super) fn take_trackers_back(&mut self) -> bool {
        let Some(server) = self.core.server.as_mut().filter(|one| one.shows_trackers) else {
            return false;
        };
        let version = server.version.number();
        let back = self
            .state
            .restore_trackers(version, is_in_transaction(server));
        let mut out = self.core.worker.take_spare();
        server.restore_trackers(&back, &mut out);
        // A failure is reported by the next receive.
        let _ = server.core.stream.send_own(self.core.worker, out);
        self.stage = Stage::DiscardReply(AfterDiscard::TookBack { is_whole: true });
        true
    }

    /// Completes the restoration after the server's last reply.
    pub(super) fn took_back(&mut self, is_whole: bool) {
        let active = self.drop_unit();
        self.is_doubtful = false;
        if let Some(server) = &mut self.core.server {
            let interner = self.core.worker.interner();
            match is_whole {
                true => {
                    let row = backend::values(last_row(&active.word));
                    self.state
                        .trackers_restored(row, &mut server.settings, interner);
                }
                false => self.state.trackers_lost(!server.shows_trackers),
            }
            let status = server.conversation.status();
            self.state
                .ready(Some(status), &mut server.settings, interner);
            self.count_writes(status);
        }
        self.pins_changed();
        if !self.query_between(false) {
            self.show_activity();
        }
    }
}

fn is_in_transaction(server: &ServerConnection) -> bool {
    server.conversation.status().has(Status::IN_TRANSACTION)
}

/// Returns the last packet of the part of a result that was kept.
pub(super) fn last_row(word: &[u8]) -> &[u8] {
    let (mut rest, mut last): (_, &[u8]) = (word, b"");
    while let Parsed::Frame(packet, length) = frame::frame(rest, u32::MAX) {
        last = packet.payload;
        rest = rest.get(length..).unwrap_or_default();
    }
    last
}

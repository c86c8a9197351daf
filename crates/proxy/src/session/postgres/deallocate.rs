//! Handles DEALLOCATE of statements that were prepared with the protocol, whose names on servers
//! are Evenkeel's.

use evenkeel_sql::session_state::analysis::{EffectKind, TextAnalysis};
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::conversation::{LocalReply, Origin, Request, RequestToken, Sending};
use evenkeel_wire::postgres::frontend::Target;
use evenkeel_wire::stream_editor::StreamEditor;

use super::Session;
use super::prepared::take_given;

/// Query in place of the client's DEALLOCATE.
const DEALLOCATE_TAKEN: &[u8] = b"DEALLOCATE \"evenkeel has it\"";

impl Session<'_> {
    /// Returns the name in a DEALLOCATE if the client has prepared it with the protocol.
    pub(super) fn deallocated<'m>(&self, analysis: &'m TextAnalysis) -> Option<&'m [u8]> {
        let [effect] = analysis.effects.as_slice() else {
            return None;
        };
        let EffectKind::Deallocate(name) = &effect.kind else {
            return None;
        };
        let is_ours = analysis.statements.len() == 1 && self.statements.taken(name).is_some();
        is_ours.then_some(&**name)
    }

    /// Replaces a Query with a DEALLOCATE by one of another statement, which the server executes,
    /// refuses or skips as it would the client's. It also ends the implicit transaction of messages
    /// before it.
    pub(super) fn query_deallocate(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        name: &[u8],
        length: usize,
    ) -> Sending {
        let token = RequestToken(self.effects.next());
        self.close_given(flight, name, token);
        self.prepare_taken(flight);
        let token = self.drop_unnamed(token);
        let sending = self.replace(flight, (Request::Query, token), length, |out| {
            build::query(out, DEALLOCATE_TAKEN);
        });
        if sending == Sending::Forward {
            self.statements.remove((token.0, self.segment), name);
        }
        sending
    }

    /// Answers the Execute of a DEALLOCATE.
    pub(super) fn execute_deallocate(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        name: &[u8],
        length: usize,
    ) -> Sending {
        let token = RequestToken(self.effects.next());
        self.close_given(flight, name, token);
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let answer = LocalReply::Command("DEALLOCATE");
        if server.conversation.add_local_reply(answer, token) == Sending::Forward {
            self.statements.remove((token.0, self.segment), name);
        }
        flight.drop(length);
        Sending::Drop
    }

    /// Closes the statement that has the client's name on the server, if any.
    fn close_given(&mut self, flight: &mut StreamEditor<'_, '_>, name: &[u8], token: RequestToken) {
        let Some(server) = &mut self.server else {
            return;
        };
        if take_given(&mut server.given, name)
            && server
                .conversation
                .sent(Request::Close, Origin::Ours, token)
                == Sending::Forward
        {
            build::close(flight.writer(), Target::Statement(name));
        }
    }
}

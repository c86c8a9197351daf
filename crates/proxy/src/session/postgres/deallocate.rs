//! Handles DEALLOCATE of statements that were prepared with the protocol, whose names on servers
//! are Evenkeel's.

use evenkeel_sql::session_state::analysis::{EffectKind, TextAnalysis};
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::conversation::{Origin, Request, RequestToken, Sending};
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::frontend::Target;
use evenkeel_wire::postgres::names::Name;
use evenkeel_wire::stream_editor::StreamEditor;

use super::Session;
use super::portals::portal_of;
use super::prepared::TAKEN;

/// Name of the statement to which portals are bound in place of the client's DEALLOCATE.
const DEALLOCATES: &[u8] = b"evenkeel deallocates";

/// Text in place of the client's DEALLOCATE.
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
        self.prepare_own(flight, TAKEN, b"");
        let token = self.drop_unnamed(token);
        let sending = self.replace(flight, (Request::Query, token), length, |out| {
            build::query(out, DEALLOCATE_TAKEN);
        });
        if sending == Sending::Forward {
            self.statements.remove((token.0, self.segment), name);
        }
        sending
    }

    /// Binds a portal to such a DEALLOCATE, if that is what its statement is.
    pub(super) fn bind_deallocate(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        meaning: &TextAnalysis,
        (header, name): (Header, Name),
        message: &[u8],
    ) -> Option<Sending> {
        self.deallocated(meaning)?;
        self.prepare_own(flight, DEALLOCATES, DEALLOCATE_TAKEN);
        self.portals
            .becomes_deallocation(portal_of(header, message));
        let named = (header, name, message.len());
        let token = RequestToken(0);
        Some(self.send_renamed(flight, Request::Bind, token, named, DEALLOCATES))
    }

    /// Executes such a portal.
    pub(super) fn execute_deallocate(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        meaning: &TextAnalysis,
        length: usize,
    ) -> Sending {
        let token = RequestToken(self.effects.next());
        let Some(name) = self.deallocated(meaning) else {
            // The name is gone since the Bind, or the portal has removed it.
            self.close_own(flight, TAKEN);
            return self.send(flight, Request::Execute, token, length);
        };
        self.close_given(flight, name, token);
        self.prepare_own(flight, TAKEN, b"");
        let sending = self.send(flight, Request::Execute, token, length);
        if sending == Sending::Forward {
            self.statements.remove((token.0, self.segment), name);
        }
        sending
    }

    /// Prepares a statement under a name of Evenkeel's, which is closed first, so that it is not
    /// taken. In a failed transaction the server parses an empty text only.
    pub(super) fn prepare_own(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        name: &[u8],
        text: &[u8],
    ) {
        self.close_own(flight, name);
        let (request, token) = (Request::Parse, RequestToken(0));
        if let Some(server) = &mut self.core.server
            && server.conversation.sent(request, Origin::Ours, token) == Sending::Forward
        {
            build::parse(flight.writer(), name, text, &[]);
        }
    }

    fn close_own(&mut self, flight: &mut StreamEditor<'_, '_>, name: &[u8]) {
        let (request, token) = (Request::Close, RequestToken(0));
        if let Some(server) = &mut self.core.server
            && server.conversation.sent(request, Origin::Ours, token) == Sending::Forward
        {
            build::close(flight.writer(), Target::Statement(name));
        }
    }

    /// Closes the statement that has the client's name on the server, if any.
    fn close_given(&mut self, flight: &mut StreamEditor<'_, '_>, name: &[u8], token: RequestToken) {
        let Some(server) = &mut self.core.server else {
            return;
        };
        if server.given.close(name, token.0)
            && server
                .conversation
                .sent(Request::Close, Origin::Ours, token)
                == Sending::Forward
        {
            build::close(flight.writer(), Target::Statement(name));
        }
    }
}

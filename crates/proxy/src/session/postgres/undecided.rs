//! Decides which messages wait because an earlier batch in flight defines a statement that they
//! refer to: an error in that batch would undo what follows it.

use evenkeel_sql::session_state::analysis::{EffectKind, TextAnalysis};
use evenkeel_wire::postgres::Parsed;
use evenkeel_wire::postgres::conversation::Request;
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::names::{names, parse_parts};

use super::Session;
use super::active_request::text_of_query;

impl Session<'_> {
    /// Returns whether it is undecided which statement a message refers to.
    pub(super) fn is_undecided(&self, header: Header, request: Request, message: &[u8]) -> bool {
        let Some(server) = &self.core.server else {
            return false;
        };
        let is_settled = self.statements.is_settled() && server.prepared.is_settled();
        if is_settled && self.unnamed.is_settled() || !server.conversation.is_ready_pending() {
            return false;
        }
        match request {
            Request::Query => {
                let is_whole = message.len() == header.frame_length();
                is_whole && self.uses_open_name(&self.read_query(text_of_query(message)))
            }
            Request::Parse | Request::Bind | Request::DescribeStatement | Request::Close => {
                self.names_undecided(header, request, message)
                    || request == Request::Parse && self.parses_open_name(message)
            }
            _ => false,
        }
    }

    fn names_undecided(&self, header: Header, request: Request, message: &[u8]) -> bool {
        let (Some(server), Parsed::Frame(found, _)) = (&self.core.server, names(header, message))
        else {
            return false;
        };
        let Some(name) = found.statement else {
            return false;
        };
        let is_bind = request == Request::Bind;
        if !name.is_named() {
            let needs_it = is_bind || request == Request::DescribeStatement;
            let meaning = self.unnamed.meaning().filter(|_| is_bind);
            return needs_it && self.unnamed.is_open(self.segment)
                || meaning.is_some_and(|meaning| self.uses_open_name(meaning));
        }
        let name = name.of(message);
        let is_open = |id| server.prepared.is_open(id, self.segment);
        let known = self.statements.get(name);
        self.statements.is_open(name, self.segment)
            || known.is_some_and(|known| {
                is_open(known.id) || is_bind && self.uses_open_name(&known.meaning)
            })
            || request == Request::Parse && self.id_of(message).is_some_and(is_open)
    }

    fn parses_open_name(&self, message: &[u8]) -> bool {
        let parts = parse_parts(message).filter(|_| !self.statements.is_settled());
        let text = parts.and_then(|parts| message.get(parts.text));
        text.is_some_and(|text| self.uses_open_name(&self.read_query(text)))
    }

    /// Returns whether a text refers by SQL to a statement that an earlier batch in flight defines
    /// or closes.
    fn uses_open_name(&self, meaning: &TextAnalysis) -> bool {
        meaning.effects.iter().any(|effect| match &effect.kind {
            EffectKind::Prepare(name)
            | EffectKind::Execute(name)
            | EffectKind::Deallocate(name) => self.statements.is_open(name, self.segment),
            _ => false,
        })
    }
}

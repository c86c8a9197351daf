//! Forwards messages about the unnamed statement, which belongs to one client and lasts until its
//! next Parse, or a Query.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_policy::pins::Pin;
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::conversation::{Origin, Request, RequestToken, Sending};
use evenkeel_wire::postgres::frame::Header;
use evenkeel_wire::postgres::frontend::Target;
use evenkeel_wire::postgres::names::Name;
use evenkeel_wire::stream_editor::StreamEditor;

use super::statements::new_id;
use super::tokens::UNNAMED;
use super::unnamed_statement::{ParsedText, UnnamedStatement};
use super::{LONG_TEXT, Session};

impl Session<'_> {
    /// Forwards a Parse too long to be analyzed under its own name, and pins the session.
    pub(super) fn parse_unread(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        message: &[u8],
    ) -> Sending {
        self.forget_sequences(flight);
        self.active.writes();
        self.pin_for(Pin::Unknown, LONG_TEXT);
        if message.get(5) != Some(&0) {
            return self.send(flight, Request::Parse, RequestToken(0), message.len());
        }
        let id = new_id();
        let token = RequestToken(UNNAMED | id);
        let sending = self.send(flight, Request::Parse, token, message.len());
        if sending == Sending::Forward {
            self.unnamed_sent(UnnamedStatement { id, parsed: None });
        }
        sending
    }

    /// Records that a Parse of the client was sent. After an error it is not, and the previous
    /// statement remains.
    fn unnamed_sent(&mut self, statement: UnnamedStatement) {
        if let Some(server) = &mut self.core.server {
            server.unnamed = statement.id;
        }
        let token = RequestToken(UNNAMED | statement.id);
        self.unnamed
            .changes_to(Some(Rc::new(statement)), token, self.segment);
    }

    pub(super) fn parse_unnamed(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        (text, replaced): (&[u8], Option<Vec<u8>>),
        types: &[u8],
        length: usize,
    ) -> Sending {
        let is_replaced = replaced.is_some();
        let text = replaced.as_deref().unwrap_or(text);
        if let Some(words) = self.apply_rules_to_parse(|session| session.rules(Some(text))) {
            self.unnamed.drop_now();
            return self.refuse_parse(flight, &words, length);
        }
        let meaning = self.read_query(text);
        self.pending.parses(meaning.digest);
        if let Some(words) = self.refuses_meaning(flight, &meaning) {
            self.unnamed.drop_now();
            return self.refuse_parse(flight, words, length);
        }
        self.name_for_batch(flight, &meaning);
        self.active.access.add(meaning.writes);
        let id = new_id();
        let request = (Request::Parse, RequestToken(UNNAMED | id));
        let sending = match is_replaced {
            true => self.replace(flight, request, length, |out| {
                build::parse(out, b"", text, types)
            }),
            false => self.send(flight, request.0, request.1, length),
        };
        if sending == Sending::Forward {
            let parsed = ParsedText {
                text: text.into(),
                types: types.into(),
                meaning,
            };
            let parsed = Some(parsed);
            self.unnamed_sent(UnnamedStatement { id, parsed });
        }
        sending
    }

    /// Handles Bind, Describe and Close of the unnamed statement.
    pub(super) fn use_unnamed(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        (header, name): (Header, Name),
        request: Request,
        message: &[u8],
    ) -> Sending {
        if self.guard_unnamed(flight, request) {
            return self.refuse_asking(flight, header, name, message.len());
        }
        if request == Request::Close {
            return self.close_unnamed(flight, message.len());
        }
        self.replay_unnamed(flight);
        let meaning = self.unnamed.meaning().map(Arc::clone);
        if let Some(meaning) = &meaning {
            self.name_for_batch(flight, meaning);
        }
        if request == Request::Bind {
            self.bind_unnamed(header, message);
            if let Some(meaning) = meaning
                && let Some(sending) =
                    self.bind_deallocate(flight, &meaning, (header, name), message)
            {
                return sending;
            }
        }
        self.send(flight, request, RequestToken(0), message.len())
    }

    /// Drops the unnamed statement by a Query within a batch, which an error may skip. Returns the
    /// Query's token.
    pub(super) fn drop_unnamed(&mut self, token: RequestToken) -> RequestToken {
        if self.unnamed.last().is_none() {
            return token;
        }
        let token = match token.0 {
            0 => RequestToken(self.effects.next()),
            _ => token,
        };
        self.unnamed.changes_to(None, token, self.segment);
        token
    }

    /// Closes the unnamed statement, even if the one on the server belongs to another client.
    pub(super) fn close_unnamed(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        length: usize,
    ) -> Sending {
        let id = self.unnamed.last().map(|statement| statement.id);
        let token = RequestToken(UNNAMED | new_id());
        let sending = self.send(flight, Request::Close, token, length);
        if sending == Sending::Forward
            && let Some(server) = &mut self.core.server
        {
            if Some(server.unnamed) != id {
                server.unnamed = 0;
            }
            self.unnamed.changes_to(None, token, self.segment);
        }
        sending
    }

    /// Prepares the unnamed statement for a Bind if it was parsed on another connection.
    pub(super) fn replay_unnamed(&mut self, flight: &mut StreamEditor<'_, '_>) {
        let Some(server) = &mut self.core.server else {
            return;
        };
        let last = self.unnamed.last().map(Rc::clone);
        if last.as_ref().is_some_and(|last| last.id == server.unnamed) {
            return;
        }
        let Some((last, parsed)) = last
            .as_ref()
            .and_then(|last| Some((last, last.parsed.as_ref()?)))
        else {
            // The server's statement may be another client's, or cannot be prepared again.
            let close = server
                .conversation
                .sent(Request::Close, Origin::Ours, RequestToken(0));
            if close == Sending::Forward {
                server.unnamed = 0;
                build::close(flight.writer(), Target::Statement(b""));
            }
            return;
        };
        let token = RequestToken(UNNAMED | last.id);
        let sending = server
            .conversation
            .sent(Request::Parse, Origin::Ours, token);
        if sending == Sending::Forward {
            server.unnamed = last.id;
            build::parse(flight.writer(), b"", &parsed.text, &parsed.types);
            self.unnamed
                .changes_to(Some(Rc::clone(last)), token, self.segment);
        }
    }
}

//! Answers the Parse of a text that a server has parsed before, so that a client that only prepares
//! needs no connection.
//!
//! A driver's function that prepares, such as PQprepare of libpq, sends a Parse and a Sync and
//! waits for both replies. A program with several clients in one thread would otherwise stop if its
//! other clients hold all connections in transactions: it waits here and cannot end them.

use evenkeel_wire::postgres::client_scanner::{ClientScanner, Step};
use evenkeel_wire::postgres::conversation::Request;
use evenkeel_wire::postgres::names::parse_parts;
use evenkeel_wire::postgres::{TransactionStatus, build};

use super::Session;
use super::active_request::BatchTail;

impl Session<'_> {
    /// Answers a Parse and the Sync that follows it, at the beginning of a client's input and
    /// without a server. Returns their length; `None`: a server is needed.
    pub(super) fn prepare_locally(&mut self, bytes: &[u8]) -> Option<usize> {
        let is_discarded = self.active.tail == BatchTail::Discarded;
        if bytes.first() != Some(&b'P') || is_discarded || !self.scanner.is_at_border() {
            return None;
        }
        let (parse, length, scanner) = parse_and_sync(self.scanner, bytes)?;
        let parts = parse_parts(parse).filter(|parts| parts.statement.is_named())?;
        let text = parse.get(parts.text)?;
        let name = parts.statement.of(parse);
        if self.prepared_text_of_processes(text).is_some() || self.statements.taken(name).is_some()
        {
            return None;
        }
        let within = self.within(text, parse.get(parts.types)?);
        if within.exclusive_id != 0 {
            return None;
        }
        let statement = self.interned(text, &within);
        if !self.account.known.history.parsed.contains(statement.id)
            || !statement.meaning.effects.is_empty()
            || self.rules_of(&statement).is_some()
            || !self.statements.has_room(name, &statement)
        {
            return None;
        }
        self.statements.set((0, self.segment), name, statement);
        self.statements.settled();
        self.segment += 1;
        self.scanner = scanner;
        let out = self.core.answers();
        build::empty(out, b'1');
        build::ready_for_query(out, TransactionStatus::Idle);
        Some(length)
    }
}

/// Returns the Parse with which the bytes begin, if a Sync follows it, the length of both, and the
/// scanner after them.
fn parse_and_sync(
    mut scanner: ClientScanner,
    bytes: &[u8],
) -> Option<(&[u8], usize, ClientScanner)> {
    let parse = whole(&mut scanner, bytes, Request::Parse)?;
    let sync = whole(&mut scanner, bytes.get(parse..)?, Request::Sync)?;
    Some((bytes.get(..parse)?, parse + sync, scanner))
}

/// Returns the length of the message with which the bytes begin, if it is such a request.
fn whole(scanner: &mut ClientScanner, bytes: &[u8], wanted: Request) -> Option<usize> {
    match scanner.next(bytes) {
        Step::Message {
            passed: 0,
            request,
            length,
            is_whole: true,
            ..
        } if request == wanted => Some(length),
        _ => None,
    }
}

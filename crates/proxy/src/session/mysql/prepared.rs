//! Executes prepared statements: translates the client's statement ids, and prepares statements
//! that the server connection lacks.

use std::sync::Arc;

use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame::{self, HEADER_LENGTH};
use evenkeel_wire::mysql::frontend::{self, Request, parameters};
use evenkeel_wire::mysql::rewrite::set_statement;
use evenkeel_wire::mysql::{Parsed, StatementId};
use smallvec::SmallVec;

use super::Session;
use super::active_request::CommandKind;
use super::error_reply::ErrorReply;
use super::execution_history;
use super::from_client::has_room;
use super::server::{Ask, ServerConnection};
use super::statements::{PrepareContext, Statement};
use crate::error_catalog;
use crate::session::statement_interner::OF_CLIENT_MAX;

/// Flag of COM_STMT_BULK_EXECUTE: the parameter types are included (MariaDB's
/// `STMT_BULK_FLAG_CLIENT_SEND_TYPES`).
const BULK_TYPES: u16 = 128;

impl Session<'_> {
    /// Returns the server's id of a statement of the client, and counts as a use of it.
    pub(super) fn server_statement(&mut self, number: u32) -> Option<StatementId> {
        let id = self.statements.get(number)?.statement.id;
        let server = self.core.server.as_mut()?;
        server.prepared.get(id).map(|there| there.number)
    }

    /// Returns whether the server has a statement of the client.
    pub(super) fn is_on_server(&self, number: u32) -> bool {
        let named = self.statements.get(number);
        let id = named.map(|named| named.statement.id);
        let server = self.core.server.as_ref();
        id.zip(server)
            .is_some_and(|(id, server)| server.prepared.number(id).is_some())
    }

    /// Returns the statement that the server must prepare before the command.
    pub(super) fn lacks_statement(&self) -> Option<Arc<Statement>> {
        let number = self.active.what.number()?;
        if self.is_on_server(number) && !self.has_other_types(number) {
            return None;
        }
        Some(Arc::clone(&self.statements.get(number)?.statement))
    }

    /// Returns whether the server has inferred parameter types from executions with other types
    /// than this client's.
    fn has_other_types(&self, number: u32) -> bool {
        let (Some(server), CommandKind::Execute(_)) = (&self.core.server, &self.active.what) else {
            return false;
        };
        let Some(named) = self.statements.get(number).filter(|_| keeps_types(server)) else {
            return false;
        };
        let executed = server.prepared.executed(named.statement.id);
        let by_others = executed.filter(|all| !all.is_only_by(self.handshake.id));
        let Some(executed) = by_others.filter(|_| !server.holds_for_statements()) else {
            return false;
        };
        let types = match self.types_of_execute(&self.active.command, number) {
            Some(Given::Types(types)) => types,
            Some(Given::Missing { .. }) => &named.types,
            _ => return false,
        };
        !executed.was_so(types, self.names_parameters()) && self.has_same_meaning(&named.statement)
    }

    /// Returns whether a statement that the server lacks can be prepared there as it was
    /// originally.
    pub(super) fn can_be_prepared(&self) -> bool {
        let statement = self.lacks_statement();
        statement.is_none_or(|statement| self.has_same_meaning(&statement))
    }

    fn has_same_meaning(&self, statement: &Statement) -> bool {
        let (then, now) = (&statement.within, self.within());
        let can_be_read = then.settings(&now).is_some();
        can_be_read && (then.schema.is_none() || now.schema.is_some())
    }

    /// Makes the server prepare a statement in its original context, so that names and strings in
    /// it keep their meaning.
    pub(super) fn prepare_in_context(
        server: &mut ServerConnection,
        statement: &Statement,
        now: &PrepareContext,
        out: &mut Vec<u8>,
    ) {
        let then = &statement.within;
        let schemas = then.schema.as_deref().zip(now.schema.as_deref());
        let schemas = schemas.filter(|(then, now)| then != now);
        let readings = then.settings(now);
        let readings = readings.filter(|(then, _)| !then.is_empty());
        if let Some((then, _)) = schemas {
            server.select_schema(Ask::Other, then, out);
        }
        if let Some((then, _)) = &readings {
            server.query(Ask::Other, then, out);
        }
        server.prepare(&statement.text, out);
        if let Some((_, now)) = &readings {
            server.query(Ask::Other, now, out);
        }
        if let Some((_, now)) = schemas {
            server.select_schema(Ask::Other, now, out);
        }
    }

    /// Records that the server has prepared a statement.
    pub(super) fn record_prepared(
        &self,
        server: &mut ServerConnection,
        id: u64,
        number: StatementId,
    ) {
        // A statement that may hold a cursor or long data must not be evicted.
        let mut stay: SmallVec<[u64; 4]> = SmallVec::new();
        if server.holds_for_statements() {
            if server.prepared.number(id).is_some() {
                return server.closing.push(number);
            }
            stay.push(id);
            stay.extend(self.statements.holding());
        }
        let max = self.core.statements_max();
        server.closing.extend(server.prepared.add(id, number));
        while let Some(number) = server.prepared.evict(max, &stay) {
            server.closing.push(number);
        }
    }

    /// Replaces the statement id in the reply to COM_STMT_PREPARE with the client's.
    pub(super) fn rename(&self, packet: &mut [u8]) {
        let is_whole = set_statement(packet, self.statements.last());
        debug_assert!(is_whole, "it was read");
    }

    /// Adapts a command on a prepared statement to the server, beginning at offset `begin`.
    /// Replaces the statement id, and inserts the parameter types if the client omitted them and
    /// the server last received others.
    pub(super) fn edit(&mut self, command: &mut Vec<u8>, begin: usize) -> Result<(), ErrorReply> {
        let Some(number) = self.active.what.number() else {
            return Ok(());
        };
        let malformed = || ErrorReply::protocol("malformed COM_STMT_EXECUTE");
        let there = self.server_statement(number).ok_or_else(malformed)?;
        let packet = command.get_mut(begin..).unwrap_or_default();
        if !set_statement(packet, there) {
            return Err(malformed());
        }
        let given = match self.active.what {
            CommandKind::Execute(_) => self.types_of_execute(&command[begin..], number),
            CommandKind::Bulk(_) => self.types_of_bulk(&command[begin..], number),
            _ => return Ok(()),
        };
        match given {
            // The server rejects a malformed command with its own error.
            None | Some(Given::Nothing) => return Ok(()),
            Some(Given::Types(types)) => self.bind_types(number, types)?,
            Some(Given::Missing { at, mark }) => {
                let is_whole = self.add_types(command, begin, (number, at, mark));
                is_whole.then_some(()).ok_or_else(malformed)?;
            }
        }
        self.record_execution(number);
        Ok(())
    }

    /// Records the execution if the server may infer parameter types from it.
    fn record_execution(&mut self, number: u32) {
        let is_named = self.names_parameters();
        let (client, named) = (self.handshake.id, self.statements.get(number));
        let server = self
            .core
            .server
            .as_mut()
            .filter(|server| keeps_types(server));
        if let (Some(named), Some(server)) = (named, server)
            && let Some(there) = server.prepared.get(named.statement.id)
        {
            there.executed.note(client, &named.types, is_named);
        }
    }

    fn names_parameters(&self) -> bool {
        self.handshake.agreed.has(Capabilities::QUERY_ATTRIBUTES)
    }

    /// Returns whether omitted parameter types that the server lacks can be inserted. A full packet
    /// has no capacity for them.
    pub(super) fn has_room_for_types(&self) -> bool {
        let (command, what) = (&self.active.command, &self.active.what);
        let named = what.number().and_then(|number| self.statements.get(number));
        let (Some(number), Some(named)) = (what.number(), named) else {
            return true;
        };
        let is_full = |header| !has_room(header, named.types.len());
        let is_full = matches!(frame::header(command), Parsed::Frame(header, _) if is_full(header));
        if !is_full || named.types.is_empty() {
            return true;
        }
        let server = self.core.server.as_ref();
        let there = server.and_then(|server| server.prepared.types(named.statement.id));
        let given = match what {
            CommandKind::Execute(_) => self.types_of_execute(command, number),
            CommandKind::Bulk(_) => self.types_of_bulk(command, number),
            _ => None,
        };
        !matches!(given, Some(Given::Missing { .. })) || there == Some(&*named.types)
    }

    fn types_of_execute<'a>(&self, command: &'a [u8], number: u32) -> Option<Given<'a>> {
        let named = self.statements.get(number)?;
        let payload = command.get(HEADER_LENGTH..)?;
        let request = frontend::request(payload, self.handshake.agreed).ok()?;
        let Request::Execute(execute) = request else {
            return None;
        };
        if named.parameters == 0 {
            return Some(Given::Nothing);
        }
        let found = parameters(&execute, named.parameters, self.handshake.agreed)?;
        let count = usize::from(named.parameters);
        if found.types.is_some() {
            // The types of query attributes apply to this execution only.
            return found.types_of_first(count).map(Given::Types);
        }
        let mark = match found.count > count {
            true => Mark::Nowhere,
            false => Mark::Byte,
        };
        let at = command.len() - found.values.len();
        Some(Given::Missing { at, mark })
    }

    /// Finds the types after the statement id and flags; the rows follow.
    fn types_of_bulk<'a>(&self, command: &'a [u8], number: u32) -> Option<Given<'a>> {
        let named = self.statements.get(number)?;
        let begin = HEADER_LENGTH + 1 + 4;
        let flags = command.get(begin..begin + 2)?;
        let flags = u16::from_le_bytes([flags[0], flags[1]]);
        let at = begin + 2;
        if flags & BULK_TYPES == 0 {
            let mark = Mark::Flags;
            return Some(Given::Missing { at, mark });
        }
        let length = 2 * usize::from(named.parameters);
        Some(Given::Types(command.get(at..at + length)?))
    }

    /// Updates the statement of a command that is sent to no server.
    pub(super) fn is_not_executed(&mut self, packet: &[u8]) {
        use frontend::Request as Command;
        let payload = packet.get(HEADER_LENGTH..).unwrap_or_default();
        let number = |statement| self.statements.number(statement);
        let what = match frontend::request(payload, self.handshake.agreed) {
            Ok(Command::Execute(execute)) => CommandKind::Execute(number(execute.statement)),
            Ok(Command::BulkExecute { statement, .. }) => CommandKind::Bulk(number(statement)),
            Ok(Command::Reset(statement)) => CommandKind::ResetStatement(number(statement)),
            _ => return,
        };
        self.record_types(&what, packet);
        if let Some(number) = what.number() {
            self.discard_long_data(number);
        }
    }

    /// Records the types of an execution that is not run. The client may omit them from now on, as
    /// MariaDB's libraries do.
    pub(super) fn record_types(&mut self, what: &CommandKind, packet: &[u8]) {
        let given = match *what {
            CommandKind::Execute(number) => self.types_of_execute(packet, number),
            CommandKind::Bulk(number) => self.types_of_bulk(packet, number),
            _ => None,
        };
        if let (Some(number), Some(Given::Types(types))) = (what.number(), given) {
            // If the budget has no capacity, the client must send them with the next execution.
            let _ = self.statements.bind(number, types);
        }
    }

    /// Records the types of an execution, which apply to later executions too.
    fn bind_types(&mut self, number: u32, types: &[u8]) -> Result<(), ErrorReply> {
        if !self.statements.bind(number, types) {
            return Err(ErrorReply::with(
                &error_catalog::TOO_MANY_STATEMENTS,
                &[&OF_CLIENT_MAX],
            ));
        }
        let (Some(named), Some(server)) = (self.statements.get(number), &mut self.core.server)
        else {
            return Ok(());
        };
        if let Some(there) = server.prepared.get(named.statement.id)
            && *there.types != *types
        {
            there.types = types.into();
        }
        Ok(())
    }

    /// Inserts the types of an earlier execution. Returns false if that is impossible.
    fn add_types(
        &mut self,
        command: &mut Vec<u8>,
        begin: usize,
        (number, at, mark): (u32, usize, Mark),
    ) -> bool {
        let (Some(named), Some(server)) = (self.statements.get(number), &mut self.core.server)
        else {
            return false;
        };
        let Some(there) = server.prepared.get(named.statement.id) else {
            return false;
        };
        // If none are known, the server reports its own error.
        if there.types == named.types || named.types.is_empty() {
            return true;
        }
        let packet = &mut command[begin..];
        let Parsed::Frame(header, _) = frame::header(packet) else {
            return false;
        };
        if !has_room(header, named.types.len()) || matches!(mark, Mark::Nowhere) {
            return false;
        }
        there.types.clone_from(&named.types);
        match mark {
            Mark::Byte => packet[at - 1] = 1,
            Mark::Flags => packet[at - 2] |= BULK_TYPES as u8,
            Mark::Nowhere => {}
        }
        let longer = frame::Header {
            payload_length: header.payload_length + named.types.len() as u32,
            sequence: header.sequence,
        };
        packet[..HEADER_LENGTH].copy_from_slice(&longer.bytes());
        let at = begin + at;
        command.splice(at..at, named.types.iter().copied());
        true
    }
}

fn keeps_types(server: &ServerConnection) -> bool {
    execution_history::is_kept_by(server.version.mariadb, server.version.number())
}

/// Parameter types in an execution.
enum Given<'a> {
    /// The statement has no parameters.
    Nothing,
    Types(&'a [u8]),
    /// The types are omitted; `at` is the offset at which they belong.
    Missing {
        at: usize,
        mark: Mark,
    },
}

/// Place in the packet that marks the types as included.
#[derive(Clone, Copy)]
enum Mark {
    /// The byte before the types.
    Byte,
    /// A flag in the two bytes before the types.
    Flags,
    /// No mark is possible: the types of query attributes are missing too, and they are unknown.
    Nowhere,
}

//! A model server: it executes commands of a few letters as MySQL and MariaDB would.

use std::collections::{BTreeMap, VecDeque};

use crate::mysql::StatementId;
use crate::mysql::backend::{Eof, OkPacket, PrepareOk, SqlState};
use crate::mysql::build::{self, ErrorText};
use crate::mysql::flags::{Capabilities, Status};
use crate::mysql::frontend::{self, Request};

#[derive(Debug, Default)]
struct Prepared {
    text: Vec<u8>,
    /// Rows left in an open cursor.
    cursor: Option<u32>,
    long_data: bool,
}

/// The model.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) agreed: Capabilities,
    pub(super) input: VecDeque<Vec<u8>>,
    pub(super) output: Vec<u8>,
    pub(super) in_transaction: bool,
    statements: BTreeMap<u32, Prepared>,
    next: u32,
    last: Option<u32>,
    /// Sequence number of the packet that answers a file.
    file: Option<u8>,
}

impl Server {
    pub(super) fn new(agreed: Capabilities) -> Self {
        Server {
            agreed,
            input: VecDeque::new(),
            output: Vec::new(),
            in_transaction: false,
            statements: BTreeMap::new(),
            next: 1,
            last: None,
            file: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let holds = |one: &Prepared| one.cursor.is_some() || one.long_data;
        let held = self.statements.values().any(holds);
        self.input.is_empty() && !self.in_transaction && self.file.is_none() && !held
    }

    /// Handles one packet's payload. Returns whether there was one.
    pub(super) fn step(&mut self) -> bool {
        let Some(payload) = self.input.pop_front() else {
            return false;
        };
        if let Some(sequence) = self.file {
            if payload.is_empty() {
                self.file = None;
                self.ok(sequence, Status::default());
            } else {
                self.file = Some(sequence.wrapping_add(1));
            }
            return true;
        }
        let request = frontend::request(&payload, Capabilities::default()).unwrap();
        self.handle(request);
        true
    }

    fn handle(&mut self, request: Request<'_>) {
        match request {
            Request::Query { text, .. } => self.query(text),
            Request::Prepare { text } => self.prepare(text),
            Request::Execute(execute) => {
                let id = self.number(execute.statement);
                let cursor = execute.wants_cursor();
                match self.statements.get_mut(&id) {
                    None => self.error(1, 1243),
                    Some(one) => {
                        one.long_data = false;
                        let rows = one.text.starts_with(b"rows");
                        one.cursor = (cursor && rows).then_some(3);
                        self.executed(rows, cursor);
                    }
                }
            }
            Request::Fetch { statement, .. } => self.fetch(self.number(statement)),
            Request::LongData { statement, .. } => {
                let id = self.number(statement);
                if let Some(one) = self.statements.get_mut(&id) {
                    one.long_data = true;
                }
            }
            Request::Close(statement) => {
                let id = self.number(statement);
                self.statements.remove(&id);
                if self.last == Some(id) {
                    self.last = None;
                }
            }
            Request::Reset(statement) => {
                let id = self.number(statement);
                match self.statements.get_mut(&id) {
                    None => self.error(1, 1243),
                    Some(one) => {
                        (one.cursor, one.long_data) = (None, false);
                        self.ok(1, Status::default());
                    }
                }
            }
            Request::ResetConnection => {
                self.statements.clear();
                (self.in_transaction, self.last) = (false, None);
                self.ok(1, Status::default());
            }
            _ => {
                self.ok(1, Status::default());
            }
        }
    }

    fn number(&self, statement: StatementId) -> u32 {
        match statement {
            StatementId::LAST => self.last.unwrap_or(0),
            StatementId(id) => id,
        }
    }

    /// Executes the statements of a text, one word each.
    fn query(&mut self, text: &[u8]) {
        let mut sequence = 1;
        let words: Vec<_> = text.split(|byte| *byte == b';').collect();
        for (index, word) in words.iter().enumerate() {
            let more = match index + 1 < words.len() {
                true => Status::MORE_RESULTS,
                false => Status::default(),
            };
            match *word {
                b"begin" => self.in_transaction = true,
                b"commit" => self.in_transaction = false,
                b"rows" => {
                    sequence = self.rows(sequence, more);
                    continue;
                }
                b"bad" => {
                    self.error(sequence, 1064);
                    return;
                }
                b"file" => {
                    sequence = build::local_infile(&mut self.output, sequence, b"f");
                    self.file = Some(sequence.wrapping_add(1));
                    return;
                }
                _ => {}
            }
            sequence = self.ok(sequence, more);
        }
    }

    fn prepare(&mut self, text: &[u8]) {
        if text == b"bad" {
            self.last = None;
            self.error(1, 1064);
            return;
        }
        let id = self.next;
        self.next += 1;
        self.last = Some(id);
        let prepared = Prepared {
            text: text.to_vec(),
            ..Prepared::default()
        };
        self.statements.insert(id, prepared);
        let rows = text.starts_with(b"rows");
        let ok = PrepareOk {
            statement: StatementId(id),
            columns: u16::from(rows),
            parameters: u16::from(text.ends_with(b"?")),
            warnings: 0,
        };
        let mut sequence = build::prepare_ok(&mut self.output, 1, &ok);
        for _ in 0..ok.parameters.saturating_add(ok.columns) {
            let agreed = self.agreed;
            sequence = build::column(&mut self.output, sequence, b"c", agreed);
            sequence = self.metadata_eof(sequence, Status::default());
        }
    }

    fn executed(&mut self, rows: bool, cursor: bool) {
        match (rows, cursor) {
            (false, _) => {
                self.ok(1, Status::default());
            }
            (true, false) => {
                self.rows(1, Status::default());
            }
            (true, true) => {
                let sequence = self.columns();
                self.end(sequence, Status::CURSOR_EXISTS);
            }
        }
    }

    /// Returns one row at a time, regardless of the requested number.
    fn fetch(&mut self, id: u32) {
        let left = self.statements.get_mut(&id).and_then(|one| {
            let left = one.cursor?.checked_sub(1);
            one.cursor = left;
            Some(left)
        });
        match left {
            None => self.error(1, 1421),
            Some(None) => {
                self.end(1, Status::LAST_ROW_SENT);
            }
            Some(Some(_)) => {
                let sequence = build::text_row(&mut self.output, 1, &[Some(b"v")]);
                self.end(sequence, Status::CURSOR_EXISTS);
            }
        }
    }

    fn columns(&mut self) -> u8 {
        let agreed = self.agreed;
        let sequence = build::column_count(&mut self.output, 1, 1, agreed);
        build::column(&mut self.output, sequence, b"c", agreed)
    }

    fn rows(&mut self, sequence: u8, more: Status) -> u8 {
        let agreed = self.agreed;
        let sequence = build::column_count(&mut self.output, sequence, 1, agreed);
        let sequence = build::column(&mut self.output, sequence, b"c", agreed);
        let mut sequence = self.metadata_eof(sequence, more);
        for value in [Some(&b"v"[..]), None] {
            sequence = build::text_row(&mut self.output, sequence, &[value]);
        }
        self.end(sequence, more)
    }

    fn metadata_eof(&mut self, sequence: u8, more: Status) -> u8 {
        match self.agreed.has(Capabilities::DEPRECATE_EOF) {
            true => sequence,
            false => self.end(sequence, more),
        }
    }

    fn status(&self) -> Status {
        match self.in_transaction {
            true => Status::AUTOCOMMIT.with(Status::IN_TRANSACTION),
            false => Status::AUTOCOMMIT,
        }
    }

    fn end(&mut self, sequence: u8, more: Status) -> u8 {
        let status = self.status().with(more);
        if self.agreed.has(Capabilities::DEPRECATE_EOF) {
            let ok = OkPacket {
                status,
                ..OkPacket::default()
            };
            return build::ok_as_eof(&mut self.output, sequence, &ok, self.agreed);
        }
        build::eof(
            &mut self.output,
            sequence,
            Eof {
                warnings: 0,
                status,
            },
        )
    }

    fn ok(&mut self, sequence: u8, more: Status) -> u8 {
        let ok = OkPacket {
            status: self.status().with(more),
            ..OkPacket::default()
        };
        build::ok(&mut self.output, sequence, &ok, self.agreed)
    }

    fn error(&mut self, sequence: u8, code: u16) {
        let error = ErrorText {
            code,
            sqlstate: SqlState::GENERAL,
            message: b"no",
        };
        build::error(&mut self.output, sequence, &error);
    }
}

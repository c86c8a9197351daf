//! Implements prepared statements of the protocol, by names that the client chooses.

use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::{StatementId, backend, build};

use super::Client;
use crate::lines::{self, Column};

/// A prepared statement of this connection.
#[derive(Clone)]
pub(super) struct Prepared {
    id: StatementId,
    columns: Vec<Column>,
}

/// A parameter of an execution.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Text(&'a str),
    Number(i64),
    /// Value that was sent before as long data.
    Sent,
    /// Default of the column, in a bulk execution.
    Default,
}

impl Client {
    pub(crate) fn prepare(&mut self, name: &str, text: &str) -> Vec<String> {
        self.send_command(Code::StmtPrepare, text.as_bytes());
        self.prepared(name)
    }

    fn prepared(&mut self, name: &str) -> Vec<String> {
        let Some(payload) = self.packet() else {
            return vec!["end".to_owned()];
        };
        if payload[0] != backend::OK {
            // A later execution returns an error.
            let (id, columns) = (StatementId(4_000_001), Vec::new());
            self.statements
                .insert(name.to_owned(), Prepared { id, columns });
            return vec![self.word_of(&payload)];
        }
        let ok = backend::PrepareOk::read(&payload).unwrap();
        let mut received = vec![format!(
            "prepared parameters={} columns={} warnings={}",
            ok.parameters, ok.columns, ok.warnings
        )];
        let parameters = self.definitions(ok.parameters.into());
        received.extend(parameters.iter().map(|one| format!("parameter {one}")));
        let columns = self.definitions(ok.columns.into());
        received.extend(columns.iter().map(|one| format!("column {one}")));
        let id = ok.statement;
        let known = Prepared { id, columns };
        self.statements.insert(name.to_owned(), known);
        received
    }

    /// Executes and reads all rows.
    pub(crate) fn execute(&mut self, name: &str, values: &[Value<'_>]) -> Vec<String> {
        self.execute_with(name, values, 0)
    }

    /// Executes without parameter types, which are those of the previous execution.
    pub(crate) fn execute_again(&mut self, name: &str, values: &[Value<'_>]) -> Vec<String> {
        let mut parameters = parameters(values);
        let at = 4 + values.len().div_ceil(8);
        parameters.drain(at + 1..=at + 2 * values.len());
        parameters[at] = 0;
        let mut out = Vec::new();
        build::execute(&mut out, self.id(name), 0, &parameters);
        self.send_packets(&out);
        self.results(true)
    }

    /// Executes with a cursor, whose rows are fetched.
    pub(crate) fn open(&mut self, name: &str, values: &[Value<'_>]) -> Vec<String> {
        let received = self.execute_with(name, values, 1);
        // MySQL reports their types only now.
        let columns = self.columns.clone();
        if let Some(known) = self.statements.get_mut(name) {
            known.columns = columns;
        }
        received
    }

    fn execute_with(&mut self, name: &str, values: &[Value<'_>], flags: u8) -> Vec<String> {
        let id = self.id(name);
        let mut out = Vec::new();
        build::execute(&mut out, id, flags, &parameters(values));
        self.send_packets(&out);
        self.results(true)
    }

    /// Executes with raw bytes after the flags, on a connection with query attributes.
    pub(crate) fn execute_as(&mut self, name: &str, flags: u8, parameters: &[u8]) -> Vec<String> {
        let mut out = Vec::new();
        build::execute(&mut out, self.id(name), flags, parameters);
        self.send_packets(&out);
        self.results(true)
    }

    /// Executes an id that may be no statement.
    pub(crate) fn execute_id(&mut self, id: u32) -> Vec<String> {
        let mut out = Vec::new();
        build::execute(&mut out, StatementId(id), 0, &parameters(&[]));
        self.send_packets(&out);
        self.results(true)
    }

    /// Prepares a text and executes it before its number is known, as the last prepared one.
    pub(crate) fn prepare_and_execute(&mut self, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        build::command(&mut out, Code::StmtPrepare, text.as_bytes());
        build::execute(&mut out, StatementId::LAST, 0, &parameters(&[]));
        self.send_packets(&out);
        let mut received = self.prepared("last");
        self.sequence = 1;
        received.extend(self.results(true));
        received
    }

    /// Executes many rows of values for one statement of MariaDB, with the `types` of the rows or
    /// the previous ones.
    pub(crate) fn execute_rows(
        &mut self,
        name: &str,
        types: &[Value<'_>],
        rows: &[&[Value<'_>]],
    ) -> Vec<String> {
        self.execute_bulk(name, types, (0, rows))
    }

    /// Executes many rows, each with its own result if both sides support it.
    pub(crate) fn execute_each(
        &mut self,
        name: &str,
        types: &[Value<'_>],
        rows: &[&[Value<'_>]],
    ) -> Vec<String> {
        const UNIT_RESULTS: u16 = 64;
        self.execute_bulk(name, types, (UNIT_RESULTS, rows))
    }

    fn execute_bulk(
        &mut self,
        name: &str,
        types: &[Value<'_>],
        (flags, rows): (u16, &[&[Value<'_>]]),
    ) -> Vec<String> {
        const TYPES: u16 = 128;
        let flags = flags | if types.is_empty() { 0 } else { TYPES };
        let mut body = self.id(name).0.to_le_bytes().to_vec();
        body.extend_from_slice(&flags.to_le_bytes());
        for value in types {
            body.extend_from_slice(&[kind(value), 0]);
        }
        for value in rows.iter().copied().flatten() {
            body.push(match value {
                Value::Null => 1,
                Value::Default => 2,
                _ => 0,
            });
            put(&mut body, value);
        }
        self.send_command(Code::StmtBulkExecute, &body);
        self.results(true)
    }

    pub(crate) fn fetch(&mut self, name: &str, rows: u32) -> Vec<String> {
        let known = self.statements[name].clone();
        let mut out = Vec::new();
        build::fetch(&mut out, known.id, rows);
        self.send_packets(&out);
        let mut received = Vec::new();
        self.rows(&known.columns, true, &mut received);
        received
    }

    pub(crate) fn send_long_data(&mut self, name: &str, parameter: u16, data: &[u8]) {
        let mut out = Vec::new();
        build::long_data(&mut out, self.id(name), parameter, data);
        self.send_packets(&out);
    }

    pub(crate) fn reset_statement(&mut self, name: &str) -> Vec<String> {
        let id = self.id(name).0.to_le_bytes();
        self.command(Code::StmtReset, &id)
    }

    pub(crate) fn close(&mut self, name: &str) {
        let mut out = Vec::new();
        build::close(&mut out, self.id(name));
        self.statements.remove(name);
        self.send_packets(&out);
    }

    fn id(&self, name: &str) -> StatementId {
        self.statements[name].id
    }
}

/// Encodes what follows the flags of an execution, on a connection without query attributes.
fn parameters(values: &[Value<'_>]) -> Vec<u8> {
    let mut out = 1_u32.to_le_bytes().to_vec();
    if values.is_empty() {
        return out;
    }
    let mut nulls = vec![0_u8; values.len().div_ceil(8)];
    for (index, value) in values.iter().enumerate() {
        if matches!(value, Value::Null) {
            nulls[index / 8] |= 1 << (index % 8);
        }
    }
    out.extend_from_slice(&nulls);
    out.push(1);
    for value in values {
        out.extend_from_slice(&[kind(value), 0]);
    }
    for value in values {
        put(&mut out, value);
    }
    out
}

fn kind(value: &Value<'_>) -> u8 {
    const VAR_STRING: u8 = 253;
    const LONGLONG: u8 = 8;
    match value {
        Value::Number(_) => LONGLONG,
        _ => VAR_STRING,
    }
}

fn put(out: &mut Vec<u8>, value: &Value<'_>) {
    match value {
        Value::Null | Value::Sent | Value::Default => {}
        Value::Number(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Text(text) => lines::put_lenenc_bytes(out, text.as_bytes()),
    }
}

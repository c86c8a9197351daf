//! Implements a MySQL client that sees every packet and can disconnect at any point.

use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_wire::mysql::backend::{self, OkPacket, PrepareOk, texts, values};
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::frame::{self, Frame, HEADER_LENGTH, PAYLOAD_LENGTH_MAX};
use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::greeting::{self, First};
use evenkeel_wire::mysql::login::{
    Channel, Credential, Hello, ServerAuth, ServerAuthStep, ServerKey,
};
use evenkeel_wire::mysql::password::Nonce;
use evenkeel_wire::mysql::startup::Attributes;
use evenkeel_wire::mysql::{Parsed, StatementId, build};

use super::answer::{Answer, failure, text};
use crate::chaos::client::Rows;
use crate::chaos::failure::Failure;
use crate::chaos::socket::{Socket, nonce};

const USER: &[u8] = b"sbtest";

/// Capabilities of most clients.
const CAPABILITIES: Capabilities = Capabilities::LONG_PASSWORD
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::LOCAL_FILES)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS)
    .with(Capabilities::DEPRECATE_EOF);

/// utf8mb4_general_ci
const COLLATION: u8 = 45;

/// A logged-in session.
pub(in crate::chaos) struct Client {
    socket: Socket,
    /// Expected sequence number of the next packet.
    sequence: u8,
    agreed: Capabilities,
    nonce: [u8; 20],
    /// Connection id for KILL.
    pub(super) connection: u32,
    /// Prepared statement that is executed repeatedly.
    pub(super) insert: Option<StatementId>,
    pub(super) reading: Option<StatementId>,
}

impl Client {
    pub(super) fn log_in(address: SocketAddr, answer_timeout: Duration) -> Result<Client, Failure> {
        let mut client = Client::connect_tcp(address, answer_timeout)?;
        let mut answer = Vec::new();
        let join = client.greeted(&mut answer)?;
        client.send_packets(&answer)?;
        client.go_through(join)?;
        Ok(client)
    }

    /// Opens the TCP connection only.
    pub(super) fn connect_tcp(
        address: SocketAddr,
        answer_timeout: Duration,
    ) -> Result<Client, Failure> {
        Ok(Client {
            socket: Socket::connect(address, answer_timeout)?,
            sequence: 0,
            agreed: Capabilities::default(),
            nonce: [0; 20],
            connection: 0,
            insert: None,
            reading: None,
        })
    }

    /// Reads the greeting and writes the reply to `out`.
    pub(super) fn greeted(&mut self, out: &mut Vec<u8>) -> Result<Box<ServerAuth>, Failure> {
        let payload = self.packet()?;
        let greeting = match greeting::first(&payload) {
            Ok(First::Greeting(greeting)) => greeting,
            Ok(First::Error(_)) => return Err(failure(&payload, true)),
            Err(fault) => return Err(Failure::Broken(fault.to_string())),
        };
        self.connection = greeting.connection;
        self.nonce = greeting.nonce.whole().unwrap_or_default();
        let started = ServerAuth::begin(&greeting, &hello(), credential(), nonce(), (1, out));
        started.map_err(|refusal| Failure::Broken(refusal.to_string()))
    }

    /// Runs COM_CHANGE_USER to its end: the same user, in a new session.
    pub(super) fn change_user(&mut self) -> Result<(), Failure> {
        let mut out = Vec::new();
        let agreed = (self.agreed, Nonce::from_bytes(self.nonce));
        let started = ServerAuth::change_user(agreed, &hello(), credential(), nonce(), &mut out);
        let join = started.map_err(|refusal| Failure::Broken(refusal.to_string()))?;
        (self.insert, self.reading) = (None, None);
        self.send_packets(&out)?;
        self.go_through(join)
    }

    fn go_through(&mut self, mut join: Box<ServerAuth>) -> Result<(), Failure> {
        loop {
            let payload = self.packet()?;
            let frame = Frame {
                sequence: self.sequence.wrapping_sub(1),
                payload: &payload,
            };
            let mut out = Vec::new();
            match join.message(frame, &mut out) {
                ServerAuthStep::More(next) => {
                    join = next;
                    self.send_packets(&out)?;
                }
                ServerAuthStep::Done(joined) => {
                    self.agreed = joined.agreed;
                    return Ok(());
                }
                ServerAuthStep::Refused(_) if payload.first() == Some(&backend::ERROR) => {
                    return Err(failure(&payload, true));
                }
                ServerAuthStep::Refused(refusal) => {
                    return Err(Failure::Broken(refusal.to_string()));
                }
            }
        }
    }

    /// Runs a text to the end of its last result; returns the first one.
    pub(super) fn query(&mut self, text: &str) -> Result<Answer, Failure> {
        self.send_query(text)?;
        let first = self.answer()?;
        let mut has_more = first.has_more;
        while has_more {
            has_more = self.answer()?.has_more;
        }
        Ok(first)
    }

    pub(super) fn send_query(&mut self, text: &str) -> Result<(), Failure> {
        self.send_command(Code::Query, text.as_bytes())
    }

    /// Reads the next result of the text that was sent.
    pub(super) fn answer(&mut self) -> Result<Answer, Failure> {
        let payload = self.packet()?;
        self.result(&payload, false)
    }

    /// Sends COM_RESET_CONNECTION.
    pub(super) fn renew(&mut self) -> Result<(), Failure> {
        (self.insert, self.reading) = (None, None);
        self.send_command(Code::ResetConnection, &[])?;
        self.answer().map(drop)
    }

    /// Waits for the server's request for a file; returns the whole answer if there is none.
    pub(super) fn wait_file(&mut self) -> Result<Option<Answer>, Failure> {
        let payload = self.packet()?;
        match payload.first() {
            Some(&backend::LOCAL_INFILE) => Ok(None),
            _ => self.result(&payload, false).map(Some),
        }
    }

    /// Returns the packets of a file, including the empty one at its end.
    pub(super) fn packets(&self, file: &[u8]) -> Vec<u8> {
        let (mut out, mut sequence) = (Vec::new(), self.sequence);
        for part in file.chunks(50) {
            sequence = build::packet(&mut out, sequence, |out| out.extend_from_slice(part));
        }
        build::packet(&mut out, sequence, |_| {});
        out
    }

    pub(super) fn prepare(&mut self, text: &str) -> Result<StatementId, Failure> {
        self.send_command(Code::StmtPrepare, text.as_bytes())?;
        let payload = self.packet()?;
        if payload.first() == Some(&backend::ERROR) {
            return Err(failure(&payload, false));
        }
        let prepared = PrepareOk::read(&payload);
        let prepared = prepared.map_err(|fault| Failure::Broken(fault.to_string()))?;
        self.definitions(prepared.parameters.into())?;
        self.definitions(prepared.columns.into())?;
        Ok(prepared.statement)
    }

    pub(super) fn execute(
        &mut self,
        statement: StatementId,
        values: &[Value<'_>],
    ) -> Result<Answer, Failure> {
        self.execute_with(statement, values, 0)
    }

    /// Opens a cursor.
    pub(super) fn open(&mut self, statement: StatementId) -> Result<(), Failure> {
        self.execute_with(statement, &[], 1).map(drop)
    }

    fn execute_with(
        &mut self,
        statement: StatementId,
        values: &[Value<'_>],
        flags: u8,
    ) -> Result<Answer, Failure> {
        let mut out = Vec::new();
        build::execute(&mut out, statement, flags, &parameters(values));
        self.send_packets(&out)?;
        let payload = self.packet()?;
        self.result(&payload, true)
    }

    /// Fetches rows of a cursor whose statement has one column.
    pub(super) fn fetch(&mut self, statement: StatementId, count: u32) -> Result<Rows, Failure> {
        let mut out = Vec::new();
        build::fetch(&mut out, statement, count);
        self.send_packets(&out)?;
        self.rows(1, true).map(|answer| answer.rows)
    }

    /// Sends COM_STMT_SEND_LONG_DATA, which has no answer.
    pub(super) fn send_long_data(
        &mut self,
        statement: StatementId,
        parameter: u16,
        data: &str,
    ) -> Result<(), Failure> {
        let mut out = Vec::new();
        build::long_data(&mut out, statement, parameter, data.as_bytes());
        self.send_packets(&out)
    }

    /// Closes the statement; the command has no answer.
    pub(super) fn close(&mut self, statement: StatementId) -> Result<(), Failure> {
        let mut out = Vec::new();
        build::close(&mut out, statement);
        self.send_packets(&out)
    }

    /// Reads a result that begins with this packet.
    fn result(&mut self, payload: &[u8], is_binary: bool) -> Result<Answer, Failure> {
        match payload.first() {
            Some(&backend::OK) => self.end(payload),
            Some(&backend::ERROR) => Err(failure(payload, false)),
            Some(&columns @ 1..=250) => {
                self.definitions(columns.into())?;
                self.rows(columns.into(), is_binary)
            }
            _ => Err(Failure::Broken(format!("{payload:?} as an answer"))),
        }
    }

    fn definitions(&mut self, count: usize) -> Result<(), Failure> {
        (0..count).try_for_each(|_| self.packet().map(drop))?;
        if count > 0 && !self.agreed.has(Capabilities::DEPRECATE_EOF) {
            self.packet()?;
        }
        Ok(())
    }

    fn rows(&mut self, columns: usize, is_binary: bool) -> Result<Answer, Failure> {
        let mut rows = Rows::default();
        loop {
            let payload = self.packet()?;
            match payload.first() {
                Some(&backend::ERROR) => return Err(failure(&payload, false)),
                Some(&backend::EOF) if payload.len() < PAYLOAD_LENGTH_MAX as usize => {
                    let end = self.end(&payload)?;
                    return Ok(Answer { rows, ..end });
                }
                _ if is_binary => rows.0.push(texts(&payload, columns).map(text).collect()),
                _ => rows.0.push(values(&payload).map(text).collect()),
            }
        }
    }

    /// Reads one row and returns its first value; `None` at the end of the result.
    pub(super) fn first_of_row(&mut self) -> Result<Option<String>, Failure> {
        let payload = self.packet()?;
        match payload.first() {
            Some(&backend::ERROR) => Err(failure(&payload, false)),
            Some(&backend::EOF) => Ok(None),
            _ => Ok(values(&payload).next().and_then(text)),
        }
    }

    /// Reads the beginning of a result whose rows are read one by one.
    pub(super) fn begin_rows(&mut self) -> Result<(), Failure> {
        let payload = self.packet()?;
        match payload.first() {
            Some(&columns @ 1..=250) => self.definitions(columns.into()),
            _ => self.result(&payload, false).map(drop),
        }
    }

    fn end(&self, payload: &[u8]) -> Result<Answer, Failure> {
        let is_eof = payload.first() == Some(&backend::EOF) && payload.len() == 5;
        if is_eof && !self.agreed.has(Capabilities::DEPRECATE_EOF) {
            let eof = backend::Eof::read(payload);
            let eof = eof.map_err(|fault| Failure::Broken(fault.to_string()))?;
            return Ok(Answer {
                has_more: eof.status.has(Status::MORE_RESULTS),
                ..Answer::default()
            });
        }
        let ok = OkPacket::read(payload, self.agreed);
        let ok = ok.map_err(|fault| Failure::Broken(fault.to_string()))?;
        Ok(Answer {
            rows: Rows::default(),
            affected: ok.affected_rows,
            insert_id: ok.last_insert_id,
            has_more: ok.status.has(Status::MORE_RESULTS),
        })
    }

    fn send_command(&mut self, code: Code, body: &[u8]) -> Result<(), Failure> {
        let mut out = Vec::new();
        build::command(&mut out, code, body);
        self.send_packets(&out)
    }

    /// Sends whole packets.
    pub(super) fn send_packets(&mut self, packets: &[u8]) -> Result<(), Failure> {
        let mut rest = packets;
        while let Parsed::Frame(header, _) = frame::header(rest) {
            self.sequence = header.sequence.wrapping_add(1);
            rest = rest.get(header.frame_length()..).unwrap_or_default();
        }
        self.send(packets)
    }

    /// Sends raw bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.socket.send(bytes)
    }

    /// Reads the next payload, which may have several packets.
    fn packet(&mut self) -> Result<Vec<u8>, Failure> {
        let deadline = self.socket.deadline();
        let mut payload = Vec::new();
        loop {
            let bytes = self.socket.incoming();
            let header = match frame::header(bytes) {
                Parsed::Frame(header, _) if bytes.len() >= header.frame_length() => header,
                _ => {
                    self.socket.receive(deadline)?;
                    continue;
                }
            };
            payload.extend_from_slice(&bytes[HEADER_LENGTH..header.frame_length()]);
            self.socket.consume(header.frame_length());
            if header.sequence != self.sequence {
                return Err(self.unasked(header.sequence, &payload));
            }
            self.sequence = self.sequence.wrapping_add(1);
            if !header.is_continued() {
                return Ok(payload);
            }
        }
    }

    /// Interprets an unexpected packet: a server that ends an idle session may report why, in a
    /// packet numbered 0.
    fn unasked(&self, sequence: u8, payload: &[u8]) -> Failure {
        match payload.first() {
            Some(&backend::ERROR) if sequence == 0 => failure(payload, true),
            _ => Failure::Broken(format!(
                "a packet numbered {sequence} in the place of {}: {payload:?}",
                self.sequence
            )),
        }
    }

    /// Sets the maximum time to wait for an answer and returns the previous one.
    pub(super) fn set_answer_timeout(&mut self, answer_timeout: Duration) -> Duration {
        self.socket.set_answer_timeout(answer_timeout)
    }

    /// Runs KILL of this session or its query over a separate connection, which may wait for a
    /// server that knows its user.
    pub(super) fn kill(&self, what: &str, answer_timeout: Duration) -> Result<(), Failure> {
        let mut other = Client::log_in(self.socket.address, answer_timeout)?;
        other.query(&format!("KILL {what} {}", self.connection))?;
        other.quit();
        Ok(())
    }

    /// Disconnects without COM_QUIT: by a reset or a close.
    pub(super) fn abort(self, with_reset: bool) {
        self.socket.abort(with_reset);
    }

    /// Disconnects with COM_QUIT.
    pub(super) fn quit(mut self) {
        let _ = self.send_command(Code::Quit, &[]);
    }
}

/// A parameter of an execution.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    /// Text shorter than 251 bytes.
    Text(&'a str),
    Number(i64),
    /// Value that was sent before as long data.
    Sent,
}

fn hello() -> Hello<'static> {
    Hello {
        capabilities: CAPABILITIES,
        collation: COLLATION,
        user: USER,
        schema: Some(USER),
        attributes: Attributes::default(),
    }
}

fn credential() -> (Credential, Channel, ServerKey) {
    let password = Credential::Password(USER.to_vec().into());
    (password, Channel::Plain, ServerKey::Ask)
}

/// Encodes the parameters that follow the flags of an execution.
fn parameters(values: &[Value<'_>]) -> Vec<u8> {
    const VAR_STRING: u8 = 253;
    const LONGLONG: u8 = 8;
    let mut out = 1_u32.to_le_bytes().to_vec();
    if values.is_empty() {
        return out;
    }
    // None of them is NULL; the types follow.
    out.resize(out.len() + values.len().div_ceil(8), 0);
    out.push(1);
    for value in values {
        let kind = match value {
            Value::Number(_) => LONGLONG,
            Value::Text(_) | Value::Sent => VAR_STRING,
        };
        out.extend_from_slice(&[kind, 0]);
    }
    for value in values {
        match value {
            Value::Sent => {}
            Value::Number(number) => out.extend_from_slice(&number.to_le_bytes()),
            Value::Text(text) => {
                out.push(u8::try_from(text.len()).expect("a tag is short"));
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
    out
}

//! A MySQL client that sends what it is told and hears every packet, as lines of text.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame::{self, Frame, HEADER_LENGTH, PAYLOAD_LENGTH_MAX};
use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::greeting::{self, First};
use evenkeel_wire::mysql::login::{Channel, Credential, Hello, Join, JoinStep, ServerKey};
use evenkeel_wire::mysql::password::Nonce;
use evenkeel_wire::mysql::startup::Attributes;
use evenkeel_wire::mysql::{Parsed, StatementId, backend, build};
use socket2::SockRef;

use super::lines::{self, Column};
use crate::rig::LIMIT;

/// What most clients can do.
pub(crate) const USUAL: Capabilities = Capabilities(
    Capabilities::LONG_PASSWORD.0
        | Capabilities::LONG_FLAG.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::LOCAL_FILES.0
        | Capabilities::MULTI_STATEMENTS.0
        | Capabilities::MULTI_RESULTS.0
        | Capabilities::PS_MULTI_RESULTS.0
        | Capabilities::DEPRECATE_EOF.0,
);

/// utf8mb4_general_ci
const COLLATION: u8 = 45;

/// Who wants in, and how.
#[derive(Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
    pub(crate) schema: Option<&'a str>,
    pub(crate) capabilities: Capabilities,
    pub(crate) collation: u8,
}

impl Default for Login<'_> {
    fn default() -> Self {
        Login {
            user: "sbtest",
            password: "sbtest",
            schema: Some("sbtest"),
            capabilities: USUAL,
            collation: COLLATION,
        }
    }
}

impl Login<'_> {
    fn hello(&self) -> Hello<'_> {
        Hello {
            capabilities: self.capabilities,
            collation: self.collation,
            user: self.user.as_bytes(),
            schema: self.schema.map(str::as_bytes),
            attributes: Attributes::default(),
        }
    }

    fn credential(&self) -> (Credential, Channel, ServerKey) {
        let password = self.password.as_bytes().to_vec().into();
        (
            Credential::Password(password),
            Channel::Plain,
            ServerKey::Ask,
        )
    }
}

/// A prepared statement, as this connection knows it.
#[derive(Clone)]
struct Prepared {
    id: StatementId,
    columns: Vec<Column>,
}

/// A parameter of an execution.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Text(&'a str),
    Number(i64),
    /// Was sent before, as long data.
    Sent,
}

/// One session.
pub(crate) struct Client {
    stream: TcpStream,
    incoming: Vec<u8>,
    /// The number that the next packet must have.
    sequence: u8,
    pub(crate) agreed: Capabilities,
    /// What the server greeted with.
    pub(crate) connection: u32,
    pub(crate) version: String,
    nonce: [u8; 20],
    statements: BTreeMap<String, Prepared>,
    /// What is sent when a file is asked for.
    pub(crate) file: Vec<u8>,
}

impl Client {
    /// As `sbtest`.
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::with(address, &Login::default())
    }

    pub(crate) fn with(address: SocketAddr, login: &Login<'_>) -> Client {
        let entered = Client::enter(address, login);
        entered.unwrap_or_else(|told| panic!("the login is refused: {told}"))
    }

    /// Logs in; or what was said instead: `error` with its number, or `end`.
    pub(crate) fn enter(address: SocketAddr, login: &Login<'_>) -> Result<Client, String> {
        let stream = TcpStream::connect_timeout(&address, LIMIT).map_err(|e| e.to_string())?;
        stream.set_nodelay(true).unwrap();
        let mut client = Client {
            stream,
            incoming: Vec::new(),
            sequence: 0,
            agreed: Capabilities::default(),
            connection: 0,
            version: String::new(),
            nonce: [0; 20],
            statements: BTreeMap::new(),
            file: Vec::new(),
        };
        client.log_in(login)?;
        Ok(client)
    }

    fn log_in(&mut self, login: &Login<'_>) -> Result<(), String> {
        let payload = self.packet().ok_or("end")?;
        let greeting = match greeting::first(&payload).unwrap() {
            First::Greeting(greeting) => greeting,
            First::Error(report) => return Err(lines::error(&report)),
        };
        self.connection = greeting.connection;
        self.version = lines::text(greeting.version);
        self.nonce = greeting.nonce.whole().unwrap();
        let mut out = Vec::new();
        let begun = Join::begin(
            &greeting,
            &login.hello(),
            login.credential(),
            [7; 32],
            (1, &mut out),
        );
        let join = begun.map_err(|refusal| refusal.to_string())?;
        self.say(&out);
        self.go_through(join)
    }

    /// A login to its end.
    fn go_through(&mut self, mut join: Box<Join>) -> Result<(), String> {
        loop {
            let payload = self.packet().ok_or("end")?;
            let sequence = self.sequence.wrapping_sub(1);
            let frame = Frame {
                sequence,
                payload: &payload,
            };
            let mut out = Vec::new();
            match join.message(frame, &mut out) {
                JoinStep::More(next) => {
                    join = next;
                    self.say(&out);
                }
                JoinStep::Done(joined) => {
                    self.agreed = joined.agreed;
                    return Ok(());
                }
                JoinStep::Refused(refusal) => {
                    let report = backend::Report::read(&payload);
                    let said = report.filter(|_| payload.first() == Some(&backend::ERROR));
                    return Err(said.map_or(refusal.to_string(), |report| lines::error(&report)));
                }
            }
        }
    }

    /// COM_CHANGE_USER, to its end.
    pub(crate) fn change_user(&mut self, login: &Login<'_>) -> Result<(), String> {
        let mut out = Vec::new();
        let nonce = Nonce::given(self.nonce);
        let begun = Join::change_user(
            (self.agreed, nonce),
            &login.hello(),
            login.credential(),
            [7; 32],
            &mut out,
        );
        let join = begun.map_err(|refusal| refusal.to_string())?;
        self.statements.clear();
        self.say(&out);
        self.go_through(join)
    }

    /// Sends packets as they are.
    pub(crate) fn say(&mut self, packets: &[u8]) {
        let mut rest = packets;
        while let Parsed::Frame(header, _) = frame::header(rest) {
            self.sequence = header.sequence.wrapping_add(1);
            rest = rest.get(header.frame_length()..).unwrap_or_default();
        }
        self.stream.set_write_timeout(Some(LIMIT)).unwrap();
        self.stream.write_all(packets).unwrap();
    }

    fn tell(&mut self, code: Code, body: &[u8]) {
        let mut out = Vec::new();
        build::command(&mut out, code, body);
        self.say(&out);
    }

    /// A command that is answered by one packet.
    pub(crate) fn command(&mut self, code: Code, body: &[u8]) -> Vec<String> {
        self.tell(code, body);
        vec![self.word()]
    }

    /// A text whose answer is heard later, by [`Client::reply`].
    pub(crate) fn query_later(&mut self, text: &str) {
        self.tell(Code::Query, text.as_bytes());
    }

    pub(crate) fn query(&mut self, text: &str) -> Vec<String> {
        self.query_later(text);
        self.reply()
    }

    /// All of them, one after the other, each told before its answer.
    pub(crate) fn all(&mut self, texts: &[&str]) -> Vec<String> {
        let mut heard = Vec::new();
        for text in texts {
            heard.push(format!("> {text}"));
            heard.extend(self.query(text));
        }
        heard
    }

    /// A query that must do.
    pub(crate) fn run(&mut self, text: &str) {
        let reply = self.query(text);
        let is_fine = |line: &String| !line.starts_with("error") && line != "end";
        assert!(reply.iter().all(is_fine), "{text}: {reply:?}");
    }

    /// The first row of an answer.
    pub(crate) fn value(&mut self, text: &str) -> String {
        let reply = self.query(text);
        let row = reply.iter().find_map(|line| line.strip_prefix("row "));
        row.unwrap_or_else(|| panic!("{text}: {reply:?}"))
            .to_owned()
    }

    /// The error that a query is refused with: its number, SQLSTATE and words.
    pub(crate) fn refusal(&mut self, text: &str) -> String {
        let reply = self.query(text);
        let error = reply.iter().find_map(|line| line.strip_prefix("error "));
        error
            .unwrap_or_else(|| panic!("{text}: {reply:?}"))
            .to_owned()
    }

    /// The connection at the server that a statement runs on: its number changes from one to
    /// another, whatever CONNECTION_ID() says.
    pub(crate) fn backend(&mut self) -> String {
        let mark = format!("mark {} {}", std::process::id(), self.connection);
        self.value(&format!(
            "select id from information_schema.processlist where info like '%{mark}%'"
        ))
    }

    pub(crate) fn prepare(&mut self, name: &str, text: &str) -> Vec<String> {
        self.tell(Code::StmtPrepare, text.as_bytes());
        let Some(payload) = self.packet() else {
            return vec!["end".to_owned()];
        };
        if payload[0] != backend::OK {
            // Whoever executes it all the same hears of it.
            let (id, columns) = (StatementId(4_000_001), Vec::new());
            self.statements
                .insert(name.to_owned(), Prepared { id, columns });
            return vec![self.word_of(&payload)];
        }
        let ok = backend::PrepareOk::read(&payload).unwrap();
        let mut heard = vec![format!(
            "prepared parameters={} columns={} warnings={}",
            ok.parameters, ok.columns, ok.warnings
        )];
        let parameters = self.columns(ok.parameters.into());
        heard.extend(parameters.iter().map(|one| format!("parameter {one}")));
        let columns = self.columns(ok.columns.into());
        heard.extend(columns.iter().map(|one| format!("column {one}")));
        let id = ok.statement;
        let known = Prepared { id, columns };
        self.statements.insert(name.to_owned(), known);
        heard
    }

    /// All rows at once.
    pub(crate) fn execute(&mut self, name: &str, values: &[Value<'_>]) -> Vec<String> {
        self.execute_with(name, values, 0)
    }

    /// With a cursor, whose rows are fetched.
    pub(crate) fn open(&mut self, name: &str, values: &[Value<'_>]) -> Vec<String> {
        self.execute_with(name, values, 1)
    }

    fn execute_with(&mut self, name: &str, values: &[Value<'_>], flags: u8) -> Vec<String> {
        let id = self.id(name);
        let mut out = Vec::new();
        build::execute(&mut out, id, flags, &parameters(values));
        self.say(&out);
        self.results(true)
    }

    /// Executes what may be no statement.
    pub(crate) fn execute_id(&mut self, id: u32) -> Vec<String> {
        let mut out = Vec::new();
        build::execute(&mut out, StatementId(id), 0, &parameters(&[]));
        self.say(&out);
        self.results(true)
    }

    pub(crate) fn fetch(&mut self, name: &str, rows: u32) -> Vec<String> {
        let known = self.statements[name].clone();
        let mut out = Vec::new();
        build::fetch(&mut out, known.id, rows);
        self.say(&out);
        let mut heard = Vec::new();
        self.rows(&known.columns, true, &mut heard);
        heard
    }

    pub(crate) fn send_long_data(&mut self, name: &str, parameter: u16, data: &[u8]) {
        let mut out = Vec::new();
        build::long_data(&mut out, self.id(name), parameter, data);
        self.say(&out);
    }

    pub(crate) fn reset_statement(&mut self, name: &str) -> Vec<String> {
        let id = self.id(name).0.to_le_bytes();
        self.command(Code::StmtReset, &id)
    }

    pub(crate) fn close(&mut self, name: &str) {
        let mut out = Vec::new();
        build::close(&mut out, self.id(name));
        self.statements.remove(name);
        self.say(&out);
    }

    fn id(&self, name: &str) -> StatementId {
        self.statements[name].id
    }

    pub(crate) fn init_db(&mut self, schema: &str) -> Vec<String> {
        self.command(Code::InitDb, schema.as_bytes())
    }

    pub(crate) fn ping(&mut self) -> Vec<String> {
        self.command(Code::Ping, &[])
    }

    pub(crate) fn reset(&mut self) -> Vec<String> {
        self.statements.clear();
        self.command(Code::ResetConnection, &[])
    }

    pub(crate) fn field_list(&mut self, table: &str) -> Vec<String> {
        self.tell(Code::FieldList, format!("{table}\0").as_bytes());
        let mut heard = Vec::new();
        loop {
            let Some(payload) = self.packet() else {
                heard.push("end".to_owned());
                return heard;
            };
            match payload[0] {
                backend::EOF | backend::ERROR => {
                    heard.push(self.word_of(&payload));
                    return heard;
                }
                _ => heard.push(format!("column {}", Column::read(&payload))),
            }
        }
    }

    /// Words for people, which differ each time: only that they came.
    pub(crate) fn statistics(&mut self) -> Vec<String> {
        self.tell(Code::Statistics, &[]);
        let heard = self.packet().map(|payload| lines::text(&payload));
        let is_it = heard.is_some_and(|text| text.starts_with("Uptime: "));
        vec![format!("statistics {is_it}")]
    }

    /// The answer to a query that was sent before.
    pub(crate) fn reply(&mut self) -> Vec<String> {
        self.results(false)
    }

    /// An answer of one packet.
    fn word(&mut self) -> String {
        match self.packet() {
            Some(payload) => self.word_of(&payload),
            None => "end".to_owned(),
        }
    }

    fn word_of(&self, payload: &[u8]) -> String {
        lines::word(payload, self.agreed).0
    }

    fn results(&mut self, is_binary: bool) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let Some(payload) = self.packet() else {
                heard.push("end".to_owned());
                return heard;
            };
            let goes_on = match payload[0] {
                backend::OK | backend::ERROR => {
                    let (line, goes_on) = lines::word(&payload, self.agreed);
                    heard.push(line);
                    goes_on
                }
                backend::LOCAL_INFILE => {
                    heard.push(format!("file {}", lines::text(&payload[1..])));
                    self.send_file();
                    true
                }
                _ => {
                    let columns = self.header(&payload, &mut heard);
                    match columns {
                        Some(columns) => self.rows(&columns, is_binary, &mut heard),
                        None => false,
                    }
                }
            };
            if !goes_on {
                return heard;
            }
        }
    }

    /// The columns of a result; none: a cursor is open, and no rows follow.
    fn header(&mut self, payload: &[u8], heard: &mut Vec<String>) -> Option<Vec<Column>> {
        let count = lines::lenenc(&mut &payload[..]).unwrap();
        let mut columns = Vec::new();
        for _ in 0..count {
            let payload = self.packet().expect("a column");
            columns.push(Column::read(&payload));
        }
        let named: Vec<String> = columns.iter().map(Column::to_string).collect();
        heard.push(format!("columns {}", named.join("|")));
        if !self.agreed.has(Capabilities::DEPRECATE_EOF) {
            let payload = self.packet().expect("the end of the columns");
            let line = self.word_of(&payload);
            if line.contains(lines::CURSOR) {
                heard.push(line);
                return None;
            }
        }
        Some(columns)
    }

    /// Column definitions, and what ends them.
    fn columns(&mut self, count: usize) -> Vec<Column> {
        let mut columns = Vec::new();
        for _ in 0..count {
            let payload = self.packet().expect("a column");
            columns.push(Column::read(&payload));
        }
        if count > 0 && !self.agreed.has(Capabilities::DEPRECATE_EOF) {
            self.packet().expect("the end of the columns");
        }
        columns
    }

    /// Rows to their end; whether another result follows.
    fn rows(&mut self, columns: &[Column], is_binary: bool, heard: &mut Vec<String>) -> bool {
        loop {
            let Some(payload) = self.packet() else {
                heard.push("end".to_owned());
                return false;
            };
            let is_end = payload[0] == backend::EOF && payload.len() < PAYLOAD_LENGTH_MAX as usize;
            if payload[0] == backend::ERROR || is_end {
                let (line, goes_on) = lines::word(&payload, self.agreed);
                heard.push(line);
                return goes_on;
            }
            heard.push(lines::row(&payload, columns, is_binary));
        }
    }

    fn send_file(&mut self) {
        let (mut out, file) = (Vec::new(), self.file.clone());
        let mut sequence = self.sequence;
        for part in file.chunks(1_000) {
            sequence = build::packet(&mut out, sequence, |out| out.extend_from_slice(part));
        }
        build::packet(&mut out, sequence, |_| {});
        self.say(&out);
    }

    /// Leaves with a word.
    pub(crate) fn quit(mut self) {
        self.tell(Code::Quit, &[]);
        assert_eq!(self.packet(), None, "nothing is answered to a goodbye");
    }

    /// Leaves without a word: the connection is reset, or merely closed.
    pub(crate) fn vanish(self, by_reset: bool) {
        if by_reset {
            let linger = Some(Duration::ZERO);
            SockRef::from(&self.stream).set_linger(linger).unwrap();
        }
    }

    /// The next payload, however many packets it has; none at the end.
    fn packet(&mut self) -> Option<Vec<u8>> {
        let mut payload = Vec::new();
        let deadline = Instant::now() + LIMIT;
        loop {
            let Parsed::Frame(header, _) = frame::header(&self.incoming) else {
                if !self.receive(deadline) {
                    return None;
                }
                continue;
            };
            if self.incoming.len() < header.frame_length() {
                if !self.receive(deadline) {
                    return None;
                }
                continue;
            }
            assert_eq!(
                header.sequence,
                self.sequence,
                "the number of a packet: {:?}",
                lines::text(&self.incoming[..self.incoming.len().min(80)])
            );
            self.sequence = self.sequence.wrapping_add(1);
            payload.extend_from_slice(&self.incoming[HEADER_LENGTH..header.frame_length()]);
            self.incoming.drain(..header.frame_length());
            if !header.goes_on() {
                return Some(payload);
            }
        }
    }

    /// False at the end.
    fn receive(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "no answer; last came {:?}", self.incoming);
        self.stream.set_read_timeout(Some(left)).unwrap();
        let mut bytes = vec![0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.incoming.extend_from_slice(&bytes[..count]);
                count > 0
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer"),
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(_) => false,
        }
    }
}

/// What follows the flags of an execution, on a connection without query attributes.
fn parameters(values: &[Value<'_>]) -> Vec<u8> {
    const VAR_STRING: u8 = 253;
    const LONGLONG: u8 = 8;
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
        let kind = match value {
            Value::Number(_) => LONGLONG,
            Value::Null | Value::Text(_) | Value::Sent => VAR_STRING,
        };
        out.extend_from_slice(&[kind, 0]);
    }
    for value in values {
        match value {
            Value::Null | Value::Sent => {}
            Value::Number(number) => out.extend_from_slice(&number.to_le_bytes()),
            Value::Text(text) => lines::put_lenenc_bytes(&mut out, text.as_bytes()),
        }
    }
    out
}

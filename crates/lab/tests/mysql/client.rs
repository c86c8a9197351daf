//! A MySQL client that sends given packets and records every received one, as lines of text.

#[path = "client/login.rs"]
mod login;
#[path = "client/statements.rs"]
mod statements;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame::{self, HEADER_LENGTH, PAYLOAD_LENGTH_MAX};
use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::{Parsed, backend, build};
use socket2::SockRef;

use self::statements::Prepared;
use super::lines::{self, Column};
use crate::harness::LIMIT;

pub(crate) use self::login::{Login, USUAL};
pub(crate) use self::statements::Value;

/// One session.
pub(crate) struct Client {
    stream: TcpStream,
    incoming: Vec<u8>,
    /// Expected sequence number of the next packet.
    sequence: u8,
    /// True if the last packet was unsolicited: the server reported why it ends the session.
    pub(crate) was_last_word: bool,
    pub(crate) agreed: Capabilities,
    /// Connection id in the greeting.
    pub(crate) connection: u32,
    pub(crate) version: String,
    /// Status in the greeting, and in the OK of each login.
    pub(crate) welcome: Vec<String>,
    nonce: [u8; 20],
    statements: BTreeMap<String, Prepared>,
    /// Columns of the last result.
    columns: Vec<Column>,
    /// Content that is sent when the server requests a file.
    pub(crate) file: Vec<u8>,
}

impl Client {
    /// Logs in as `sbtest`.
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::with(address, &Login::default())
    }

    pub(crate) fn with(address: SocketAddr, login: &Login<'_>) -> Client {
        let entered = Client::log_in(address, login);
        entered.unwrap_or_else(|answer| panic!("the login is refused: {answer}"))
    }

    /// Sends packets unchanged.
    pub(crate) fn send_packets(&mut self, packets: &[u8]) {
        let mut rest = packets;
        while let Parsed::Frame(header, _) = frame::header(rest) {
            self.sequence = header.sequence.wrapping_add(1);
            rest = rest.get(header.frame_length()..).unwrap_or_default();
        }
        self.stream.set_write_timeout(Some(LIMIT)).unwrap();
        self.stream.write_all(packets).unwrap();
    }

    fn send_command(&mut self, code: Code, body: &[u8]) {
        let mut out = Vec::new();
        build::command(&mut out, code, body);
        self.send_packets(&out);
    }

    /// Runs a command with a single answer packet.
    pub(crate) fn command(&mut self, code: Code, body: &[u8]) -> Vec<String> {
        self.send_command(code, body);
        vec![self.word()]
    }

    /// Sends a text whose answer is read later by [`Client::reply`].
    pub(crate) fn query_later(&mut self, text: &str) {
        self.send_command(Code::Query, text.as_bytes());
    }

    pub(crate) fn query(&mut self, text: &str) -> Vec<String> {
        self.query_later(text);
        self.reply()
    }

    /// Runs all texts in order, each recorded before its answer.
    pub(crate) fn all(&mut self, texts: &[&str]) -> Vec<String> {
        let mut received = Vec::new();
        for text in texts {
            received.push(format!("> {text}"));
            received.extend(self.query(text));
        }
        received
    }

    /// Runs a query that must succeed.
    pub(crate) fn run(&mut self, text: &str) {
        let reply = self.query(text);
        let is_fine = |line: &String| !line.starts_with("error") && line != "end";
        assert!(reply.iter().all(is_fine), "{text}: {reply:?}");
    }

    /// Returns the first row of an answer.
    pub(crate) fn value(&mut self, text: &str) -> String {
        let reply = self.query(text);
        let row = reply.iter().find_map(|line| line.strip_prefix("row "));
        row.unwrap_or_else(|| panic!("{text}: {reply:?}"))
            .to_owned()
    }

    /// Returns the error of a query: its number, SQLSTATE and message.
    pub(crate) fn refusal(&mut self, text: &str) -> String {
        let reply = self.query(text);
        let error = reply.iter().find_map(|line| line.strip_prefix("error "));
        error
            .unwrap_or_else(|| panic!("{text}: {reply:?}"))
            .to_owned()
    }

    /// Returns the server connection that a statement runs on: its number differs between
    /// connections, whatever CONNECTION_ID() returns.
    pub(crate) fn backend(&mut self) -> String {
        let mark = format!("mark {} {}", std::process::id(), self.connection);
        self.value(&format!(
            "select id from information_schema.processlist \
             where info like '%{mark}%' and db <=> database()"
        ))
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
        self.send_command(Code::FieldList, format!("{table}\0").as_bytes());
        let mut received = Vec::new();
        loop {
            let Some(payload) = self.packet() else {
                received.push("end".to_owned());
                return received;
            };
            match payload[0] {
                backend::EOF | backend::ERROR => {
                    received.push(self.word_of(&payload));
                    return received;
                }
                _ => received.push(format!("column {}", Column::read(&payload, self.agreed))),
            }
        }
    }

    /// Runs COM_STATISTICS; the text varies, so only its arrival is recorded.
    pub(crate) fn statistics(&mut self) -> Vec<String> {
        self.send_command(Code::Statistics, &[]);
        let received = self.packet().map(|payload| lines::text(&payload));
        let is_it = received.is_some_and(|text| text.starts_with("Uptime: "));
        vec![format!("statistics {is_it}")]
    }

    /// Reads the answer to a query that was sent before.
    pub(crate) fn reply(&mut self) -> Vec<String> {
        self.results(false)
    }

    /// Reads an answer of one packet.
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
        let mut received = Vec::new();
        loop {
            let Some(payload) = self.packet() else {
                received.push("end".to_owned());
                return received;
            };
            let goes_on = match payload[0] {
                backend::OK | backend::ERROR => {
                    let (line, goes_on) = lines::word(&payload, self.agreed);
                    received.push(line);
                    goes_on
                }
                backend::LOCAL_INFILE => {
                    received.push(format!("file {}", lines::text(&payload[1..])));
                    self.send_file();
                    true
                }
                _ => {
                    let columns = self.header(&payload, &mut received);
                    match columns {
                        Some(columns) => self.rows(&columns, is_binary, &mut received),
                        None => false,
                    }
                }
            };
            if !goes_on {
                return received;
            }
        }
    }

    /// Reads the columns of a result; `None` if a cursor is open and no rows follow.
    fn header(&mut self, payload: &[u8], received: &mut Vec<String>) -> Option<Vec<Column>> {
        let count = lines::lenenc(&mut &payload[..]).unwrap();
        let mut columns = Vec::new();
        for _ in 0..count {
            let payload = self.packet().expect("a column");
            columns.push(Column::read(&payload, self.agreed));
        }
        let named: Vec<String> = columns.iter().map(Column::to_string).collect();
        received.push(format!("columns {}", named.join("|")));
        self.columns.clone_from(&columns);
        if !self.agreed.has(Capabilities::DEPRECATE_EOF) {
            let payload = self.packet().expect("the end of the columns");
            let line = self.word_of(&payload);
            if line.contains(lines::CURSOR) {
                received.push(line);
                return None;
            }
        }
        Some(columns)
    }

    /// Reads column definitions and their end.
    fn definitions(&mut self, count: usize) -> Vec<Column> {
        let mut columns = Vec::new();
        for _ in 0..count {
            let payload = self.packet().expect("a column");
            columns.push(Column::read(&payload, self.agreed));
        }
        if count > 0 && !self.agreed.has(Capabilities::DEPRECATE_EOF) {
            self.packet().expect("the end of the columns");
        }
        columns
    }

    /// Reads rows to their end; returns whether another result follows.
    fn rows(&mut self, columns: &[Column], is_binary: bool, received: &mut Vec<String>) -> bool {
        loop {
            let Some(payload) = self.packet() else {
                received.push("end".to_owned());
                return false;
            };
            let is_end = payload[0] == backend::EOF && payload.len() < PAYLOAD_LENGTH_MAX as usize;
            if payload[0] == backend::ERROR || is_end {
                let (line, goes_on) = lines::word(&payload, self.agreed);
                received.push(line);
                return goes_on;
            }
            received.push(lines::row(&payload, columns, is_binary));
        }
    }

    fn send_file(&mut self) {
        let (mut out, file) = (Vec::new(), self.file.clone());
        let mut sequence = self.sequence;
        for part in file.chunks(1_000) {
            sequence = build::packet(&mut out, sequence, |out| out.extend_from_slice(part));
        }
        build::packet(&mut out, sequence, |_| {});
        self.send_packets(&out);
    }

    /// Disconnects with COM_QUIT.
    pub(crate) fn quit(mut self) {
        self.send_command(Code::Quit, &[]);
        assert_eq!(self.packet(), None, "nothing is answered to a goodbye");
    }

    /// Disconnects without COM_QUIT: by a reset or a close.
    pub(crate) fn abort(self, with_reset: bool) {
        if with_reset {
            let linger = Some(Duration::ZERO);
            SockRef::from(&self.stream).set_linger(linger).unwrap();
        }
    }

    /// Reads the next payload, which may have several packets; `None` at the end.
    pub(crate) fn packet(&mut self) -> Option<Vec<u8>> {
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
            // A server's unsolicited final error has the number of a first packet.
            self.was_last_word = (header.sequence, self.sequence) == (0, 1);
            assert!(
                self.was_last_word || header.sequence == self.sequence,
                "a packet has the number {}, not {}: {:?}",
                header.sequence,
                self.sequence,
                lines::text(&self.incoming[..self.incoming.len().min(80)])
            );
            self.sequence = self.sequence.wrapping_add(1);
            payload.extend_from_slice(&self.incoming[HEADER_LENGTH..header.frame_length()]);
            self.incoming.drain(..header.frame_length());
            if !header.is_continued() {
                return Some(payload);
            }
        }
    }

    /// Receives bytes; returns false at the end.
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

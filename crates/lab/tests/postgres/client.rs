//! A PostgreSQL client that sends given messages and records every received one as a line of text.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use evenkeel_wire::postgres::backend::{self, ErrorReport, Message, columns, values};
use evenkeel_wire::postgres::frame::{self, LENGTH_MAX};
use evenkeel_wire::postgres::login::{Credential, ServerAuth, ServerAuthStep};
use evenkeel_wire::postgres::startup::CancelKey;
use evenkeel_wire::postgres::{Parsed, build};
use socket2::SockRef;

use super::script::Script;
use super::stage::own_database;
use crate::harness::LIMIT;

/// Parameters of a login; the default is `sbtest`'s to the database of the calling test.
#[derive(Clone)]
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
    pub(crate) database: &'a str,
    pub(crate) minor: u16,
    pub(crate) settings: &'a [(&'a str, &'a str)],
}

impl Default for Login<'_> {
    fn default() -> Self {
        Login::to(own_database())
    }
}

impl<'a> Login<'a> {
    pub(crate) fn to(database: &'a str) -> Login<'a> {
        Login {
            user: "sbtest",
            password: "sbtest",
            database,
            minor: 0,
            settings: &[],
        }
    }
}

/// A client session.
pub(crate) struct Client {
    stream: TcpStream,
    incoming: Vec<u8>,
    /// Messages received before the first ReadyForQuery.
    pub(crate) greeting: Vec<String>,
    /// Parameters that the server reports.
    pub(crate) reported: BTreeMap<String, String>,
    pub(crate) key: Option<(u32, Vec<u8>)>,
}

impl Client {
    /// Logs in as `sbtest`.
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::with(address, &[])
    }

    /// Logs in as `sbtest`, with settings in the startup packet.
    pub(crate) fn with(address: SocketAddr, settings: &[(&str, &str)]) -> Client {
        let login = Login {
            settings,
            ..Login::default()
        };
        let entered = Client::log_in(address, &login);
        entered.unwrap_or_else(|answer| panic!("the login is refused: {answer}"))
    }

    /// Logs in; the error is an SQLSTATE and a text, or `end`.
    pub(crate) fn log_in(address: SocketAddr, login: &Login<'_>) -> Result<Client, String> {
        let mut client = Client::reach(address);
        client.send_script(&Script::startup(login));
        client.authenticate(login)?;
        Ok(client)
    }

    /// Opens the TCP connection only.
    pub(crate) fn reach(address: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            incoming: Vec::new(),
            greeting: Vec::new(),
            reported: BTreeMap::new(),
            key: None,
        }
    }

    fn authenticate(&mut self, login: &Login<'_>) -> Result<(), String> {
        let password = Credential::Password(login.password.as_bytes().to_vec().into());
        let nonce = std::array::from_fn(|index| b'a' + u8::try_from(index).unwrap());
        let mut join = Some(ServerAuth::new(
            login.user.into(),
            password,
            None,
            false,
            nonce,
        ));
        loop {
            let mut answer = Vec::new();
            let received = self.with_message(|message| match message {
                Message::Authentication(request) => match join.take() {
                    Some(step) => match step.message(*request, &mut answer) {
                        ServerAuthStep::More(next) => {
                            join = Some(*next);
                            Ok(None)
                        }
                        ServerAuthStep::Refused(why) => Err(format!("{why:?}")),
                        ServerAuthStep::Done(_) => Ok(None),
                    },
                    None => Err("a second login".to_owned()),
                },
                Message::Error(report) => Err(describe_error(*report)),
                message => Ok(Some(line(message))),
            });
            let received = received.unwrap_or(Err("end".to_owned()))?;
            self.send_script(&Script(answer));
            match received {
                Some(line) if line.starts_with('Z') => return Ok(()),
                Some(line) => self.greeting.push(line),
                None => {}
            }
        }
    }

    pub(crate) fn send_script(&mut self, script: &Script) {
        self.stream.set_write_timeout(Some(LIMIT)).unwrap();
        if let Err(error) = self.stream.write_all(&script.0) {
            panic!("{error}; last heard: {:?}", self.reply());
        }
    }

    /// Returns the next message, or `end`; reported parameters are recorded and skipped.
    pub(crate) fn receive_message(&mut self) -> String {
        loop {
            let received = self.with_message(line);
            match received {
                Some(line) if line.starts_with("S ") => {}
                Some(line) => return line,
                None => return "end".to_owned(),
            }
        }
    }

    /// Returns whether nothing is received for this time.
    pub(crate) fn is_silent_for(&mut self, limit: Duration) -> bool {
        self.stream.set_read_timeout(Some(limit)).unwrap();
        let mut bytes = [0; 1024];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.incoming.extend_from_slice(&bytes[..count]);
                count == 0
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns all messages up to the next ReadyForQuery, or the end.
    pub(crate) fn reply(&mut self) -> Vec<String> {
        let mut reply = Vec::new();
        loop {
            let line = self.receive_message();
            let is_last = line.starts_with('Z') || line == "end";
            reply.push(line);
            if is_last {
                return reply;
            }
        }
    }

    /// Sends the script, and reads `replies` replies.
    pub(crate) fn exchange(&mut self, script: &Script, replies: usize) -> Vec<String> {
        self.send_script(script);
        (0..replies).flat_map(|_| self.reply()).collect()
    }

    pub(crate) fn query(&mut self, text: &str) -> Vec<String> {
        self.exchange(&Script::new().query(text), 1)
    }

    /// Sends a query whose reply is read later.
    pub(crate) fn run_later(&mut self, text: &str) {
        self.send_script(&Script::new().query(text));
    }

    /// Runs a query that must succeed.
    pub(crate) fn run(&mut self, text: &str) {
        let reply = self.query(text);
        let is_fine = |line: &String| !line.starts_with('E') && line != "end";
        assert!(reply.iter().all(is_fine), "{text}: {reply:?}");
    }

    /// Returns the first value of a query.
    pub(crate) fn value(&mut self, text: &str) -> String {
        let reply = self.query(text);
        let row = reply.iter().find_map(|line| line.strip_prefix("D "));
        row.unwrap_or_else(|| panic!("{text}: {reply:?}"))
            .to_owned()
    }

    /// Returns the SQLSTATE of a failing query.
    pub(crate) fn refusal(&mut self, text: &str) -> String {
        let reply = self.query(text);
        let error = reply.iter().find_map(|line| line.strip_prefix("E "));
        error
            .unwrap_or_else(|| panic!("{text}: {reply:?}"))
            .to_owned()
    }

    pub(crate) fn backend(&mut self) -> String {
        self.value("select pg_backend_pid() + 0")
    }

    /// Sends a cancel request for this session over a separate connection.
    pub(crate) fn cancel(&self) {
        let (process, secret) = self.key.as_ref().expect("a key");
        cancel(self.stream.peer_addr().unwrap(), *process, secret);
    }

    /// Disconnects without Terminate: by a reset or a close.
    pub(crate) fn abort(self, with_reset: bool) {
        if with_reset {
            let linger = Some(Duration::ZERO);
            SockRef::from(&self.stream).set_linger(linger).unwrap();
        }
    }

    /// Drops all packets to this client, as if its cable was pulled.
    pub(crate) fn cut_off(&self) {
        let nothing = socket2::SockFilter::new(0x06, 0, 0, 0);
        SockRef::from(&self.stream)
            .attach_filter(&[nothing])
            .unwrap();
    }

    /// Returns a second handle, to send and receive in different threads.
    pub(crate) fn another_end(&self) -> Client {
        Client {
            stream: self.stream.try_clone().unwrap(),
            incoming: Vec::new(),
            greeting: Vec::new(),
            reported: BTreeMap::new(),
            key: None,
        }
    }

    /// Returns the raw connection.
    pub(crate) fn raw(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Reads the next message; `None` at the end.
    fn with_message<T>(&mut self, read: impl FnOnce(&Message<'_>) -> T) -> Option<T> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match frame::frame(&self.incoming, LENGTH_MAX) {
                Parsed::Frame(found, length) => {
                    let message = backend::message(found).unwrap();
                    match message {
                        Message::ParameterStatus { name, value } => {
                            self.reported.insert(text(name), text(value));
                        }
                        Message::BackendKeyData { process, secret } => {
                            self.key = Some((process, secret.to_vec()));
                        }
                        _ => {}
                    }
                    let outcome = read(&message);
                    self.incoming.drain(..length);
                    return Some(outcome);
                }
                Parsed::Incomplete { .. } => {}
                Parsed::Invalid(fault) => panic!("{fault:?}"),
            }
            if !self.receive(deadline) {
                return None;
            }
        }
    }

    /// Receives bytes; returns false at the end.
    fn receive(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "no answer; last came {:?}", self.incoming);
        self.stream.set_read_timeout(Some(left)).unwrap();
        let mut bytes = [0; 16 * 1024];
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

/// Sends a cancel request with this key and waits for its end.
pub(crate) fn cancel(address: SocketAddr, process: u32, secret: &[u8]) {
    let mut packet = Vec::new();
    build::cancel(&mut packet, CancelKey { process, secret });
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).unwrap();
    stream.write_all(&packet).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let _ = stream.read(&mut [0; 1]);
}

fn describe_error(report: ErrorReport<'_>) -> String {
    let state = text(&report.sqlstate().0);
    format!("{state} {}", text(report.text()))
}

/// Formats a message as a line: its tag, and the content that does not depend on the server
/// process.
pub(crate) fn line(message: &Message<'_>) -> String {
    match message {
        Message::Authentication(_) => "R".to_owned(),
        Message::BackendKeyData { .. } => "K".to_owned(),
        Message::ParameterStatus { name, value } => format!("S {}={}", text(name), text(value)),
        Message::NegotiateProtocolVersion { version, options } => format!("v {version} {options}"),
        Message::ReadyForQuery(status) => format!("Z {status:?}"),
        Message::Error(report) => format!("E {}", text(&report.sqlstate().0)),
        Message::Notice(report) => format!("N {}", text(&report.sqlstate().0)),
        Message::Notification {
            channel, payload, ..
        } => format!("A {} {}", text(channel), text(payload)),
        Message::CommandComplete(tag) => format!("C {}", text(tag.0)),
        Message::EmptyQuery => "I".to_owned(),
        Message::PortalSuspended => "s".to_owned(),
        Message::ParseComplete => "1".to_owned(),
        Message::BindComplete => "2".to_owned(),
        Message::CloseComplete => "3".to_owned(),
        Message::NoData => "n".to_owned(),
        Message::RowDescription(body) => {
            let names: Vec<String> = columns(body).map(|column| text(column.name)).collect();
            format!("T {}", names.join("|"))
        }
        Message::ParameterDescription(_) => "t".to_owned(),
        Message::DataRow(body) => {
            let values: Vec<String> = values(body)
                .map(|value| value.map_or("NULL".to_owned(), text))
                .collect();
            format!("D {}", values.join("|"))
        }
        Message::CopyIn(_) => "G".to_owned(),
        Message::CopyOut(_) => "H".to_owned(),
        Message::CopyBoth(_) => "W".to_owned(),
        Message::CopyData(data) => format!("d {}", text(data)),
        Message::CopyDone => "c".to_owned(),
        Message::FunctionResult(body) => format!("V {body:?}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

//! A PostgreSQL client that sees every message, and can leave in the middle of any.

mod reply;

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use evenkeel_wire::postgres::backend::{self, Message};
use evenkeel_wire::postgres::frame::{self, LENGTH_MAX};
use evenkeel_wire::postgres::login::{Credential, Join, JoinStep};
use evenkeel_wire::postgres::startup::CancelKey;
use evenkeel_wire::postgres::{Parsed, build};
use socket2::SockRef;

pub(super) use reply::Reply;

const USER: &str = "sbtest";
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Why something did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server said no to this one command; the session goes on.
    Refused(SqlError),
    /// The server said why it ends the session.
    Ended(SqlError),
    /// The connection broke without a word.
    Lost(String),
    /// No answer within the limit.
    Late(String),
    /// What came is not what the protocol allows, or belongs to somebody else.
    Broken(String),
}

/// An error message of a server, or of who speaks in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SqlError {
    pub(super) state: String,
    pub(super) text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(error) => write!(f, "{} ({})", error.text, error.state),
            Failure::Ended(error) => write!(f, "ended: {} ({})", error.text, error.state),
            Failure::Lost(why) => write!(f, "connection lost: {why}"),
            Failure::Late(what) => write!(f, "late: {what}"),
            Failure::Broken(what) => write!(f, "broken: {what}"),
        }
    }
}

/// A session, logged in.
pub(super) struct Client {
    stream: TcpStream,
    /// Received and not yet read.
    incoming: Vec<u8>,
    /// How long any answer may take.
    limit: Duration,
    key: Option<(u32, Vec<u8>)>,
}

impl Client {
    /// Logs in; the name is what the server shows as `application_name`.
    pub(super) fn connect(
        address: SocketAddr,
        name: &str,
        limit: Duration,
    ) -> Result<Client, Failure> {
        let mut client = Client::reach(address, limit)?;
        let mut packet = Vec::new();
        let parameters = [
            ("user", USER),
            ("database", "sbtest"),
            ("application_name", name),
        ];
        let parameters = parameters.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        build::startup(&mut packet, 0, parameters);
        client.send(&packet)?;
        client.log_in()?;
        Ok(client)
    }

    /// Only the TCP connection.
    pub(super) fn reach(address: SocketAddr, limit: Duration) -> Result<Client, Failure> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        stream.set_write_timeout(Some(limit)).map_err(lost)?;
        Ok(Client {
            stream,
            incoming: Vec::new(),
            limit,
            key: None,
        })
    }

    fn log_in(&mut self) -> Result<(), Failure> {
        let password = Credential::Password(USER.as_bytes().to_vec().into());
        let mut join = Join::new(USER.into(), password, None, false, nonce());
        loop {
            let mut answer = Vec::new();
            let step = self.with_message(|message| match message {
                Message::Authentication(request) => Ok(Some(join.message(request, &mut answer))),
                other => Err(unexpected("the login", &other)),
            })?;
            self.send(&answer)?;
            match step {
                Some(JoinStep::More(next)) => join = *next,
                Some(JoinStep::Refused(why)) => return Err(Failure::Broken(format!("{why:?}"))),
                Some(JoinStep::Done(_)) | None => break,
            }
        }
        let ready = self.reply()?;
        self.key = ready.key;
        match ready.error {
            Some(error) => Err(Failure::Ended(error)),
            None => Ok(()),
        }
    }

    /// One simple query, to ReadyForQuery; an error of the server is a failure.
    pub(super) fn query(&mut self, text: &str) -> Result<Reply, Failure> {
        let mut packet = Vec::new();
        build::query(&mut packet, text.as_bytes());
        self.send(&packet)?;
        self.reply()?.good()
    }

    /// COPY FROM STDIN with these lines.
    pub(super) fn copy_in(&mut self, statement: &str, lines: &str) -> Result<Reply, Failure> {
        let mut packet = Vec::new();
        build::query(&mut packet, statement.as_bytes());
        self.send(&packet)?;
        if let Some(refused) = self.wait_copy_in()? {
            return refused.good();
        }
        let mut data = Vec::new();
        copy_data(&mut data, lines.as_bytes());
        data.extend_from_slice(b"c\0\0\0\x04");
        self.send(&data)?;
        self.reply()?.good()
    }

    /// The server's request for COPY data; or its whole reply, if it wants none.
    pub(super) fn wait_copy_in(&mut self) -> Result<Option<Reply>, Failure> {
        let mut reply = Reply::default();
        loop {
            let seen = self.with_message(|message| {
                let is_request = matches!(message, Message::CopyIn(_));
                Ok((is_request, !is_request && reply.take(&message)?))
            })?;
            match seen {
                (true, _) => return Ok(None),
                (_, true) => return Ok(Some(reply)),
                _ => {}
            }
        }
    }

    /// All messages up to the next ReadyForQuery.
    pub(super) fn reply(&mut self) -> Result<Reply, Failure> {
        let mut reply = Reply::default();
        while !self.with_message(|message| reply.take(&message))? {}
        Ok(reply)
    }

    /// Reads the next message and gives it away before the next one is received.
    pub(super) fn with_message<T>(
        &mut self,
        read: impl FnOnce(Message<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + self.limit;
        loop {
            match frame::frame(&self.incoming, LENGTH_MAX) {
                Parsed::Frame(found, length) => {
                    let outcome = match backend::message(found) {
                        Ok(message) => read(message),
                        Err(fault) => Err(Failure::Broken(format!("{fault:?}"))),
                    };
                    self.incoming.drain(..length);
                    return outcome;
                }
                Parsed::Incomplete { .. } => self.receive(deadline)?,
                Parsed::Invalid(fault) => return Err(Failure::Broken(format!("{fault:?}"))),
            }
        }
    }

    fn receive(&mut self, deadline: Instant) -> Result<(), Failure> {
        let late = || Failure::Late(format!("no answer within {} ms", self.limit.as_millis()));
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        self.stream.set_read_timeout(Some(left)).map_err(lost)?;
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(Failure::Lost("closed".to_owned())),
            Ok(count) => {
                self.incoming.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(late()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(lost(error)),
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).map_err(lost)
    }

    /// From now on an answer may take so long; returns how long it could until now.
    pub(super) fn limit(&mut self, limit: Duration) -> Duration {
        std::mem::replace(&mut self.limit, limit)
    }

    /// Asks, over a connection of its own, that what runs in this session be cancelled.
    pub(super) fn cancel(&self) -> Result<(), Failure> {
        let Some((process, secret)) = &self.key else {
            return Err(Failure::Broken(
                "the login gave no key to cancel with".to_owned(),
            ));
        };
        let key = CancelKey {
            process: *process,
            secret,
        };
        let mut packet = Vec::new();
        build::cancel(&mut packet, key);
        let mut other = Client::reach(self.stream.peer_addr().map_err(lost)?, self.limit)?;
        other.send(&packet)?;
        // It is closed when the request was passed on.
        match other.receive(Instant::now() + self.limit) {
            Err(Failure::Lost(_)) => Ok(()),
            other => other,
        }
    }

    /// Leaves without a word: the connection is reset, or merely closed.
    pub(super) fn vanish(self, by_reset: bool) {
        if by_reset {
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }

    /// Leaves as clients do.
    pub(super) fn leave(mut self) {
        let mut packet = Vec::new();
        build::terminate(&mut packet);
        let _ = self.send(&packet);
    }
}

/// A CopyData message.
pub(super) fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    let length = u32::try_from(data.len() + 4).expect("a test's data are short");
    out.push(b'd');
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(data);
}

fn lost(error: std::io::Error) -> Failure {
    Failure::Lost(error.to_string())
}

fn unexpected(wherein: &str, message: &Message<'_>) -> Failure {
    if let Message::Error(report) = message {
        return Failure::Ended(reply::error(*report));
    }
    Failure::Broken(format!("{message:?} in {wherein}"))
}

/// Nobody attacks the lab: it must only differ from login to login.
fn nonce() -> [u8; 18] {
    let mut nonce = [0; 18];
    let random = std::fs::File::open("/dev/urandom");
    let _ = random.and_then(|mut file| file.read_exact(&mut nonce));
    nonce
}

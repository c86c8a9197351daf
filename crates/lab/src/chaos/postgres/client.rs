//! Implements a PostgreSQL client that sees every message and can disconnect at any point.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use evenkeel_wire::postgres::backend::{self, Message};
use evenkeel_wire::postgres::frame::{self, LENGTH_MAX};
use evenkeel_wire::postgres::login::{Credential, ServerAuth, ServerAuthStep};
use evenkeel_wire::postgres::startup::CancelKey;
use evenkeel_wire::postgres::{Parsed, build};

use super::reply::{self, Reply};
use crate::chaos::failure::Failure;
use crate::chaos::socket::{Socket, nonce};

const USER: &str = "sbtest";

/// A logged-in session.
pub(in crate::chaos) struct Client {
    socket: Socket,
    cancel_key: Option<(u32, Vec<u8>)>,
    /// True if the prepared INSERT exists on this session.
    pub(super) has_insert: bool,
    /// Channels of unsolicited notifications.
    pub(super) notification_channels: Vec<String>,
}

impl Client {
    /// Logs in; the server shows the name as `application_name`.
    pub(super) fn log_in_as(
        address: SocketAddr,
        name: &str,
        answer_timeout: Duration,
    ) -> Result<Client, Failure> {
        let mut client = Client::connect_tcp(address, answer_timeout)?;
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

    /// Opens the TCP connection only.
    pub(super) fn connect_tcp(
        address: SocketAddr,
        answer_timeout: Duration,
    ) -> Result<Client, Failure> {
        Ok(Client {
            socket: Socket::connect(address, answer_timeout)?,
            cancel_key: None,
            has_insert: false,
            notification_channels: Vec::new(),
        })
    }

    fn log_in(&mut self) -> Result<(), Failure> {
        let password = Credential::Password(USER.as_bytes().to_vec().into());
        let mut auth = ServerAuth::new(USER.into(), password, None, false, nonce());
        loop {
            let mut answer = Vec::new();
            let step = self.with_message(|message| match message {
                Message::Authentication(request) => Ok(Some(auth.message(request, &mut answer))),
                other => Err(unexpected("the login", &other)),
            })?;
            self.send(&answer)?;
            match step {
                Some(ServerAuthStep::More(next)) => auth = *next,
                Some(ServerAuthStep::Refused(why)) => {
                    return Err(Failure::Broken(format!("{why:?}")));
                }
                Some(ServerAuthStep::Done(_)) | None => break,
            }
        }
        let ready = self.reply()?;
        self.cancel_key = ready.cancel_key;
        match ready.error {
            Some(error) => Err(Failure::Ended(error)),
            None => Ok(()),
        }
    }

    /// Runs one simple query up to ReadyForQuery; returns a server error as a failure.
    pub(super) fn query(&mut self, text: &str) -> Result<Reply, Failure> {
        let mut packet = Vec::new();
        build::query(&mut packet, text.as_bytes());
        self.send(&packet)?;
        self.reply()?.into_result()
    }

    /// Runs COPY FROM STDIN with these lines.
    pub(super) fn copy_in(&mut self, statement: &str, lines: &str) -> Result<Reply, Failure> {
        let mut packet = Vec::new();
        build::query(&mut packet, statement.as_bytes());
        self.send(&packet)?;
        if let Some(refused) = self.wait_copy_in()? {
            return refused.into_result();
        }
        let mut data = Vec::new();
        copy_data(&mut data, lines.as_bytes());
        data.extend_from_slice(b"c\0\0\0\x04");
        self.send(&data)?;
        self.reply()?.into_result()
    }

    /// Waits for the server's request for COPY data; returns the whole reply if there is none.
    pub(super) fn wait_copy_in(&mut self) -> Result<Option<Reply>, Failure> {
        let mut reply = Reply::default();
        loop {
            let seen = self.with_message(|message| {
                let is_request = matches!(message, Message::CopyIn(_));
                Ok((is_request, !is_request && reply.add_message(&message)?))
            })?;
            match seen {
                (true, _) => return Ok(None),
                (_, true) => return Ok(Some(reply)),
                _ => {}
            }
        }
    }

    /// Reads all messages up to the next ReadyForQuery.
    pub(super) fn reply(&mut self) -> Result<Reply, Failure> {
        let mut reply = Reply::default();
        while !self.with_message(|message| reply.add_message(&message))? {}
        self.notification_channels
            .append(&mut reply.notification_channels);
        Ok(reply)
    }

    /// Reads the next message and passes it to the closure before another is received.
    pub(super) fn with_message<T>(
        &mut self,
        read: impl FnOnce(Message<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let deadline = self.socket.deadline();
        loop {
            match frame::frame(self.socket.incoming(), LENGTH_MAX) {
                Parsed::Frame(found, length) => {
                    let outcome = match backend::message(found) {
                        Ok(message) => read(message),
                        Err(fault) => Err(Failure::Broken(format!("{fault:?}"))),
                    };
                    self.socket.consume(length);
                    return outcome;
                }
                Parsed::Incomplete { .. } => self.socket.receive(deadline)?,
                Parsed::Invalid(fault) => return Err(Failure::Broken(format!("{fault:?}"))),
            }
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.socket.send(bytes)
    }

    /// Sets the maximum time to wait for an answer and returns the previous one.
    pub(super) fn set_answer_timeout(&mut self, answer_timeout: Duration) -> Duration {
        self.socket.set_answer_timeout(answer_timeout)
    }

    /// Sends a cancel request for this session over a separate connection.
    pub(super) fn cancel(&self) -> Result<(), Failure> {
        let Some((process, secret)) = &self.cancel_key else {
            return Err(Failure::Broken("the server sent no cancel key".to_owned()));
        };
        let key = CancelKey {
            process: *process,
            secret,
        };
        let mut packet = Vec::new();
        build::cancel(&mut packet, key);
        let answer_timeout = self.socket.answer_timeout();
        let mut other = Socket::connect(self.socket.address, answer_timeout)?;
        other.send(&packet)?;
        // The connection is closed after the request was forwarded.
        match other.receive(Instant::now() + answer_timeout) {
            Err(Failure::Lost(_)) => Ok(()),
            other => other,
        }
    }

    /// Disconnects without Terminate: by a reset or a close.
    pub(super) fn abort(self, with_reset: bool) {
        self.socket.abort(with_reset);
    }

    /// Disconnects with Terminate.
    pub(super) fn quit(mut self) {
        let mut packet = Vec::new();
        build::terminate(&mut packet);
        let _ = self.send(&packet);
    }
}

/// Writes a CopyData message.
pub(super) fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    let length = u32::try_from(data.len() + 4).expect("a test's data are short");
    out.push(b'd');
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(data);
}

fn unexpected(wherein: &str, message: &Message<'_>) -> Failure {
    if let Message::Error(report) = message {
        return Failure::Ended(reply::error(*report));
    }
    Failure::Broken(format!("{message:?} in {wherein}"))
}

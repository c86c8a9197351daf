//! Implements the client's login and change of user.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};

use evenkeel_wire::mysql::backend;
use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame::Frame;
use evenkeel_wire::mysql::greeting::{self, First};
use evenkeel_wire::mysql::login::{
    Channel, Credential, Hello, ServerAuth, ServerAuthStep, ServerKey,
};
use evenkeel_wire::mysql::password::Nonce;
use evenkeel_wire::mysql::startup::Attributes;

use super::Client;
use crate::harness::LIMIT;
use crate::lines;
use crate::stage::own_schema;

/// Capabilities of most clients.
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

/// Parameters of a login; the default is `sbtest`'s to the schema of the calling test.
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
        Login::to(own_schema())
    }
}

impl<'a> Login<'a> {
    pub(crate) fn to(schema: &'a str) -> Login<'a> {
        Login {
            user: "sbtest",
            password: "sbtest",
            schema: Some(schema),
            capabilities: USUAL,
            collation: COLLATION,
        }
    }

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

impl Client {
    /// Logs in; the error is `error` with its number, or `end`.
    pub(crate) fn log_in(address: SocketAddr, login: &Login<'_>) -> Result<Client, String> {
        let stream = TcpStream::connect_timeout(&address, LIMIT).map_err(|e| e.to_string())?;
        Client::enter_by(stream, login)
    }

    /// Logs in over an existing connection.
    pub(crate) fn enter_by(stream: TcpStream, login: &Login<'_>) -> Result<Client, String> {
        stream.set_nodelay(true).unwrap();
        let mut client = Client {
            stream,
            incoming: Vec::new(),
            sequence: 0,
            was_last_word: false,
            agreed: Capabilities::default(),
            connection: 0,
            version: String::new(),
            welcome: Vec::new(),
            nonce: [0; 20],
            statements: BTreeMap::new(),
            columns: Vec::new(),
            file: Vec::new(),
        };
        client.authenticate(login)?;
        Ok(client)
    }

    fn authenticate(&mut self, login: &Login<'_>) -> Result<(), String> {
        let payload = self.packet().ok_or("end")?;
        let greeting = match greeting::first(&payload).unwrap() {
            First::Greeting(greeting) => greeting,
            First::Error(report) => return Err(lines::error(&report)),
        };
        self.connection = greeting.connection;
        self.version = lines::text(greeting.version);
        self.welcome.push(lines::flags(greeting.status));
        self.nonce = greeting.nonce.whole().unwrap();
        let mut out = Vec::new();
        let started = ServerAuth::begin(
            &greeting,
            &login.hello(),
            login.credential(),
            [7; 32],
            (1, &mut out),
        );
        let join = started.map_err(|refusal| refusal.to_string())?;
        self.send_packets(&out);
        self.go_through(join)
    }

    /// Completes a login.
    fn go_through(&mut self, mut join: Box<ServerAuth>) -> Result<(), String> {
        loop {
            let payload = self.packet().ok_or("end")?;
            let sequence = self.sequence.wrapping_sub(1);
            let frame = Frame {
                sequence,
                payload: &payload,
            };
            let mut out = Vec::new();
            match join.message(frame, &mut out) {
                ServerAuthStep::More(next) => {
                    join = next;
                    self.send_packets(&out);
                }
                ServerAuthStep::Done(joined) => {
                    self.agreed = joined.agreed;
                    self.welcome.push(lines::flags(joined.status));
                    return Ok(());
                }
                ServerAuthStep::Refused(refusal) => {
                    let report = backend::ErrorReport::read(&payload);
                    let error_packet = report.filter(|_| payload.first() == Some(&backend::ERROR));
                    return Err(
                        error_packet.map_or(refusal.to_string(), |report| lines::error(&report))
                    );
                }
            }
        }
    }

    /// Runs COM_CHANGE_USER to its end.
    pub(crate) fn change_user(&mut self, login: &Login<'_>) -> Result<(), String> {
        let mut out = Vec::new();
        let nonce = Nonce::from_bytes(self.nonce);
        let started = ServerAuth::change_user(
            (self.agreed, nonce),
            &login.hello(),
            login.credential(),
            [7; 32],
            &mut out,
        );
        let join = started.map_err(|refusal| refusal.to_string())?;
        self.statements.clear();
        self.send_packets(&out);
        self.go_through(join)
    }
}

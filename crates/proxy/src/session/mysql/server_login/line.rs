//! Exchanges packets with a server during the login and the initial queries.

use std::rc::Rc;

use evenkeel_engine::secret;
use evenkeel_engine::stream::Stream;
use evenkeel_tls::{Connector, messages::NO_TLS};
use evenkeel_wire::mysql::backend::{ErrorReport, SqlState};
use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame::{self, Frame};
use evenkeel_wire::mysql::greeting::Greeting;
use evenkeel_wire::mysql::login::{
    AuthFailure, Channel, Credential, Hello, Key, ServerAuth, ServerAuthResult as LoggedIn,
    ServerAuthStep, ServerKey,
};
use evenkeel_wire::mysql::rows::{Row, Rows, RowsState};
use evenkeel_wire::mysql::startup::Attributes;
use evenkeel_wire::mysql::{Parsed, build, rewrite};

use super::super::login::wanted;
use super::super::server_greetings::Version;
use super::super::shared::MysqlService;
use super::{Pair, question};
use crate::server::Server;
use crate::upstream::connect_error::{ConnectError, ConnectErrorKind, ErrorCode};
use crate::upstream::pool_registry::PoolUser;
use crate::worker::Worker;
use evenkeel_sql::session_state::mysql as state;

/// Maximum length in bytes of a server packet during the login and the initial queries.
const PACKET_LENGTH_MAX: u32 = 64 * 1024;

/// Collation utf8mb4, in which names are sent. The client's collation is applied later.
const COLLATION: u8 = 45;

/// Connection attributes that identify Evenkeel.
const ATTRIBUTES: &[u8] = b"\x0cprogram_name\x08evenkeel";

/// Connection to a server during the login.
pub(super) struct ServerPackets<'a> {
    worker: &'a Rc<Worker>,
    pub(super) server: &'a Server,
    pub(super) stream: Stream,
    /// Received bytes that have not been processed.
    bytes: Vec<u8>,
    /// True if the connection is safe from eavesdropping.
    is_secure: bool,
    /// Sequence number of the next packet to send.
    next: u8,
}

impl<'a> ServerPackets<'a> {
    pub(super) fn new(worker: &'a Rc<Worker>, server: &'a Server, stream: Stream) -> Self {
        Self {
            is_secure: stream.is_local(),
            stream,
            worker,
            server,
            bytes: Vec::new(),
            next: 1,
        }
    }

    fn broken(&self, why: impl std::fmt::Display) -> ConnectError {
        ConnectError::unreachable(self.server, why)
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), ConnectError> {
        let sent = self.stream.send(self.worker, bytes).await;
        sent.map_err(|error| ConnectError::unreachable(self.server, error))
    }

    /// Returns the sequence number and payload of the server's next packet.
    pub(super) async fn packet(&mut self) -> Result<(u8, Vec<u8>), ConnectError> {
        loop {
            match frame::frame(&self.bytes, PACKET_LENGTH_MAX) {
                Parsed::Frame(frame, length) => {
                    let packet = (frame.sequence, frame.payload.to_vec());
                    self.bytes.drain(..length);
                    return Ok(packet);
                }
                Parsed::Invalid(fault) => return Err(self.broken(fault)),
                Parsed::Incomplete { .. } => {}
            }
            let received = self.stream.receive(self.worker, &mut self.bytes).await;
            match received {
                Ok(true) => {}
                Ok(false) => return Err(self.broken("closed the connection during login")),
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    pub(super) async fn encrypt(
        &mut self,
        greeting: &Greeting<'_>,
        connector: &Connector,
        user: &PoolUser,
    ) -> Result<(), ConnectError> {
        if !greeting.capabilities.has(Capabilities::SSL) {
            return Err(self.broken(NO_TLS));
        }
        // An attacker on the network could have injected it, so it must not be taken for encrypted
        // data.
        if !self.bytes.is_empty() {
            return Err(self.broken("sent unencrypted data after its handshake, before TLS"));
        }
        let mut request = Vec::new();
        let offered = greeting.capabilities;
        // MySQL uses these capabilities, not those of the login packet after them.
        let ours = self.wanted(user).both(offered);
        let ours = ours.with(Capabilities::PROTOCOL_41);
        build::ssl_request(&mut request, self.next, ours, COLLATION);
        self.send(&request).await?;
        let channel = connector.connect().map_err(|fault| self.broken(fault))?;
        self.stream.encrypt(channel);
        let worker = self.worker;
        let shaken = self.stream.shake_hands(worker, &[], &mut self.bytes).await;
        shaken.map_err(|error| self.broken(error))?;
        self.next += 1;
        self.is_secure = true;
        Ok(())
    }

    pub(super) async fn log_in(
        &mut self,
        greeting: &Greeting<'_>,
        shared: &MysqlService,
        user: &PoolUser,
    ) -> Result<LoggedIn, ConnectError> {
        let hello = Hello {
            capabilities: self.wanted(user),
            collation: COLLATION,
            user: user.server_user.as_bytes(),
            schema: None,
            attributes: Attributes::of(ATTRIBUTES),
        };
        let channel = match self.is_secure {
            true => Channel::Secure,
            false => Channel::Plain,
        };
        // Without TLS, an attacker in the network path can read everything, which the operator has
        // accepted. Requesting the server's key does not add to that risk.
        let how = (credential(shared, user), channel, ServerKey::Ask);
        let mut out = Vec::new();
        let to = (self.next, &mut out);
        let begun = ServerAuth::begin(greeting, &hello, how, secret(), to);
        let mut join = begun.map_err(|refusal| self.not_possible(refusal))?;
        loop {
            self.send(&out).await?;
            out.clear();
            let (sequence, payload) = self.packet().await?;
            let payload = payload.as_slice();
            match join.message(Frame { sequence, payload }, &mut out) {
                ServerAuthStep::More(next) => join = next,
                ServerAuthStep::Done(joined) => return Ok(joined),
                ServerAuthStep::Refused(AuthFailure::Server(_)) => {
                    let report = ErrorReport::read(payload);
                    let refused = report.map(|report| refused(self.server, &report));
                    return Err(refused.unwrap_or_else(|| self.not_possible(AuthFailure::Protocol)));
                }
                ServerAuthStep::Refused(refusal) => return Err(self.not_possible(refusal)),
            }
        }
    }

    fn wanted(&self, user: &PoolUser) -> Capabilities {
        let wanted = wanted(user.identity);
        match self.stream.is_encrypted() {
            true => wanted.with(Capabilities::SSL),
            false => wanted,
        }
    }

    /// Returns the error for an unusable credential, or for a peer that is no MySQL server.
    fn not_possible(&self, refusal: AuthFailure) -> ConnectError {
        if refusal == AuthFailure::Protocol {
            return self.broken(refusal);
        }
        let code = ErrorCode {
            number: refusal.code(),
            sqlstate: refusal.sqlstate().0,
        };
        ConnectError::refused(
            self.server,
            ConnectErrorKind::Refused,
            code,
            &refusal.to_string(),
        )
    }

    /// Queries the initial variables before any is set, and enables the session trackers, in a
    /// single round trip.
    pub(super) async fn set_up(
        &mut self,
        agreed: Capabilities,
        version: &Version,
    ) -> Result<Vec<Pair>, ConnectError> {
        let mut out = Vec::new();
        let question = question();
        for text in [
            question.as_str(),
            state::trackers(version.mariadb, version.number()),
        ] {
            rewrite::query(&mut out, &[], text.as_bytes(), agreed);
        }
        self.send(&out).await?;
        let mut variables = Vec::new();
        let found = self.answer(agreed).await?;
        for row in found {
            if let [Some(name), value] = row.as_slice() {
                let value = value.as_deref().unwrap_or_default();
                variables.push((name.to_ascii_lowercase().into(), value.into()));
            }
        }
        self.answer(agreed).await?;
        match self.bytes.is_empty() {
            true => Ok(variables),
            false => Err(self.broken("sent more data than expected")),
        }
    }

    pub(super) async fn run(
        &mut self,
        text: &str,
        agreed: Capabilities,
    ) -> Result<(), ConnectError> {
        let mut out = Vec::new();
        rewrite::query(&mut out, &[], text.as_bytes(), agreed);
        self.send(&out).await?;
        self.answer(agreed).await.map(drop)
    }

    /// Returns the rows of one reply.
    async fn answer(&mut self, agreed: Capabilities) -> Result<Vec<Row>, ConnectError> {
        let mut rows = Rows::new(agreed);
        loop {
            let (_, payload) = self.packet().await?;
            match rows.packet(&payload) {
                RowsState::More => {}
                RowsState::Done => return Ok(rows.into_rows()),
                RowsState::Malformed => return Err(self.broken("sent a malformed reply")),
                RowsState::Refused => {
                    let report = ErrorReport::read(&payload);
                    let refused = report.map(|report| refused(self.server, &report));
                    return Err(refused.unwrap_or_else(|| self.broken("sent a malformed error")));
                }
            }
        }
    }
}

/// Returns the credential for a server. The password is preferred, since any other credential fails
/// at a server that no longer has the password cached.
fn credential(shared: &MysqlService, pool_user: &PoolUser) -> Credential {
    let known = pool_user.mysql().unwrap_or(Credential::Nothing);
    if !matches!(known, Credential::Key(Key::Sha2(_))) {
        return known;
    }
    let password = shared
        .logins
        .vault
        .password(&pool_user.user, pool_user.generation);
    password.map_or(known, Credential::Password)
}

/// Returns the error that the server reported.
pub(super) fn refused(server: &Server, report: &ErrorReport<'_>) -> ConnectError {
    let code = ErrorCode {
        number: report.code,
        sqlstate: report.sqlstate.unwrap_or(SqlState::GENERAL).0,
    };
    let text = String::from_utf8_lossy(report.message);
    ConnectError::refused(server, kind_of(report), code, &text)
}

fn kind_of(report: &ErrorReport<'_>) -> ConnectErrorKind {
    match report.code {
        _ if report.is_full() => ConnectErrorKind::Full,
        // ER_SERVER_SHUTDOWN, ER_NORMAL_SHUTDOWN, and the error of a Galera node that is not ready;
        // ER_HOST_IS_BLOCKED, which the operator resolves.
        1053 | 1077 | 1047 | 1129 | 3169 => ConnectErrorKind::NotReady,
        _ => ConnectErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: u16) -> ConnectErrorKind {
        let mut payload = vec![0xff];
        payload.extend_from_slice(&code.to_le_bytes());
        payload.extend_from_slice(b"#08004no");
        kind_of(&ErrorReport::read(&payload).unwrap())
    }

    #[test]
    fn a_server_that_is_full_or_going_is_no_refusal_of_the_user() {
        for full in [1040, 1203, 1226] {
            assert_eq!(kind(full), ConnectErrorKind::Full, "{full}");
        }
        for away in [1053, 1047, 1129] {
            assert_eq!(kind(away), ConnectErrorKind::NotReady, "{away}");
        }
        for refused in [1044, 1045, 1130, 1698, 1862, 3118, 4151] {
            assert_eq!(kind(refused), ConnectErrorKind::Refused, "{refused}");
        }
    }
}

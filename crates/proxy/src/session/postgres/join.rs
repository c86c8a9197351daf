//! Opens a connection to a server and logs in, in a client's name.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_policy::lending::Refusal;
use evenkeel_wire::postgres::backend::{self, Authentication, Message};
use evenkeel_wire::postgres::frame;
use evenkeel_wire::postgres::login::{Join, JoinStep};
use evenkeel_wire::postgres::{Parsed, build};

use super::account::Pooled;
use super::complaint::Complaint;
use super::server::ServerConnection;
use crate::engine::event::{Event, Sign};
use crate::engine::worker::Worker;
use crate::random::secret;
use crate::server::Server;
use crate::service::{Service, View};
use crate::stream::Stream;
use crate::tls::Connector;
use crate::upstream::connect::connect;

/// What a server may say in a login, and how long a message of it may be.
const LOGIN_MESSAGE_LENGTH_MAX: u32 = 64 * 1024;

/// Why there is no connection.
#[derive(Debug, Clone)]
pub(crate) struct JoinError {
    pub(crate) kind: Kind,
    pub(crate) sqlstate: [u8; 5],
    /// Says which server.
    pub(crate) message: String,
    pub(crate) server_id: u64,
}

/// What to make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It could not be reached, or went silent.
    Unreachable,
    /// It starts, stops or has no room: later perhaps.
    TurnedAway,
    /// It does not want this user, or has no such database.
    Refused,
    /// The pool is no longer current.
    Outdated,
}

impl JoinError {
    pub(crate) fn outdated() -> Self {
        Self {
            kind: Kind::Outdated,
            sqlstate: *b"08006",
            message: "the pool is no longer current".to_owned(),
            server_id: 0,
        }
    }

    /// The server has no more connections to give.
    pub(crate) fn is_full(&self) -> bool {
        self.sqlstate == *b"53300"
    }

    /// Another server might do, or this one later.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.kind, Kind::Unreachable | Kind::TurnedAway)
    }

    /// There was no use in waiting for one.
    pub(crate) fn not_lent(refusal: Refusal) -> Self {
        let complaint = Complaint::refused(refusal);
        Self {
            kind: Kind::Refused,
            sqlstate: complaint.sqlstate.0,
            message: complaint.message,
            server_id: 0,
        }
    }

    /// None became free.
    pub(crate) fn waited() -> Self {
        let complaint = Complaint::waited();
        Self {
            kind: Kind::Refused,
            sqlstate: complaint.sqlstate.0,
            message: complaint.message,
            server_id: 0,
        }
    }

    fn unreachable(server: &Server, why: impl fmt::Display) -> Self {
        Self {
            kind: Kind::Unreachable,
            sqlstate: *b"08006",
            message: format!("server {}: {why}", server.name),
            server_id: server.id,
        }
    }

    fn refused(pooled: &Pooled, sqlstate: [u8; 5], text: &str) -> Self {
        let kind = match &sqlstate {
            b"57P01" | b"57P02" | b"57P03" | b"53300" => Kind::TurnedAway,
            _ => Kind::Refused,
        };
        Self {
            kind,
            sqlstate,
            message: format!("server {}: {text}", pooled.server.name),
            server_id: pooled.server.id,
        }
    }
}

/// Opens one; the time that it may take is the connect timeout twice, once for the login.
pub(crate) async fn open(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    pooled: &Arc<Pooled>,
) -> Result<Box<ServerConnection>, JoinError> {
    let view = service.view_owned();
    let joining = async {
        let stream = dial(worker, &view, &pooled.server).await?;
        join(worker, stream, pooled).await
    };
    let limit = view.settings.connect_timeout * 2;
    match compio::time::timeout(limit, joining).await {
        Ok(joined) => joined,
        Err(_) => {
            let limit_ms = limit.as_millis();
            let why = format!("the login was not over after {limit_ms} ms");
            Err(JoinError::unreachable(&pooled.server, why))
        }
    }
}

/// Connects to a server, and encrypts where the configuration says so.
pub(super) async fn dial(
    worker: &Rc<Worker>,
    view: &View,
    server: &Server,
) -> Result<Stream, JoinError> {
    let socket = match connect(worker, server, &view.settings).await {
        Ok(socket) => socket,
        Err(failed) => {
            let error = JoinError::unreachable(server, &failed.why);
            if !failed.ours {
                server.counters.connect_errors.add(1);
                server.endpoint_failed();
                let sign = Sign::ConnectFailed(error.message.clone());
                let server_id = server.id;
                worker.shared.tell(Event::Sign { server_id, sign });
            }
            return Err(error);
        }
    };
    let mut stream = Stream::plain(socket);
    let connector = view
        .postgres
        .as_ref()
        .and_then(|own| own.connectors.get(&server.id));
    if let Some(connector) = connector {
        encrypt(worker, &mut stream, connector)
            .await
            .map_err(|why| JoinError::unreachable(server, why))?;
    }
    Ok(stream)
}

async fn encrypt(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    connector: &Connector,
) -> Result<(), String> {
    let mut request = Vec::new();
    build::ssl_request(&mut request);
    let told = |error: std::io::Error| error.to_string();
    stream.send(worker, &request).await.map_err(told)?;
    match stream.receive_byte().await.map_err(told)? {
        b'S' => {}
        _ => {
            return Err("does not speak TLS: see [service.server_tls] mode".to_owned());
        }
    }
    let channel = connector.connect().map_err(|fault| fault.to_string())?;
    stream.encrypt(channel);
    let mut behind = Vec::new();
    stream
        .shake_hands(worker, &[], &mut behind)
        .await
        .map_err(told)
}

async fn join(
    worker: &Rc<Worker>,
    stream: Stream,
    pooled: &Arc<Pooled>,
) -> Result<Box<ServerConnection>, JoinError> {
    let who = &pooled.who;
    let binding = stream.end_point();
    let is_encrypted = stream.is_encrypted();
    let mut connection = ServerConnection::new(worker, stream, pooled);
    let mut out = Vec::new();
    let parameters: [(&[u8], &[u8]); 2] = [
        (b"user", who.server_user.as_bytes()),
        (b"database", who.database.as_bytes()),
    ];
    build::startup(&mut out, 0, parameters);
    let mut login = Login {
        join: Some(Join::new(
            who.server_user.clone().into_bytes(),
            who.credential.clone(),
            binding,
            is_encrypted,
            secret(),
        )),
        pooled,
    };
    let mut bytes = Vec::new();
    loop {
        let sent = connection.stream.send(worker, &out).await;
        sent.map_err(|error| JoinError::unreachable(&pooled.server, error))?;
        out.clear();
        while let Some((message, length)) = whole(&bytes, pooled)? {
            let is_ready = login.message(message, &mut connection, &mut out)?;
            bytes.drain(..length);
            if is_ready {
                connection.begins(worker);
                pooled.server.counters.sessions.add(1);
                return Ok(connection);
            }
        }
        if out.is_empty() {
            receive(worker, &mut connection.stream, &mut bytes, pooled).await?;
        }
    }
}

fn whole<'a>(bytes: &'a [u8], pooled: &Pooled) -> Result<Option<(Message<'a>, usize)>, JoinError> {
    match frame::frame(bytes, LOGIN_MESSAGE_LENGTH_MAX) {
        Parsed::Frame(frame, length) => match backend::message(frame) {
            Ok(message) => Ok(Some((message, length))),
            Err(fault) => Err(JoinError::unreachable(&pooled.server, fault)),
        },
        Parsed::Incomplete { .. } => Ok(None),
        Parsed::Invalid(fault) => Err(JoinError::unreachable(&pooled.server, fault)),
    }
}

async fn receive(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    pooled: &Pooled,
) -> Result<(), JoinError> {
    let received: io::Result<bool> = stream.receive(worker, bytes).await;
    match received {
        Ok(true) => Ok(()),
        Ok(false) => Err(JoinError::unreachable(
            &pooled.server,
            "closed the connection in the login",
        )),
        Err(error) => Err(JoinError::unreachable(&pooled.server, error)),
    }
}

/// A login at a server that is under way.
struct Login<'a> {
    /// None once the server has let us in.
    join: Option<Join>,
    pooled: &'a Pooled,
}

impl Login<'_> {
    /// True: ready for queries.
    fn message(
        &mut self,
        message: Message<'_>,
        connection: &mut ServerConnection,
        out: &mut Vec<u8>,
    ) -> Result<bool, JoinError> {
        match message {
            Message::Authentication(request) => self.authenticate(request, out)?,
            Message::Error(report) => {
                let text = String::from_utf8_lossy(report.text());
                return Err(JoinError::refused(self.pooled, report.sqlstate().0, &text));
            }
            Message::ParameterStatus { name, value } => connection.report(name, value),
            Message::BackendKeyData { process, secret } => {
                connection
                    .cancels
                    .key
                    .replace(Some((process, secret.into())));
            }
            Message::ReadyForQuery(_) if self.join.is_none() => return Ok(true),
            Message::Notice(_) => {}
            _ => {
                let why = "said something that has no place in a login";
                return Err(JoinError::unreachable(&self.pooled.server, why));
            }
        }
        Ok(false)
    }

    fn authenticate(
        &mut self,
        request: Authentication<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), JoinError> {
        let Some(join) = self.join.take() else {
            let why = "asked for a login twice";
            return Err(JoinError::unreachable(&self.pooled.server, why));
        };
        match join.message(request, out) {
            JoinStep::More(join) => self.join = Some(*join),
            JoinStep::Done(_) => {}
            JoinStep::Refused(refusal) => {
                let text = refusal.to_string();
                return Err(JoinError::refused(self.pooled, *b"28000", &text));
            }
        }
        Ok(())
    }
}

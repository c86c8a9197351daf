//! Opens a connection to a server and logs in with a client's credentials.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::secret;
use evenkeel_engine::stream::Stream;
use evenkeel_engine::timers;
use evenkeel_tls::{Connector, messages::NO_TLS};
use evenkeel_wire::postgres::backend::{self, Authentication, Message};
use evenkeel_wire::postgres::frame;
use evenkeel_wire::postgres::login::{Credential, ServerAuth, ServerAuthStep};
use evenkeel_wire::postgres::{Parsed, build};
use zeroize::Zeroize;

use super::server::ServerConnection;
use super::shared::PostgresService;
use crate::server::Server;
use crate::server_info::FIRST_READING_LIMIT;
use crate::service::Service;
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::connect_error::{ConnectError, ConnectErrorKind, ErrorCode};
use crate::upstream::pool_registry::{Parameters, PoolHandle, PoolUser};
use crate::upstream::server_login::{reach, reach_same_peer, with_login_timeout};
use crate::worker::Worker;

/// Maximum length of a server's message during the login.
const LOGIN_MESSAGE_LENGTH_MAX: u32 = 64 * 1024;

fn code(sqlstate: [u8; 5]) -> ErrorCode {
    ErrorCode {
        number: 0,
        sqlstate,
    }
}

fn refused(server: &Server, user: &PoolUser, sqlstate: [u8; 5], text: &str) -> ConnectError {
    let kind = match &sqlstate {
        // Walsenders have a limit of their own: the client receives the error and may retry.
        b"53300" if user.replication.is_none() => ConnectErrorKind::Full,
        b"57P01" | b"57P02" | b"57P03" => ConnectErrorKind::NotReady,
        _ => ConnectErrorKind::Refused,
    };
    ConnectError::refused(server, kind, code(sqlstate), text)
}

/// Opens a connection, within the server's time limit.
pub(super) async fn open(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    pooled: &Arc<PoolHandle>,
) -> Result<Box<ServerConnection>, ConnectError> {
    wait_for_reading(service, pooled).await;
    let view = service.snapshot_owned();
    let joining = async {
        let stream = dial(worker, service, &pooled.server).await?;
        join(worker, stream, pooled).await
    };
    let connection = with_login_timeout(&view, &pooled.server, joining).await?;
    let shared = service.database();
    let protocol = shared.and_then(|shared| shared.state_of::<PostgresService>());
    // The parameters of a replication connection apply to no other client.
    if let Some(protocol) = protocol.filter(|_| pooled.pool_user.replication.is_none()) {
        protocol.baselines.refresh(&pooled.pool_user, &connection);
    }
    Ok(connection)
}

/// Logs a user in at a server, and out again: the server has accepted the credential. Returns
/// whether the server has requested a proof of it. `limit`: time to connect.
pub(super) async fn prove(
    worker: &Rc<Worker>,
    service: &Service,
    (server, user): (&Server, &PoolUser),
    limit: Duration,
) -> Result<bool, ConnectError> {
    let view = service.snapshot_owned();
    let proving = async {
        let dialing = timers::timeout(limit, dial(worker, service, server)).await;
        let slow = || Err(ConnectError::unreachable(server, "does not respond"));
        let stream = dialing.unwrap_or_else(|_| slow())?;
        let mut login = log_in(worker, stream, (server, user)).await?;
        let mut out = Vec::new();
        build::terminate(&mut out);
        login.stream.send_and_close(&out);
        Ok(login.was_asked)
    };
    with_login_timeout(&view, server, proving).await
}

/// Waits for the first reading of the catalog of a database that replaced another of that name.
/// Sessions of the old one continue in it, and the effects of its functions must be known first.
async fn wait_for_reading(service: &Service, pooled: &PoolHandle) {
    let shared = service.database();
    let known = shared.and_then(|shared| {
        shared
            .server_info
            .databases()
            .get(&pooled.pool_user.database)
    });
    let Some(database) = known.filter(|database| database.is_awaited()) else {
        return;
    };
    let _ = timers::timeout(FIRST_READING_LIMIT, database.wait_for_first_reading()).await;
    database.stop_awaiting();
}

/// Connects to a server, and encrypts if configured.
async fn dial(
    worker: &Rc<Worker>,
    service: &Service,
    server: &Server,
) -> Result<Stream, ConnectError> {
    let reaching = reach(worker, service, server);
    dial_by(worker, service, server, reaching).await
}

/// Connects to the server address that an existing connection leads to.
pub(super) async fn dial_beside(
    worker: &Rc<Worker>,
    service: &Service,
    one: &CancelTarget,
) -> Result<Stream, ConnectError> {
    let reaching = reach_same_peer(worker, service, one);
    dial_by(worker, service, &one.pool_handle.server, reaching).await
}

async fn dial_by(
    worker: &Rc<Worker>,
    service: &Service,
    server: &Server,
    reaching: impl Future<Output = Result<Stream, ConnectError>>,
) -> Result<Stream, ConnectError> {
    let view = service.snapshot_owned();
    let database = view.database().ok_or_else(ConnectError::outdated)?;
    let connector = database.connector(server)?;
    let mut stream = reaching.await?;
    if let Some(connector) = connector {
        encrypt(worker, &mut stream, connector)
            .await
            .map_err(|why| ConnectError::unreachable(server, why))?;
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
    let describe = |error: std::io::Error| error.to_string();
    stream.send(worker, &request).await.map_err(describe)?;
    match stream.receive_byte().await.map_err(describe)? {
        b'S' => {}
        _ => {
            return Err(NO_TLS.to_owned());
        }
    }
    let channel = connector.connect().map_err(|fault| fault.to_string())?;
    stream.encrypt(channel);
    let mut behind = Vec::new();
    stream
        .shake_hands(worker, &[], &mut behind)
        .await
        .map_err(describe)
}

async fn join(
    worker: &Rc<Worker>,
    stream: Stream,
    pooled: &Arc<PoolHandle>,
) -> Result<Box<ServerConnection>, ConnectError> {
    let login = log_in(worker, stream, (&pooled.server, &pooled.pool_user)).await?;
    let mut connection = ServerConnection::new(worker, login.stream, pooled);
    for (name, value) in &login.reported {
        connection.report(name, value);
    }
    connection.core.cancel_target.key.replace(login.key);
    connection.begins(worker);
    pooled.server.counters.sessions.add(1);
    Ok(connection)
}

/// Result of a login at a server.
struct ServerLogin {
    stream: Stream,
    /// Parameters that the server has reported.
    reported: Parameters,
    /// Process id and secret for cancel requests.
    key: Option<(u32, Box<[u8]>)>,
    /// True if the server has requested a proof of the credential.
    was_asked: bool,
}

/// Logs in on a new connection, until the server is ready for queries.
async fn log_in(
    worker: &Rc<Worker>,
    mut stream: Stream,
    (server, user): (&Server, &PoolUser),
) -> Result<ServerLogin, ConnectError> {
    let mut out = Vec::new();
    let parameters: [(&[u8], &[u8]); 2] = [
        (b"user", user.server_user.as_bytes()),
        (b"database", user.database.as_bytes()),
    ];
    let replication = user.replication.iter().flatten();
    let replication = replication.map(|(name, value)| (&**name, &**value));
    build::startup(&mut out, 0, parameters.into_iter().chain(replication));
    let mut login = Login {
        join: Some(ServerAuth::new(
            user.server_user.as_bytes().to_vec(),
            user.postgres().unwrap_or(Credential::Nothing),
            stream.end_point(),
            stream.is_encrypted() || stays_on_this_machine(&stream),
            secret(),
        )),
        server,
        user,
        reported: Parameters::new(),
        key: None,
        was_asked: false,
    };
    let mut bytes = Vec::new();
    loop {
        let sent = stream.send(worker, &out).await;
        sent.map_err(|error| ConnectError::unreachable(server, error))?;
        out.zeroize();
        while let Some((message, length)) = whole(&bytes, server)? {
            let is_ready = login.message(message, &mut out)?;
            bytes.drain(..length);
            if is_ready {
                return Ok(ServerLogin {
                    stream,
                    reported: login.reported,
                    key: login.key,
                    was_asked: login.was_asked,
                });
            }
        }
        if out.is_empty() {
            receive(worker, &mut stream, &mut bytes, server).await?;
        }
    }
}

/// Returns whether no other machine can read what is sent.
fn stays_on_this_machine(stream: &Stream) -> bool {
    let peer = stream.socket().peer();
    stream.is_local() || peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
}

fn whole<'a>(
    bytes: &'a [u8],
    server: &Server,
) -> Result<Option<(Message<'a>, usize)>, ConnectError> {
    match frame::frame(bytes, LOGIN_MESSAGE_LENGTH_MAX) {
        Parsed::Frame(frame, length) => match backend::message(frame) {
            Ok(message) => Ok(Some((message, length))),
            Err(fault) => Err(ConnectError::unreachable(server, fault)),
        },
        Parsed::Incomplete { .. } => Ok(None),
        Parsed::Invalid(fault) => Err(ConnectError::unreachable(server, fault)),
    }
}

async fn receive(
    worker: &Rc<Worker>,
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    server: &Server,
) -> Result<(), ConnectError> {
    let received: io::Result<bool> = stream.receive(worker, bytes).await;
    match received {
        Ok(true) => Ok(()),
        Ok(false) => Err(ConnectError::unreachable(
            server,
            "closed the connection during login",
        )),
        Err(error) => Err(ConnectError::unreachable(server, error)),
    }
}

/// Login to a server in progress.
struct Login<'a> {
    /// State of the authentication; `None` once it has succeeded.
    join: Option<ServerAuth>,
    server: &'a Server,
    user: &'a PoolUser,
    reported: Parameters,
    key: Option<(u32, Box<[u8]>)>,
    was_asked: bool,
}

impl Login<'_> {
    /// Processes a message. Returns whether the server is ready for queries.
    fn message(&mut self, message: Message<'_>, out: &mut Vec<u8>) -> Result<bool, ConnectError> {
        match message {
            Message::Authentication(request) => self.authenticate(request, out)?,
            Message::Error(report) => {
                let text = String::from_utf8_lossy(report.text());
                return Err(refused(self.server, self.user, report.sqlstate().0, &text));
            }
            Message::ParameterStatus { name, value } => {
                self.reported.push((name.into(), value.into()));
            }
            Message::BackendKeyData { process, secret } => {
                self.key = Some((process, secret.into()));
            }
            Message::ReadyForQuery(_) if self.join.is_none() => return Ok(true),
            Message::Notice(_) => {}
            _ => {
                let why = "sent an unexpected message during login";
                return Err(ConnectError::unreachable(self.server, why));
            }
        }
        Ok(false)
    }

    fn authenticate(
        &mut self,
        request: Authentication<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnectError> {
        let Some(join) = self.join.take() else {
            let why = "requested authentication twice";
            return Err(ConnectError::unreachable(self.server, why));
        };
        match join.message(request, out) {
            ServerAuthStep::More(join) => self.join = Some(*join),
            ServerAuthStep::Done(result) => self.was_asked = result.was_asked,
            ServerAuthStep::Refused(refusal) => {
                let text = refusal.to_string();
                return Err(refused(self.server, self.user, *b"28000", &text));
            }
        }
        Ok(())
    }
}

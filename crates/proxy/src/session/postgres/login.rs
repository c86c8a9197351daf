//! Handles logins, from a client's first byte to its first ReadyForQuery. No input of an
//! unauthenticated client is forwarded to a server.

mod by_server;
mod credential;
mod greeting;
mod replication;
mod verifiers;

pub(crate) use self::verifiers::Verifiers;

use std::sync::Arc;

use evenkeel_engine::socket::Socket;
use evenkeel_engine::stream::Stream;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::frame::Frame;
use evenkeel_wire::postgres::login::{Authenticated, ClientAuth, ClientAuthStep, Method};
use evenkeel_wire::postgres::startup::{First, MINOR_MAX, Replication, Startup, first};
use evenkeel_wire::postgres::{Parsed, ProtocolError, build, frame};
use zeroize::Zeroizing;

use self::credential::LoginGrant;
use super::error_reply::ErrorReply;
use super::server::ServerConnection;
use super::shared::PostgresService;
use super::{Session, cancel};
use crate::error_catalog;
use crate::record::TerminationReason;
use crate::service::ServiceSnapshot;
use crate::session::Arrival;
use crate::session::blocking;
use crate::session::handle::ApplicationName;
use crate::session::login_context::{LoginClient, LoginContext};
use crate::session::login_error;
use crate::upstream::pool_registry::Parameters;
use crate::worker::Worker;

/// Maximum length of a message before authentication.
const MESSAGE_LENGTH_MAX: u32 = frame::PRE_AUTH_LENGTH_MAX;

/// Maximum number of encryption requests before the startup packet.
const REQUESTS_MAX: usize = 4;

/// Handler for the login of one client.
pub(super) struct LoginHandler<'a> {
    pub(super) context: LoginContext<'a, ServerConnection>,
    pub(super) protocol: Arc<PostgresService>,
    pub(super) slot: usize,
}

type LoginError = login_error::LoginError<SqlState>;
/// Contents of the client's first packets.
pub(super) struct LoginRequest {
    pub(super) minor: u16,
    pub(super) user: String,
    /// Database name; empty for physical replication, which covers all databases.
    pub(super) database: String,
    pub(super) replication: Replication,
    /// Parameters of the startup packet.
    pub(super) parameters: Parameters,
    /// Protocol negotiation to be sent before anything else.
    pub(super) negotiation: Vec<u8>,
}

impl LoginRequest {
    /// Returns the name of the client's program.
    pub(super) fn application(&self) -> ApplicationName {
        let mut parameters = self.parameters.iter();
        let name = parameters.find(|(name, _)| **name == *b"application_name");
        name.map_or_else(ApplicationName::default, |(_, value)| {
            ApplicationName::new(value)
        })
    }
}

impl LoginClient for Stream {
    type Code = SqlState;

    async fn send_rejection(&mut self, worker: &Worker, error_reply: &ErrorReply) {
        let mut out = Vec::new();
        error_reply.write_fatal(&mut out);
        self.send_final(worker, &out).await;
    }
}

impl<'a> LoginHandler<'a> {
    /// Returns the handler for a client, and the client's socket.
    pub(super) async fn of(arrival: Arrival<'a>) -> Result<(Self, Socket), TerminationReason> {
        let slot = arrival.slot;
        let (context, socket) = LoginContext::of(arrival).await?;
        let protocol = context.service.state_of::<PostgresService>();
        let handler = Self {
            protocol: protocol.ok_or(TerminationReason::NoServer)?,
            context,
            slot,
        };
        Ok((handler, socket))
    }

    /// Logs a client in.
    pub(super) async fn admit(self, stream: Stream) -> Result<Session<'a>, TerminationReason> {
        let login = async |stream: &mut Option<Stream>, view: &Arc<ServiceSnapshot>| {
            self.handle_login(stream, view).await
        };
        self.context.admit(stream, login).await
    }

    async fn handle_login(
        &self,
        slot: &mut Option<Stream>,
        view: &Arc<ServiceSnapshot>,
    ) -> Result<Session<'a>, LoginError> {
        let mut bytes = Vec::new();
        let request = {
            let stream = slot.as_mut().ok_or(LoginError::Disconnected)?;
            self.first_packets(stream, view, &mut bytes).await?
        };
        let stream = slot.as_mut().ok_or(LoginError::Disconnected)?;
        let proof = self.prove(stream, view, &request, &mut bytes).await?;
        let greeted = match request.replication {
            Replication::No => self.greet(stream, &request, proof).await?,
            _ => self.greet_replication(stream, &request, proof).await?,
        };
        let stream = slot.take().ok_or(LoginError::Disconnected)?;
        let mut session = self.enter(stream, greeted);
        session.begin_with(&bytes);
        Ok(session)
    }

    /// Receives packets up to the startup packet.
    async fn first_packets(
        &self,
        stream: &mut Stream,
        view: &ServiceSnapshot,
        bytes: &mut Vec<u8>,
    ) -> Result<LoginRequest, LoginError> {
        for _ in 0..REQUESTS_MAX {
            let (length, answer) = loop {
                match first(bytes) {
                    Parsed::Frame(First::Startup(startup), length) => {
                        let request = self.request(stream, view, &startup)?;
                        bytes.drain(..length);
                        return Ok(request);
                    }
                    Parsed::Frame(First::Cancel(key), _) => {
                        cancel::request(self.context.worker, self.context.permit.service(), key)
                            .await;
                        return Err(LoginError::Disconnected);
                    }
                    Parsed::Frame(First::DirectTls, _) => break (0, Answer::DirectTls),
                    Parsed::Frame(First::SslRequest, length) => break (length, Answer::Tls),
                    Parsed::Frame(First::GssEncRequest, length) => break (length, Answer::No),
                    Parsed::Incomplete { .. } => self.receive(stream, bytes).await?,
                    Parsed::Invalid(fault) => {
                        return Err(unusable(fault).into());
                    }
                }
            };
            bytes.drain(..length);
            self.answer(stream, view, bytes, answer).await?;
        }
        Err(ErrorReply::protocol("too many encryption requests").into())
    }

    /// Answers a request for encryption.
    async fn answer(
        &self,
        stream: &mut Stream,
        view: &ServiceSnapshot,
        bytes: &mut Vec<u8>,
        answer: Answer,
    ) -> Result<(), LoginError> {
        let acceptor = view.database().and_then(|database| database.tls.as_ref());
        let acceptor = acceptor.filter(|_| !stream.is_encrypted());
        match (answer, acceptor) {
            (Answer::No, _) | (Answer::Tls, None) => {
                if !bytes.is_empty() {
                    let what = "received unencrypted data after SSL request";
                    return Err(ErrorReply::protocol(what).into());
                }
                Ok(stream.send(self.context.worker, b"N").await?)
            }
            (Answer::DirectTls, None) => Err(LoginError::Disconnected),
            (Answer::Tls, Some(acceptor)) => {
                let channel = acceptor.accept(bytes).map_err(ErrorReply::protocol)?;
                stream.send(self.context.worker, b"S").await?;
                self.encrypt(stream, channel, bytes).await
            }
            (Answer::DirectTls, Some(acceptor)) => {
                let channel = acceptor
                    .accept_direct()
                    .map_err(|_| LoginError::Disconnected)?;
                self.encrypt(stream, channel, bytes).await
            }
        }
    }

    async fn encrypt(
        &self,
        stream: &mut Stream,
        channel: evenkeel_tls::Channel,
        bytes: &mut Vec<u8>,
    ) -> Result<(), LoginError> {
        let cipher = std::mem::take(bytes);
        stream.encrypt(channel);
        stream
            .shake_hands(self.context.worker, &cipher, bytes)
            .await
            .map_err(|_| LoginError::Disconnected)
    }

    fn request(
        &self,
        stream: &Stream,
        view: &ServiceSnapshot,
        startup: &Startup<'_>,
    ) -> Result<LoginRequest, LoginError> {
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec())
                .map_err(|_| ErrorReply::new(&error_catalog::NAME_NOT_UTF8))
        };
        let user = text(startup.user().unwrap_or_default())?;
        let replication = startup.replication();
        let database = match replication {
            Replication::Physical => String::new(),
            _ => text(startup.database())?,
        };
        let snapshot = view.database();
        let tls_required = snapshot
            .and_then(|snapshot| snapshot.tls.as_ref())
            .is_some_and(|tls| tls.is_required());
        if tls_required && !self.is_private(stream) {
            return Err(ErrorReply::new(&error_catalog::TLS_REQUIRED).into());
        }
        let mut negotiation = Vec::new();
        let minor = build::negotiate_protocol_version(&mut negotiation, startup, MINOR_MAX);
        let parameters = startup.parameters();
        Ok(LoginRequest {
            minor,
            user,
            database,
            replication,
            parameters: parameters
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            negotiation,
        })
    }

    /// Returns whether the connection is protected from eavesdropping: a Unix socket is as good as
    /// TLS.
    pub(super) fn is_private(&self, stream: &Stream) -> bool {
        stream.is_encrypted() || self.context.peer.is_none()
    }

    async fn receive(&self, stream: &mut Stream, bytes: &mut Vec<u8>) -> Result<(), LoginError> {
        match stream.receive(self.context.worker, bytes).await? {
            true => Ok(()),
            false => Err(LoginError::Disconnected),
        }
    }

    /// Authenticates the client.
    async fn prove(
        &self,
        stream: &mut Stream,
        view: &ServiceSnapshot,
        request: &LoginRequest,
        bytes: &mut Vec<u8>,
    ) -> Result<LoginGrant, LoginError> {
        let known = self.look_up(stream, view, request).await?;
        let (method, mut proof) = match known {
            credential::AuthDecision::Certificate(proof) => return Ok(proof),
            credential::AuthDecision::Challenge(method, proof) => (method, proof),
            credential::AuthDecision::ByServer(proof) => (Method::Collected, proof),
        };
        let mut out = request.negotiation.clone();
        let mut accept = ClientAuth::begin(request.user.clone().into_bytes(), method, &mut out);
        loop {
            stream.send(self.context.worker, &out).await?;
            out.clear();
            let (accepted, length) = loop {
                match frame::frame(bytes, MESSAGE_LENGTH_MAX) {
                    Parsed::Frame(frame, length) => {
                        break (
                            self.handle_message(request, accept, frame, &mut out)
                                .await?,
                            length,
                        );
                    }
                    Parsed::Incomplete { .. } => self.receive(stream, bytes).await?,
                    Parsed::Invalid(fault) => return Err(ErrorReply::protocol(fault).into()),
                }
            };
            bytes.drain(..length);
            match accepted {
                ClientAuthStep::More(next) => accept = next,
                ClientAuthStep::Done(authenticated) => {
                    proof.own.last_word = out;
                    return self.proved(proof, &authenticated);
                }
                ClientAuthStep::Collected(password) => {
                    return self.prove_at_server(request, proof, password).await;
                }
                ClientAuthStep::Refused(refusal) => {
                    let user = &request.user;
                    tracing::info!(user, peer = ?self.context.peer, %refusal, "login refused");
                    return Err(credential::refused(&request.user, refusal).into());
                }
            }
        }
    }

    /// Processes the client's next message. Costly checks run on another thread and are
    /// rate-limited.
    async fn handle_message(
        &self,
        request: &LoginRequest,
        accept: ClientAuth,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ClientAuthStep, LoginError> {
        if !accept.is_costly() {
            return Ok(accept.message(frame, out));
        }
        let rate_limit = &self.protocol.rate_limit;
        rate_limit.wait(self.context.address(), &request.user).await;
        let (tag, body) = (frame.tag, Zeroizing::new(frame.body.to_vec()));
        // A password is the last message, so no reply follows here.
        let work = move || accept.message(Frame { tag, body: &body }, &mut Vec::new());
        let accepted = blocking::run_blocking(work).await;
        if !matches!(accepted, Some(ClientAuthStep::Refused(_))) {
            rate_limit.refund(self.context.address(), &request.user);
        }
        accepted.ok_or_else(|| ErrorReply::new(&error_catalog::TOO_MANY_PASSWORD_CHECKS).into())
    }

    fn proved(&self, proof: LoginGrant, client: &Authenticated) -> Result<LoginGrant, LoginError> {
        match proof.error_reply {
            Some(error_reply) => Err(error_reply.into()),
            None => Ok(LoginGrant {
                credential: match proof.credential {
                    Some(known) => Some(known),
                    None => Some(client.credential().clone()),
                },
                ..proof
            }),
        }
    }
}

/// Returns the error for an unusable first packet, with PostgreSQL's SQLSTATE.
fn unusable(fault: ProtocolError) -> ErrorReply {
    let sqlstate = match fault {
        ProtocolError::Version(_) => b"0A000",
        ProtocolError::NoUser => b"28000",
        _ => b"08P01",
    };
    ErrorReply::with(&error_catalog::STARTUP_REJECTED, &[&fault]).coded(SqlState(*sqlstate))
}

/// Answer to a request for encryption.
enum Answer {
    No,
    Tls,
    DirectTls,
}

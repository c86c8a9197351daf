//! The door: from our greeting to the OK of a login. Nothing of a client that has not proved who it
//! is reaches a server.

mod check;
mod client_packets;
mod credential;
mod error_replies;
mod establish;
mod locked_memory;
mod password_cache;
mod server_check;

pub(super) use self::establish::wanted;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frontend::{self, ChangeUser, Request};
use evenkeel_wire::mysql::login::{Channel, ClaimedIdentity};
use evenkeel_wire::mysql::password::Nonce;
use evenkeel_wire::mysql::startup::{self, First, Response};

use self::client_packets::ClientPackets;
use super::Session;
use super::error_reply::ErrorReply;
use super::server::ServerConnection;
use super::server_greetings::{CommonGreeting, ServerGreetings, Version};
use super::server_login::Baseline;
use super::shared::PostgresService;
use super::user_state::{Account, BaselineCache};
use crate::engine::live_session::LiveSession;
use crate::engine::worker::Worker;
use crate::random::secret;
use crate::record::TerminationReason;
use crate::service::database::DatabaseService;
use crate::service::{ClientPermit, ServiceSnapshot};
use crate::session::handle::SessionHandle;
use crate::session::password_rate_limit::PasswordRateLimit;
use crate::stream::Stream;
use crate::upstream::worker_pool::WorkerPool;

/// Right behind the start a client waits for what routines and triggers do; where servers do not
/// tell, not for ever.
const FIRST_READING_LIMIT: Duration = Duration::from_secs(2);

/// What the workers of a service share for logins.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    pub(super) faces: ServerGreetings,
    pub(super) greetings: BaselineCache,
    pub(super) vault: password_cache::PasswordCache,
    pace: PasswordRateLimit,
    /// The servers look up the names of who connects.
    by_name: AtomicBool,
    mock_secret: MockSecret,
}

/// What unknown users are made of: the same ones as long as the service lives.
#[derive(Debug)]
struct MockSecret([u8; 32]);

impl Default for MockSecret {
    fn default() -> Self {
        MockSecret(secret())
    }
}

/// A client that wants in.
#[derive(Clone)]
pub(super) struct LoginHandler<'a> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) seat: &'a ClientPermit,
    pub(super) live: &'a LiveSession,
    pub(super) service: Arc<DatabaseService>,
    pub(super) shared: Arc<PostgresService>,
    pub(super) lending: Rc<WorkerPool<ServerConnection>>,
    pub(super) peer: Option<SocketAddr>,
    /// The client's connection id is the lower half.
    pub(super) id: u64,
}

/// What a client and we agreed on at the beginning; it stays as long as the connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientHandshake {
    /// CONNECTION_ID() is its lower half.
    pub(super) id: u64,
    pub(super) agreed: Capabilities,
    /// Of the greeting.
    pub(super) nonce: Nonce,
}

/// COM_CHANGE_USER: a new login on the same connection.
pub(super) struct UserChange {
    pub(super) client: Stream,
    pub(super) entrance: ClientHandshake,
    /// The packet's payload.
    pub(super) payload: Vec<u8>,
    /// What the client has sent after it.
    pub(super) ahead: Vec<u8>,
}

/// What a session is made of.
pub(super) struct SessionParts<'a> {
    pub(super) worker: &'a Rc<Worker>,
    pub(super) seat: &'a ClientPermit,
    pub(super) live: &'a LiveSession,
    pub(super) service: Arc<DatabaseService>,
    pub(super) shared: Arc<PostgresService>,
    pub(super) lending: Rc<WorkerPool<ServerConnection>>,
    pub(super) account: Rc<Account>,
    pub(super) card: Rc<SessionHandle>,
    pub(super) client: Stream,
    /// What the client has sent after its login.
    pub(super) ahead: Vec<u8>,
    pub(super) entrance: ClientHandshake,
    pub(super) begin: InitialState,
}

/// What a session begins with.
pub(super) struct InitialState {
    /// A server has been asked: it exists, and the user may use it.
    pub(super) schema: Option<Box<[u8]>>,
    /// The number of a collation, as the client named it; 0: none.
    pub(super) collation: u16,
    /// What a server connection has right behind its login.
    pub(super) fresh: Arc<Baseline>,
    /// Of the server that told it.
    pub(super) version: Arc<Version>,
}

/// Why a client does not come in.
pub(super) enum LoginError {
    /// It left, or its connection broke.
    Disconnected,
    /// It is told this.
    Rejected(ErrorReply),
}

impl From<ErrorReply> for LoginError {
    fn from(complaint: ErrorReply) -> Self {
        LoginError::Rejected(complaint)
    }
}

impl From<std::io::Error> for LoginError {
    fn from(_: std::io::Error) -> Self {
        LoginError::Disconnected
    }
}

/// What the client has said so far.
struct LoginRequest {
    entrance: ClientHandshake,
    user: String,
    claim: ClaimedIdentity,
    /// The plugin of the claim.
    plugin: Option<Vec<u8>>,
    /// It says that it has a password.
    has_proof: bool,
    /// What its proof is made with.
    nonce: Nonce,
    schema: Option<Box<[u8]>>,
    collation: u16,
    /// The plugin that users have as a rule.
    usual: &'static [u8],
    /// The servers tell clients by their passwords that certificates are theirs.
    wants_certificate_proof: bool,
}

/// How a login begins.
enum LoginOrigin {
    /// With our greeting.
    Greeting,
    /// On a connection that is logged in.
    Change(ClientHandshake, Vec<u8>),
}

impl<'a> LoginHandler<'a> {
    /// Lets a client in, within the limit of a login.
    pub(super) async fn admit(self, client: Stream) -> Result<Session<'a>, TerminationReason> {
        let talk = ClientPackets::new(client, 0, Vec::new());
        let session = self.hear(talk, LoginOrigin::Greeting).await?;
        session.count_received(session.pending_input.len());
        Ok(session)
    }

    fn limit(&self) -> Duration {
        let view = self.seat.service().view_owned();
        let limit = view.database.as_ref().map(|own| own.times.login);
        limit.unwrap_or_default()
    }

    /// COM_CHANGE_USER. A failure ends the connection, as it does at a server.
    pub(super) async fn change_user(
        self,
        changing: UserChange,
    ) -> Result<Session<'a>, TerminationReason> {
        let beginning = LoginOrigin::Change(changing.entrance, changing.payload);
        self.hear(
            ClientPackets::new(changing.client, 1, changing.ahead),
            beginning,
        )
        .await
    }

    async fn hear(
        &self,
        talk: ClientPackets,
        beginning: LoginOrigin,
    ) -> Result<Session<'a>, TerminationReason> {
        let doorstep = self.service.doorstep();
        let entering = doorstep.enter_within(self.limit(), self.address());
        let Some((_place, left)) = entering.await else {
            return Err(self
                .reject(Some(talk), &error_replies::full_doorstep())
                .await);
        };
        self.within_limit(left, talk, beginning).await
    }

    async fn within_limit(
        &self,
        limit: Duration,
        talk: ClientPackets,
        beginning: LoginOrigin,
    ) -> Result<Session<'a>, TerminationReason> {
        let view = self.seat.service().view_owned();
        let mut place = Some(talk);
        let knocking = self.handle_login(&mut place, &view, beginning);
        match compio::time::timeout(limit, knocking).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(LoginError::Disconnected)) => Err(TerminationReason::ClientClosed),
            Ok(Err(LoginError::Rejected(complaint))) => Err(self.reject(place, &complaint).await),
            Err(_) => Err(self
                .reject(place, &error_replies::too_slow(self.limit()))
                .await),
        }
    }

    async fn reject(
        &self,
        talk: Option<ClientPackets>,
        complaint: &ErrorReply,
    ) -> TerminationReason {
        let figures = &self.service.figures()[self.worker.index];
        figures.refused_logins.add(1);
        if let Some(mut talk) = talk {
            talk.say_last(self.worker, complaint).await;
        }
        TerminationReason::Rejected(complaint.message.clone())
    }

    async fn handle_login(
        &self,
        place: &mut Option<ClientPackets>,
        view: &Arc<ServiceSnapshot>,
        beginning: LoginOrigin,
    ) -> Result<Session<'a>, LoginError> {
        let talk = place.as_mut().ok_or(LoginError::Disconnected)?;
        let faces = &self.shared.logins.faces;
        let least = faces.least(self.worker, self.seat.service(), &self.shared);
        let least = least.await;
        let wish = match beginning {
            LoginOrigin::Greeting => self.begin(talk, view, &least).await?,
            LoginOrigin::Change(entrance, payload) => changed(entrance, &payload, &least)?,
        };
        self.check_channel(talk, view)?;
        let mut proof = self.prove(talk, view, &wish).await?;
        let info = std::mem::take(&mut proof.of_certificate);
        let known = self.service.knowledge.routines_expected();
        let _ = compio::time::timeout(FIRST_READING_LIMIT, known).await;
        let (account, begin) = self.prepare(view, &wish, proof).await?;
        self.say_ok(talk, &begin, (wish.entrance.agreed, &info))
            .await?;
        let talk = place.take().ok_or(LoginError::Disconnected)?;
        Ok(self.enter(talk, wish.entrance, account, begin))
    }

    /// Greets, and hears what the client wants.
    async fn begin(
        &self,
        talk: &mut ClientPackets,
        view: &ServiceSnapshot,
        least: &CommonGreeting,
    ) -> Result<LoginRequest, LoginError> {
        let acceptor = view.database.as_ref().and_then(|own| own.tls.as_ref());
        let offered = least.offered(acceptor.is_some());
        let nonce = Nonce::of_random(secret());
        let mut out = Vec::new();
        least.write((offered, self.id as u32), &nonce, &mut out);
        talk.say(self.worker, &out).await?;
        let mut payload = talk.packet(self.worker).await?;
        if let Ok(First::SslRequest(_)) = startup::first(&payload) {
            let acceptor = acceptor.ok_or_else(error_replies::bad_handshake)?;
            talk.encrypt(self.worker, acceptor).await?;
            payload = talk.packet(self.worker).await?;
        }
        let response = match startup::first(&payload) {
            Ok(First::Response(response)) => response,
            Ok(First::SslRequest(_)) => return Err(error_replies::bad_handshake().into()),
            Err(fault) => return Err(error_replies::of_fault(fault).into()),
        };
        let agreed = offered.both(response.capabilities);
        let id = self.id;
        let entrance = ClientHandshake { id, agreed, nonce };
        Ok(wish_of(entrance, &response, least))
    }

    /// A client that wants to be somebody else may have come before TLS was required.
    fn check_channel(
        &self,
        talk: &ClientPackets,
        view: &ServiceSnapshot,
    ) -> Result<(), LoginError> {
        let acceptor = view.database.as_ref().and_then(|own| own.tls.as_ref());
        let must_encrypt = acceptor.is_some_and(|acceptor| acceptor.is_required());
        match must_encrypt && self.channel(talk) == Channel::Plain {
            true => Err(error_replies::tls_required().into()),
            false => Ok(()),
        }
    }

    /// Whether others can listen: a Unix socket is as good as TLS.
    fn channel(&self, talk: &ClientPackets) -> Channel {
        match talk.is_encrypted() || self.peer.is_none() {
            true => Channel::Secure,
            false => Channel::Plain,
        }
    }

    fn address(&self) -> Option<IpAddr> {
        self.peer.map(|peer| peer.ip())
    }
}

/// A client that begins with another plugin than our greeting may have left the greeting's random
/// bytes aside, and have proved nothing yet: it is asked.
fn wish_of(
    entrance: ClientHandshake,
    response: &Response<'_>,
    least: &CommonGreeting,
) -> LoginRequest {
    let is_ready = !response.proof.is_empty() || response.plugin == Some(least.plugin);
    let asked = Response {
        plugin: response
            .plugin
            .map(|plugin| if is_ready { plugin } else { b"" }),
        ..*response
    };
    LoginRequest {
        entrance,
        user: String::from_utf8_lossy(response.user).into_owned(),
        claim: ClaimedIdentity::of_response(&asked),
        plugin: asked.plugin.map(<[u8]>::to_vec),
        has_proof: !response.proof.is_empty(),
        nonce: entrance.nonce,
        schema: response.schema.map(Box::from),
        collation: u16::from(response.collation),
        usual: least.plugin,
        wants_certificate_proof: least.proves_certificates(),
    }
}

/// The proof is made with the random bytes of the greeting, as at the servers: libraries made of
/// MariaDB's use no others for it, not even if they are asked anew. Who sends none is asked.
fn changed(
    entrance: ClientHandshake,
    payload: &[u8],
    least: &CommonGreeting,
) -> Result<LoginRequest, LoginError> {
    let request = match frontend::request(payload, entrance.agreed) {
        Ok(Request::ChangeUser(request)) => request,
        Ok(_) => return Err(error_replies::bad_handshake().into()),
        Err(fault) => return Err(error_replies::of_fault(fault).into()),
    };
    let has_proof = !request.proof.is_empty();
    let asked = ChangeUser {
        plugin: request
            .plugin
            .map(|plugin| if has_proof { plugin } else { b"" }),
        ..request
    };
    Ok(LoginRequest {
        entrance,
        user: String::from_utf8_lossy(request.user).into_owned(),
        claim: ClaimedIdentity::of_change_user(&asked),
        plugin: asked.plugin.map(<[u8]>::to_vec),
        has_proof,
        nonce: entrance.nonce,
        schema: (!request.schema.is_empty()).then(|| request.schema.into()),
        collation: request.collation.unwrap_or_default(),
        usual: least.plugin,
        wants_certificate_proof: least.proves_certificates(),
    })
}

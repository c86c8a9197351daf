//! Handles client logins, from the greeting to the OK. No data of an unauthenticated client is sent
//! to a server.

mod by_server;
mod check;
mod client_packets;
mod credential;
mod error_replies;
mod establish;
mod password_cache;
mod server_check;

pub(super) use self::establish::wanted;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use evenkeel_engine::secret;
use evenkeel_engine::socket::Socket;
use evenkeel_engine::stream::Stream;
use evenkeel_engine::timers;
use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frontend::{self, ChangeUser, Request};
use evenkeel_wire::mysql::login::{Channel, ClaimedIdentity};
use evenkeel_wire::mysql::password::Nonce;
use evenkeel_wire::mysql::startup::{self, Attributes, First, Response};

use self::client_packets::ClientPackets;
use super::error_reply::ErrorReply;
use super::server::ServerConnection;
use super::server_greetings::{CommonGreeting, ServerGreetings, Version};
use super::server_login::Baseline;
use super::shared::MysqlService;
use super::user_state::{Account, BaselineCache};
use super::{Session, id};
use crate::error_catalog;
use crate::numbers::{Number, Place};
use crate::record::TerminationReason;
use crate::service::ServiceSnapshot;
use crate::session::Arrival;
use crate::session::cancel::generation;
use crate::session::core::Core;
use crate::session::handle::ApplicationName;
use crate::session::login_context::LoginContext;
use crate::session::login_error;
use crate::session::password_rate_limit::PasswordRateLimit;
use crate::upstream::connect_error::ErrorCode;

/// Time limit of a login's wait, right after startup, for the analysis of routines and triggers.
/// Servers that do not report them must not block logins.
const FIRST_READING_LIMIT: Duration = Duration::from_secs(2);

/// Login state shared by the workers of a service.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    pub(super) greetings: ServerGreetings,
    pub(super) baselines: BaselineCache,
    pub(super) vault: password_cache::PasswordCache,
    rate_limit: PasswordRateLimit,
    /// True if the servers resolve client addresses to names.
    by_name: AtomicBool,
    mock_secret: MockSecret,
}

/// Secret for the mock credentials of unknown users, which stay the same while the service lives.
#[derive(Debug)]
struct MockSecret([u8; 32]);

impl Default for MockSecret {
    fn default() -> Self {
        MockSecret(secret())
    }
}

/// Handles the login of one client.
#[derive(Clone)]
pub(super) struct LoginHandler<'a> {
    pub(super) context: LoginContext<'a, ServerConnection>,
    pub(super) shared: Arc<MysqlService>,
    /// Value whose lower half is the client's connection id.
    pub(super) id: u64,
}

/// Parameters negotiated with a client at its handshake; constant for the whole connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientHandshake {
    /// Value whose lower half is CONNECTION_ID().
    pub(super) id: u64,
    pub(super) agreed: Capabilities,
    /// Nonce of the greeting.
    pub(super) nonce: Nonce,
}

/// Data for COM_CHANGE_USER, a new login on the same connection.
pub(super) struct UserChange {
    pub(super) client: Stream,
    pub(super) handshake: ClientHandshake,
    /// Payload of the packet.
    pub(super) payload: Vec<u8>,
    /// Bytes that the client has sent after the packet.
    pub(super) ahead: Vec<u8>,
}

/// Components of a new session.
pub(super) struct SessionParts<'a> {
    pub(super) core: Core<'a, ServerConnection>,
    pub(super) shared: Arc<MysqlService>,
    pub(super) account: Rc<Account>,
    /// Bytes that the client has sent after its login.
    pub(super) ahead: Vec<u8>,
    pub(super) handshake: ClientHandshake,
    pub(super) begin: InitialState,
}

/// Initial state of a session.
pub(super) struct InitialState {
    /// Initial schema; a server has confirmed that it exists and that the user may use it.
    pub(super) schema: Option<Box<[u8]>>,
    /// Collation id as sent by the client; 0 for none.
    pub(super) collation: u16,
    /// State of a server connection right after its login.
    pub(super) baseline: Arc<Baseline>,
    /// Version of the server that reported the state.
    pub(super) version: Arc<Version>,
}

type LoginError = login_error::LoginError<ErrorCode>;
/// Login data that the client has sent so far.
struct LoginRequest {
    handshake: ClientHandshake,
    user: String,
    claim: ClaimedIdentity,
    /// Authentication plugin of the claim.
    plugin: Option<Vec<u8>>,
    /// True if the client claims to have a password.
    has_proof: bool,
    /// Nonce on which the client's proof is based.
    nonce: Nonce,
    schema: Option<Box<[u8]>>,
    collation: u16,
    application: ApplicationName,
    /// Default authentication plugin of users.
    usual: &'static [u8],
    /// True if the servers prove their certificates to clients by the password.
    wants_certificate_proof: bool,
}

/// Start of a login.
enum LoginOrigin {
    /// A new connection, which receives the greeting.
    Greeting,
    /// COM_CHANGE_USER on a logged-in connection.
    Change(ClientHandshake, Vec<u8>),
}

impl<'a> LoginHandler<'a> {
    /// Returns the handler for a client, the client's number, and its socket. The number is
    /// exclusive to the client until it is dropped.
    pub(super) async fn of(
        arrival: Arrival<'a>,
    ) -> Result<(Self, Number, Socket), TerminationReason> {
        let (worker, slot) = (arrival.worker, arrival.slot);
        let (context, socket) = LoginContext::of(arrival).await?;
        let shared = context.service.state_of::<MysqlService>();
        let shared = shared.ok_or(TerminationReason::NoServer)?;
        let numbers = &worker.shared.connection_numbers;
        let number = numbers.assign(Place::new(worker.index(), slot));
        let number = number.ok_or(TerminationReason::NoServer)?;
        let handler = Self {
            context,
            shared,
            id: id::of(&number, generation(worker)),
        };
        Ok((handler, number, socket))
    }

    /// Logs a client in, within the time limit for logins.
    pub(super) async fn admit(self, client: Stream) -> Result<Session<'a>, TerminationReason> {
        let packets = ClientPackets::new(client, 0, Vec::new());
        let session = self.log_in(packets, LoginOrigin::Greeting).await?;
        session
            .core
            .acquirer
            .count_received(session.pending_input.len());
        Ok(session)
    }

    /// Handles COM_CHANGE_USER. A failure ends the connection, as on a server.
    pub(super) async fn change_user(
        self,
        changing: UserChange,
    ) -> Result<Session<'a>, TerminationReason> {
        let beginning = LoginOrigin::Change(changing.handshake, changing.payload);
        self.log_in(
            ClientPackets::new(changing.client, 1, changing.ahead),
            beginning,
        )
        .await
    }

    async fn log_in(
        &self,
        packets: ClientPackets,
        beginning: LoginOrigin,
    ) -> Result<Session<'a>, TerminationReason> {
        let login = async |packets: &mut Option<ClientPackets>, view: &Arc<ServiceSnapshot>| {
            self.handle_login(packets, view, beginning).await
        };
        self.context.admit(packets, login).await
    }

    async fn handle_login(
        &self,
        slot: &mut Option<ClientPackets>,
        view: &Arc<ServiceSnapshot>,
        beginning: LoginOrigin,
    ) -> Result<Session<'a>, LoginError> {
        let packets = slot.as_mut().ok_or(LoginError::Disconnected)?;
        let greetings = &self.shared.logins.greetings;
        let least = greetings.least(
            self.context.worker,
            self.context.permit.service(),
            &self.shared,
        );
        let least = least.await;
        let request = match beginning {
            LoginOrigin::Greeting => self.begin(packets, view, &least).await?,
            LoginOrigin::Change(handshake, payload) => changed(handshake, &payload, &least)?,
        };
        self.check_channel(packets, view)?;
        let mut proof = self.prove(packets, view, &request).await?;
        let info = std::mem::take(&mut proof.own.of_certificate);
        let known = self.context.service.server_info.wait_for_routines();
        let _ = timers::timeout(FIRST_READING_LIMIT, known).await;
        let (account, begin) = self.prepare(view, &request, proof).await?;
        self.send_ok(packets, &begin, (request.handshake.agreed, &info))
            .await?;
        let packets = slot.take().ok_or(LoginError::Disconnected)?;
        let of_client = (request.handshake, request.application);
        Ok(self.enter(packets, of_client, account, begin))
    }

    /// Sends the greeting and receives the client's response.
    async fn begin(
        &self,
        packets: &mut ClientPackets,
        view: &ServiceSnapshot,
        least: &CommonGreeting,
    ) -> Result<LoginRequest, LoginError> {
        let acceptor = view.database().and_then(|database| database.tls.as_ref());
        let offered = least.offered(acceptor.is_some());
        let nonce = Nonce::of_random(secret());
        let mut out = Vec::new();
        least.write((offered, self.id as u32), &nonce, &mut out);
        packets.send(self.context.worker, &out).await?;
        let mut payload = packets.packet(self.context.worker).await?;
        if let Ok(First::SslRequest(_)) = startup::first(&payload) {
            let acceptor =
                acceptor.ok_or_else(|| ErrorReply::new(&error_catalog::BAD_HANDSHAKE))?;
            packets.encrypt(self.context.worker, acceptor).await?;
            payload = packets.packet(self.context.worker).await?;
        }
        let response = match startup::first(&payload) {
            Ok(First::Response(response)) => response,
            Ok(First::SslRequest(_)) => {
                return Err(ErrorReply::new(&error_catalog::BAD_HANDSHAKE).into());
            }
            Err(fault) => return Err(error_replies::of_fault(fault).into()),
        };
        let agreed = offered.both(response.capabilities);
        let id = self.id;
        let handshake = ClientHandshake { id, agreed, nonce };
        Ok(login_request(handshake, &response, least))
    }

    /// Rejects a plain connection if TLS is required; COM_CHANGE_USER may come on a connection
    /// older than that requirement.
    fn check_channel(
        &self,
        packets: &ClientPackets,
        view: &ServiceSnapshot,
    ) -> Result<(), LoginError> {
        let acceptor = view.database().and_then(|database| database.tls.as_ref());
        let must_encrypt = acceptor.is_some_and(|acceptor| acceptor.is_required());
        match must_encrypt && self.channel(packets) == Channel::Plain {
            true => Err(ErrorReply::new(&error_catalog::SECURE_TRANSPORT_REQUIRED).into()),
            false => Ok(()),
        }
    }

    /// Returns whether the channel is safe from eavesdropping; a Unix socket is as safe as TLS.
    fn channel(&self, packets: &ClientPackets) -> Channel {
        match packets.is_encrypted() || self.context.peer.is_none() {
            true => Channel::Secure,
            false => Channel::Plain,
        }
    }
}

/// Creates the request from a handshake response. A client that starts with another plugin than the
/// greeting's may not have used its nonce, so its response proves nothing yet and it is challenged.
fn login_request(
    handshake: ClientHandshake,
    response: &Response<'_>,
    least: &CommonGreeting,
) -> LoginRequest {
    let is_ready = !response.proof.is_empty() || response.plugin == Some(least.plugin);
    let pending = Response {
        plugin: response
            .plugin
            .map(|plugin| if is_ready { plugin } else { b"" }),
        ..*response
    };
    LoginRequest {
        handshake,
        user: String::from_utf8_lossy(response.user).into_owned(),
        claim: ClaimedIdentity::of_response(&pending),
        plugin: pending.plugin.map(<[u8]>::to_vec),
        has_proof: !response.proof.is_empty(),
        nonce: handshake.nonce,
        schema: response.schema.map(Box::from),
        collation: u16::from(response.collation),
        application: application(response.attributes),
        usual: least.plugin,
        wants_certificate_proof: least.proves_certificates(),
    }
}

/// Returns the name of the client's program.
fn application(attributes: Attributes<'_>) -> ApplicationName {
    let mut pairs = attributes.pairs();
    let name = pairs.find(|(name, _)| *name == b"program_name");
    name.map_or_else(ApplicationName::default, |(_, value)| {
        ApplicationName::new(value)
    })
}

/// Creates the request from COM_CHANGE_USER. The proof is based on the greeting's nonce, as on a
/// server: MariaDB's libraries use no other for it, even when challenged again. A client without a
/// proof is challenged.
fn changed(
    handshake: ClientHandshake,
    payload: &[u8],
    least: &CommonGreeting,
) -> Result<LoginRequest, LoginError> {
    let request = match frontend::request(payload, handshake.agreed) {
        Ok(Request::ChangeUser(request)) => request,
        Ok(_) => return Err(ErrorReply::new(&error_catalog::BAD_HANDSHAKE).into()),
        Err(fault) => return Err(error_replies::of_fault(fault).into()),
    };
    let has_proof = !request.proof.is_empty();
    let pending = ChangeUser {
        plugin: request
            .plugin
            .map(|plugin| if has_proof { plugin } else { b"" }),
        ..request
    };
    Ok(LoginRequest {
        handshake,
        user: String::from_utf8_lossy(request.user).into_owned(),
        claim: ClaimedIdentity::of_change_user(&pending),
        plugin: pending.plugin.map(<[u8]>::to_vec),
        has_proof,
        nonce: handshake.nonce,
        schema: (!request.schema.is_empty()).then(|| request.schema.into()),
        collation: request.collation.unwrap_or_default(),
        application: application(request.attributes),
        usual: least.plugin,
        wants_certificate_proof: least.proves_certificates(),
    })
}

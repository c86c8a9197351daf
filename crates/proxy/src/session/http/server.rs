//! Connections to HTTP servers, which requests of all clients use one after another.

mod transport;

pub(super) use transport::ServerTransport;

use std::future::{poll_fn, ready};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::stream::Stream;
use evenkeel_engine::{clock, timers};
use evenkeel_tls::{ALPN_HTTP1, ALPN_HTTP2, ChannelError, Connector, ServerEncryption};

use crate::service::Service;
use crate::service::http::{HttpService, ServerHttp2, now_s};
use crate::settings::ServiceSettings;
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::connect_error::{ConnectError, ConnectErrorKind};
use crate::upstream::pool_registry::{Credential, PoolHandle, PoolUser};
use crate::upstream::server_login::reach;
use crate::upstream::worker_pool::{ConnectionCore, PoolableConnection};
use crate::worker::Worker;

/// Connection to an HTTP server.
pub(crate) struct ServerConnection {
    pub(super) core: ConnectionCore,
    pub(super) usage: Usage,
    pub(super) protocol: ServerProtocol,
    /// Bytes that a server of HTTP/2 has sent together with its part of the TLS handshake.
    pub(super) early: Vec<u8>,
}

/// Protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerProtocol {
    Http1,
    /// A task shares the connection between exchanges.
    Http2,
}

/// Use of a connection so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Number of complete responses.
    pub(super) responses: u64,
    /// Time of the end of the last one, in milliseconds of the clock.
    pub(super) last_ms: u64,
}

impl Usage {
    /// Returns the time since the last response, in milliseconds.
    pub(super) fn idle_ms(self) -> u64 {
        clock::now_ms().saturating_sub(self.last_ms)
    }
}

impl PoolableConnection for ServerConnection {
    type Known = ();
    type Parked = (Usage, ServerProtocol, Vec<u8>);

    async fn open(
        worker: &Rc<Worker>,
        service: &Arc<Service>,
        pooled: &Arc<PoolHandle>,
    ) -> Result<Box<Self>, ConnectError> {
        let view = service.snapshot_owned();
        let server = &pooled.server;
        let mut stream = reach(worker, service, server).await?;
        let http = view.http().ok_or_else(ConnectError::outdated)?;
        let encryption = http.server_encryption.get(&server.id);
        let encryption = encryption.ok_or_else(ConnectError::outdated)?;
        let http2 = http2_of(&pooled.pool_user);
        let early = encrypt(worker, &mut stream, (encryption, http2), &view.settings)
            .await
            .map_err(|(kind, why)| ConnectError::tls(server, kind, why))
            .inspect_err(|error| {
                if let Some(http) = service.http() {
                    http.server(server.id).log_tls_error(&service.name, error);
                }
            })?;
        server.counters.sessions.add(1);
        let protocol = match (stream.is_encrypted(), http2) {
            (true, _) if stream.alpn() == Some(ALPN_HTTP2) => ServerProtocol::Http2,
            (false, ServerHttp2::All) => ServerProtocol::Http2,
            (_, _) => ServerProtocol::Http1,
        };
        Ok(Box::new(Self {
            core: ConnectionCore::new::<Self>(stream, pooled),
            usage: Usage::default(),
            protocol,
            early,
        }))
    }

    fn core(&self) -> &ConnectionCore {
        &self.core
    }

    fn core_mut(&mut self) -> &mut ConnectionCore {
        &mut self.core
    }

    fn park(self: Box<Self>) -> (ConnectionCore, Self::Parked) {
        (self.core, (self.usage, self.protocol, self.early))
    }

    fn unpark(_: &Worker, core: ConnectionCore, parked: Self::Parked) -> Box<Self> {
        let (usage, protocol, early) = parked;
        Box::new(Self {
            core,
            usage,
            protocol,
            early,
        })
    }

    /// A server of HTTP/2 sends its settings before it is asked: the task that shares the
    /// connection notices the end.
    fn has_ended(&self) -> bool {
        self.protocol == ServerProtocol::Http1 && self.core.stream.has_arrived()
    }

    /// HTTP/1.1 has no cancel requests: closing the connection cancels its request.
    fn send_cancel(
        _: Rc<Worker>,
        _: Arc<Service>,
        _: Rc<CancelTarget>,
    ) -> Pin<Box<dyn Future<Output = bool>>> {
        Box::pin(ready(true))
    }

    /// Learns the server's idle limit. The end may have come up to half a second earlier.
    fn note_idle_end(&self, service: &Service) {
        if let (Some(http), 1..) = (service.http(), self.usage.responses) {
            let server = http.server(self.core.pool_handle.server.id);
            server.idle.closed(now_s(), self.usage.idle_ms());
        }
    }

    fn write_terminate(_: &mut Vec<u8>) {}
}

/// Encrypts a new connection if its server demands it. Returns what a server of HTTP/2 has sent
/// already. Fails with the class of the error and its text.
async fn encrypt(
    worker: &Worker,
    stream: &mut Stream,
    (encryption, http2): (&ServerEncryption, ServerHttp2),
    settings: &ServiceSettings,
) -> Result<Vec<u8>, (ConnectErrorKind, String)> {
    let connector = match encryption {
        ServerEncryption::Plaintext => return Ok(Vec::new()),
        ServerEncryption::Encrypted(connector) => connector,
        ServerEncryption::Broken(why) => {
            return Err((ConnectErrorKind::Tls, format!("cannot be set up: {why}")));
        }
    };
    let limit = settings.connect_timeout;
    match timers::timeout(limit, shake_hands(worker, stream, connector, http2)).await {
        Ok(Ok(early)) => Ok(early),
        Ok(Err(error)) => {
            let of_channel = error.get_ref().and_then(|cause| cause.downcast_ref());
            let kind = match of_channel.is_some_and(ChannelError::is_untrusted_server) {
                true => ConnectErrorKind::Untrusted,
                false => ConnectErrorKind::Tls,
            };
            Err((kind, error.to_string()))
        }
        Err(_) => {
            let limit_ms = limit.as_millis();
            let why = format!("no handshake within {limit_ms} ms (connect_timeout_ms)");
            Err((ConnectErrorKind::Tls, why))
        }
    }
}

async fn shake_hands(
    worker: &Worker,
    stream: &mut Stream,
    connector: &Connector,
    http2: ServerHttp2,
) -> io::Result<Vec<u8>> {
    let channel = match http2 {
        ServerHttp2::Off => connector.connect(),
        ServerHttp2::Tls | ServerHttp2::All => {
            connector.connect_offering(vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()])
        }
    };
    stream.encrypt(channel.map_err(io::Error::other)?);
    let mut early = Vec::new();
    stream.shake_hands(worker, &[], &mut early).await?;
    // The last message of the handshake may still be under way.
    poll_fn(|context| stream.poll_sent(context)).await?;
    match early.is_empty() || stream.alpn() == Some(ALPN_HTTP2) {
        true => Ok(early),
        false => Err(io::Error::other("the server speaks before it is asked")),
    }
}

/// Returns the user of the pools: requests of all clients share them. The pools for servers that
/// may speak HTTP/2 are apart, so that a request that needs HTTP/1.1 gets it.
pub(super) fn pool_user(shared: &HttpService, http2: ServerHttp2) -> PoolUser {
    PoolUser {
        user: "".into(),
        server_user: "".into(),
        database: "".into(),
        credential: Credential::None,
        generation: 0,
        identity: match http2 {
            ServerHttp2::Off => 0,
            ServerHttp2::Tls => 1,
            ServerHttp2::All => 2,
        },
        replication: None,
        user_number: shared.pool_registry.number(b""),
        database_number: shared.pool_registry.number(b""),
    }
}

/// Returns which servers get HTTP/2 over the connections of a pool.
fn http2_of(pool_user: &PoolUser) -> ServerHttp2 {
    match pool_user.identity {
        0 => ServerHttp2::Off,
        1 => ServerHttp2::Tls,
        _ => ServerHttp2::All,
    }
}

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
use evenkeel_tls::{ChannelError, Connector, ServerEncryption};

use crate::service::Service;
use crate::service::http::{HttpService, now_s};
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
    type Parked = Usage;

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
        encrypt(worker, &mut stream, encryption, &view.settings)
            .await
            .map_err(|(kind, why)| ConnectError::tls(server, kind, why))
            .inspect_err(|error| {
                if let Some(http) = service.http() {
                    http.server(server.id).log_tls_error(&service.name, error);
                }
            })?;
        server.counters.sessions.add(1);
        Ok(Box::new(Self {
            core: ConnectionCore::new::<Self>(stream, pooled),
            usage: Usage::default(),
        }))
    }

    fn core(&self) -> &ConnectionCore {
        &self.core
    }

    fn core_mut(&mut self) -> &mut ConnectionCore {
        &mut self.core
    }

    fn park(self: Box<Self>) -> (ConnectionCore, Usage) {
        (self.core, self.usage)
    }

    fn unpark(_: &Worker, core: ConnectionCore, usage: Usage) -> Box<Self> {
        Box::new(Self { core, usage })
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

/// Encrypts a new connection if its server demands it. Fails with the class of the error and its
/// text.
async fn encrypt(
    worker: &Worker,
    stream: &mut Stream,
    encryption: &ServerEncryption,
    settings: &ServiceSettings,
) -> Result<(), (ConnectErrorKind, String)> {
    let connector = match encryption {
        ServerEncryption::Plaintext => return Ok(()),
        ServerEncryption::Encrypted(connector) => connector,
        ServerEncryption::Broken(why) => {
            return Err((ConnectErrorKind::Tls, format!("cannot be set up: {why}")));
        }
    };
    let limit = settings.connect_timeout;
    match timers::timeout(limit, shake_hands(worker, stream, connector)).await {
        Ok(Ok(())) => Ok(()),
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
) -> io::Result<()> {
    stream.encrypt(connector.connect().map_err(io::Error::other)?);
    let mut early = Vec::new();
    stream.shake_hands(worker, &[], &mut early).await?;
    // The last message of the handshake may still be under way.
    poll_fn(|context| stream.poll_sent(context)).await?;
    match early.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other("the server speaks before it is asked")),
    }
}

/// Returns the user of the pools: requests of all clients share them.
pub(super) fn pool_user(shared: &HttpService) -> PoolUser {
    PoolUser {
        user: "".into(),
        server_user: "".into(),
        database: "".into(),
        credential: Credential::None,
        generation: 0,
        identity: 0,
        replication: None,
        user_number: shared.pool_registry.number(b""),
        database_number: shared.pool_registry.number(b""),
    }
}

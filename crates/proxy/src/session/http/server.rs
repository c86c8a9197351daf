//! Connections to HTTP servers, which requests of all clients use one after another.

use std::future::{poll_fn, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::clock;
use evenkeel_tls::ServerEncryption;

use crate::service::Service;
use crate::service::http::{HttpService, now_s};
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::connect_error::ConnectError;
use crate::upstream::pool_registry::{Credential, PoolHandle, PoolUser};
use crate::upstream::server_login::{reach, with_login_timeout};
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
        let connecting = async {
            let mut stream = reach(worker, service, server).await?;
            let http = view.http().ok_or_else(ConnectError::outdated)?;
            let connector = match http.server_encryption.get(&server.id) {
                Some(ServerEncryption::Plaintext) => return Ok(stream),
                Some(ServerEncryption::Encrypted(connector)) => connector,
                Some(ServerEncryption::Broken(why)) => {
                    let why = format!("cannot set up TLS: {why}");
                    return Err(ConnectError::unreachable(server, why));
                }
                None => return Err(ConnectError::outdated()),
            };
            let fault = |error: String| ConnectError::unreachable(server, format!("TLS: {error}"));
            let channel = connector
                .connect()
                .map_err(|error| fault(error.to_string()))?;
            stream.encrypt(channel);
            let mut early = Vec::new();
            let shaken = stream.shake_hands(worker, &[], &mut early).await;
            shaken.map_err(|error| fault(error.to_string()))?;
            // The last message of the handshake may still be under way.
            let sent = poll_fn(|context| stream.poll_sent(context)).await;
            sent.map_err(|error| fault(error.to_string()))?;
            match early.is_empty() {
                true => Ok(stream),
                false => Err(fault("the server speaks before it is asked".to_owned())),
            }
        };
        let stream = with_login_timeout(&view, server, connecting).await?;
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

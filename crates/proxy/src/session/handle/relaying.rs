//! Tracks a session whose bytes are relayed unread: what has passed, who has ended, and its limits.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_engine::relay::{ByteDirection, RelaySession};
use evenkeel_engine::socket::SocketObserver;

use super::{Interrupt, Phase, SWEEP_INTERVAL, SessionHandle};
use crate::record::TerminationReason;
use crate::server::Server;
use crate::service::ServiceSnapshot;
use crate::worker::Worker;

/// Server that a session is relayed to, as the session saw it when it connected.
pub(crate) struct RelayedServer {
    pub(crate) server: Arc<Server>,
    /// Service whose server it is.
    pub(crate) service_id: u64,
    pub(crate) view: Arc<ServiceSnapshot>,
    pub(crate) client: SocketObserver,
    pub(crate) upstream: SocketObserver,
}

/// A session while its bytes are relayed.
pub(super) struct Relaying {
    at: RelayedServer,
    since_us: u64,
    first_byte: Cell<FirstByte>,
    ended: Cell<Ended>,
    has_keepalive: Cell<bool>,
    /// Number of directions in which bytes wait for a slow reader.
    stalled_directions: Cell<u8>,
    /// Bytes that both peers had not yet taken at the last check.
    unread_bytes: Cell<u32>,
    /// Time of the last check whether the peers are alive.
    last_check_ms: Cell<u64>,
}

/// First byte of the server.
#[derive(Clone, Copy)]
enum FirstByte {
    /// Outstanding. `since_us` is the time when the server last received data to reply to, or the
    /// start of the relay.
    Awaited { since_us: u64 },
    /// Received, with the time since the start of the relay.
    Came { after_us: u64 },
}

/// Peers that have ended their sending, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Nobody,
    Client,
    Server,
    ClientThenServer,
    ServerThenClient,
}

impl Relaying {
    fn new(at: RelayedServer) -> Self {
        let now_us = clock::now_us();
        Self {
            at,
            since_us: now_us,
            first_byte: Cell::new(FirstByte::Awaited { since_us: now_us }),
            ended: Cell::new(Ended::Nobody),
            has_keepalive: Cell::new(false),
            stalled_directions: Cell::new(0),
            unread_bytes: Cell::new(0),
            last_check_ms: Cell::new(now_us / 1_000),
        }
    }

    pub(super) fn is_at(&self, server_id: u64) -> bool {
        self.at.server.id == server_id
    }

    pub(super) fn service_id(&self) -> u64 {
        self.at.service_id
    }

    fn lasted_us(&self) -> u64 {
        clock::now_us() - self.since_us
    }

    /// Notes bytes before or at the server's first ones.
    fn note_bytes(&self, direction: ByteDirection) {
        let FirstByte::Awaited { since_us } = self.first_byte.get() else {
            return;
        };
        let now_us = clock::now_us();
        let state = match direction {
            ByteDirection::FromClient => FirstByte::Awaited { since_us: now_us },
            ByteDirection::ToClient => {
                let server = &self.at.server;
                // A client that delays its request does not make its server slow.
                server.load.observe_latency(now_us, now_us - since_us);
                server.counters.served.add(1);
                let after_us = now_us - self.since_us;
                FirstByte::Came { after_us }
            }
        };
        self.first_byte.set(state);
    }

    /// Returns whether bytes from one side have not reached the other.
    fn is_stalled(&self) -> bool {
        self.stalled_directions.get() > 0
    }

    /// Returns whether exactly one side has ended its sending.
    fn half_closed(&self) -> bool {
        matches!(self.ended.get(), Ended::Client | Ended::Server)
    }

    fn record_end(&self, direction: ByteDirection) {
        self.ended.set(match (self.ended.get(), direction) {
            (Ended::Nobody, ByteDirection::FromClient) => Ended::Client,
            (Ended::Nobody, ByteDirection::ToClient) => Ended::Server,
            (Ended::Client, ByteDirection::ToClient) => Ended::ClientThenServer,
            (Ended::Server, ByteDirection::FromClient) => Ended::ServerThenClient,
            (known, _) => known,
        });
    }

    /// Sets keepalive late, so that a connection with few requests avoids five system calls.
    fn keep_alive(&self) {
        if !self.has_keepalive.replace(true) {
            self.at
                .upstream
                .keep_alive(&self.at.view.settings.keepalive);
        }
    }

    /// Returns whether a slow reader has taken bytes from the kernel since the last check; it does
    /// that long before the kernel accepts more.
    fn has_progressed(&self) -> bool {
        let unread_bytes = self.at.client.unread_bytes() + self.at.upstream.unread_bytes();
        let unread_bytes = u32::try_from(unread_bytes).unwrap_or(u32::MAX);
        unread_bytes < self.unread_bytes.replace(unread_bytes)
    }

    /// Returns the limit that a session silent for `silent_ms` has exceeded.
    fn exceeded_limit(&self, silent_ms: u128) -> Option<TerminationReason> {
        let settings = &self.at.view.settings;
        // The timestamp of the last byte may be one sweep older than the byte.
        let passed =
            |limit: Duration| !limit.is_zero() && silent_ms >= (limit + SWEEP_INTERVAL).as_millis();
        if self.half_closed() {
            if self.at.client.is_broken() {
                return Some(TerminationReason::ResetByClient(
                    "reset after close".to_owned(),
                ));
            }
            if self.at.upstream.is_broken() {
                return Some(TerminationReason::ResetByServer(
                    "reset after close".to_owned(),
                ));
            }
            if passed(settings.half_close_timeout) {
                return Some(TerminationReason::HalfCloseTimeout);
            }
        }
        passed(settings.idle_timeout).then_some(TerminationReason::IdleTimeout)
    }

    /// Checks rarely: it costs two system calls, even for an idle session.
    fn dead_peer(&self, now_ms: u64) -> Option<TerminationReason> {
        let limit = self.at.view.settings.keepalive.user_timeout;
        let check_interval_ms = (limit / 4).as_millis();
        let since_ms = u128::from(now_ms.saturating_sub(self.last_check_ms.get()));
        if limit.is_zero() || since_ms < check_interval_ms {
            return None;
        }
        self.last_check_ms.set(now_ms);
        let why = || format!("no response for {} ms (user_timeout_ms)", limit.as_millis());
        if self.at.client.is_unanswered(limit) {
            return Some(TerminationReason::ResetByClient(why()));
        }
        self.at
            .upstream
            .is_unanswered(limit)
            .then(|| TerminationReason::ResetByServer(why()))
    }
}

impl SessionHandle {
    pub(super) fn sweep_relaying(&self, relaying: &Relaying, now_ms: u64) {
        relaying.keep_alive();
        if relaying.is_stalled() && relaying.has_progressed() {
            self.last_byte_ms.set(now_ms);
        }
        let settings = &relaying.at.view.settings;
        let limit = settings.connect_timeout;
        // This counts like a failed connect.
        let is_silent_too_long = settings.server_speaks_first
            && self.is_untouched()
            && u128::from(relaying.lasted_us()) >= limit.as_micros();
        if is_silent_too_long {
            let limit_ms = limit.as_millis();
            let why = format!("no data from the server within {limit_ms} ms (connect_timeout_ms)");
            self.interrupt(Interrupt::Elsewhere(why));
        } else if let Some(ending) = relaying
            .exceeded_limit(self.silent_ms(now_ms))
            .or_else(|| relaying.dead_peer(now_ms))
        {
            self.cut(ending);
        }
    }

    /// Returns whether no byte was moved, and no side has ended.
    pub(super) fn is_untouched(&self) -> bool {
        let moved = self.from_client.get() + self.to_client.get();
        let relaying = self.relaying();
        moved == 0 && relaying.is_none_or(|relaying| relaying.ended.get() == Ended::Nobody)
    }
}

/// A session while its bytes are relayed on a worker. The phase ends on drop, and with it the hold
/// on the sockets.
pub(crate) struct Relayed<'a> {
    pub(crate) handle: &'a SessionHandle,
    pub(crate) worker: &'a Worker,
}

impl<'a> Relayed<'a> {
    /// Marks the two sockets as one session.
    pub(crate) fn start(handle: &'a SessionHandle, worker: &'a Worker, at: RelayedServer) -> Self {
        let relaying = Relaying::new(at);
        handle.last_byte_ms.set(relaying.since_us / 1_000);
        handle.enter(Phase::Relaying(Box::new(relaying)));
        Self { handle, worker }
    }

    fn with<T>(&self, read: impl FnOnce(&Relaying) -> T) -> Option<T> {
        self.handle.relaying().map(|relaying| read(&relaying))
    }

    /// Returns whether no byte was moved, and no side has ended.
    pub(crate) fn is_untouched(&self) -> bool {
        self.handle.is_untouched()
    }

    /// Returns whether bytes from one side have not reached the other.
    pub(crate) fn is_stalled(&self) -> bool {
        self.with(Relaying::is_stalled).unwrap_or_default()
    }

    pub(crate) fn client_ended_first(&self) -> bool {
        let ended = self.with(|relaying| relaying.ended.get());
        matches!(ended, Some(Ended::Client | Ended::ClientThenServer))
    }

    /// Returns the time between the start and the server's first byte.
    pub(crate) fn first_byte_us(&self) -> Option<u64> {
        match self.with(|relaying| relaying.first_byte.get())? {
            FirstByte::Awaited { .. } => None,
            FirstByte::Came { after_us } => Some(after_us),
        }
    }
}

impl Drop for Relayed<'_> {
    fn drop(&mut self) {
        self.handle.detach();
    }
}

impl RelaySession for Relayed<'_> {
    fn count(&self, direction: ByteDirection, bytes: u64) {
        let Some(relaying) = self.handle.relaying() else {
            return;
        };
        relaying.note_bytes(direction);
        let server = Some(&*relaying.at.server);
        self.handle
            .count_bytes(self.worker, direction, bytes, server);
    }

    fn counted(&self, direction: ByteDirection) -> u64 {
        match direction {
            ByteDirection::FromClient => self.handle.bytes_from_client(),
            ByteDirection::ToClient => self.handle.bytes_to_client(),
        }
    }

    fn progressed(&self) {
        self.handle.last_byte_ms.set(self.worker.last_sweep_ms());
    }

    /// Not a guard: the count must still be known after the session is abandoned.
    fn set_stalled(&self, is_stalled: bool) {
        self.with(|relaying| {
            let stalled_directions = relaying.stalled_directions.get();
            relaying.stalled_directions.set(if is_stalled {
                stalled_directions + 1
            } else {
                stalled_directions - 1
            });
        });
    }

    fn record_end(&self, direction: ByteDirection) {
        self.with(|relaying| relaying.record_end(direction));
    }

    fn half_closed(&self) -> bool {
        self.with(Relaying::half_closed).unwrap_or_default()
    }

    fn both_ended(&self) -> bool {
        let ended = self.with(|relaying| relaying.ended.get());
        matches!(
            ended,
            Some(Ended::ClientThenServer | Ended::ServerThenClient)
        )
    }

    /// Returns whether no byte was moved, no side has ended, and the server has been waited for so
    /// briefly that its disconnect is a failure rather than an idle timeout.
    fn may_retry(&self) -> bool {
        let is_brief = |relaying: &Relaying| {
            let limit = relaying.at.view.settings.connect_timeout;
            u128::from(relaying.lasted_us() / 1_000) < limit.as_millis()
        };
        self.is_untouched() && self.with(is_brief).unwrap_or_default()
    }
}

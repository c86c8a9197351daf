//! Counts the bytes of a session, and what happens to its server connections.

use evenkeel_engine::relay::ByteDirection;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::route::retry::FailureKind;

use super::Acquirer;
use crate::server::Server;
use crate::upstream::worker_pool::PoolableConnection;

impl<C: PoolableConnection> Acquirer<'_, C> {
    /// Counts bytes received from the client.
    pub(in crate::session) fn count_received(&self, length: usize) {
        self.count_bytes(ByteDirection::FromClient, length, self.server());
        self.user_stats.from_clients.add(length as u64);
    }

    /// Counts bytes of a server that are sent to the client.
    pub(in crate::session) fn count_forwarded(&self, length: usize) {
        self.count_bytes(ByteDirection::ToClient, length, self.server());
        self.user_stats.to_clients.add(length as u64);
    }

    /// Counts bytes of Evenkeel that are sent to the client.
    pub(in crate::session) fn count_answered(&self, length: usize) {
        self.count_bytes(ByteDirection::ToClient, length, None);
        self.user_stats.to_clients.add(length as u64);
    }

    fn count_bytes(&self, direction: ByteDirection, length: usize, server: Option<&Server>) {
        let length = length as u64;
        self.handle
            .count_bytes(self.worker, direction, length, server);
    }

    /// Records that a request is sent again after this failure.
    pub(in crate::session) fn note_retry(&self, failure: FailureKind) {
        if failure.requires_role_check() {
            self.request_role_check();
        }
        self.service.stats()[self.worker.index()].rescued.add(1);
    }

    /// Requests a check of the role of the session's server, if it has one.
    pub(in crate::session) fn request_role_check(&self) {
        if let Some(at) = &self.at {
            self.service.server_info.request_role_check(at.server.id);
        }
    }

    /// Records that the connection to a server was lost.
    pub(in crate::session) fn note_loss(&self, server: &C, why: &str) {
        if let Some(at) = &self.at {
            self.service.server_info.request_role_check(at.server.id);
            at.server.counters.resets.add(1);
        }
        let server = &server.core().pool_handle.server.name;
        tracing::debug!(%server, why, "lost server connection");
    }

    /// Releases the connection on which a request has failed. One that is not idle is unclean.
    pub(in crate::session) fn release_failed(
        &mut self,
        server: Option<Box<C>>,
        is_idle: impl FnOnce(&C) -> bool,
        condition: Condition,
    ) {
        self.at = None;
        if let Some(server) = server {
            let condition = match is_idle(&server) {
                true => condition,
                false => Condition::Unclean,
            };
            self.release(server, condition);
        }
    }
}

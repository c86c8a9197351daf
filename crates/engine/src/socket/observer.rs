//! Reads the state of a socket that a task of the session owns, without receiving or sending.

use std::time::Duration;

use rustix::net::RecvFlags;

use super::raw::RawSocket;
use crate::socket::Keepalive;

/// A view of a socket. The descriptor stays open as long as the view exists.
pub struct SocketObserver(RawSocket);

impl SocketObserver {
    pub(super) fn new(socket: &RawSocket) -> Self {
        Self(socket.clone())
    }

    /// Enables the kernel's checks of a silent peer. A Unix socket does not need them.
    pub fn keep_alive(&self, keepalive: &Keepalive) {
        self.0.keep_alive(keepalive);
    }

    /// Returns whether the connection has failed, without reading.
    pub fn is_broken(&self) -> bool {
        self.0.is_broken()
    }

    /// Returns whether the peer has disconnected: the connection has failed, or has ended without
    /// unread data. A peer that sent data and then ended its sending still waits for the reply.
    pub fn has_left(&self) -> bool {
        self.0.is_broken() || matches!(self.0.receive(&mut [0; 1], RecvFlags::PEEK), Ok(0))
    }

    /// Returns whether an answer of the peer is due and has been missing for `limit`.
    pub fn is_unanswered(&self, limit: Duration) -> bool {
        self.0.is_unanswered(limit)
    }

    /// Returns the number of sent bytes that the peer's kernel (for a Unix socket: the peer) has
    /// not taken yet.
    pub fn unread_bytes(&self) -> u64 {
        self.0.unread_bytes()
    }
}

//! Describes one finished connection for the log.

use std::net::SocketAddr;
use std::sync::Arc;

/// Reason why a session ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminationReason {
    /// Both sides ended; the client was first.
    ClientClosed,
    /// Both sides ended; the server was first.
    ServerClosed,
    /// The client's reset (or its silence beyond `user_timeout_ms`), forwarded as a reset.
    ResetByClient(String),
    /// The server's reset, forwarded as a reset.
    ResetByServer(String),
    /// No byte for `idle_timeout_ms`.
    IdleTimeout,
    /// One side ended its sending and no byte came for `half_close_timeout_ms`.
    HalfCloseTimeout,
    /// Reset by Evenkeel, with the reason.
    Cut(CutReason),
    /// Every connect failed; the last error.
    ConnectFailed(String),
    /// No server was up.
    NoServer,
    /// All servers and the queue were full.
    QueueFull,
    /// All servers were full for `queue.wait_ms`.
    QueueTimeout,
    /// The client disconnected before it had a server.
    ClientLeft,
    /// A transaction exceeded its time limit.
    TransactionTimeout,
    /// The client exceeded the limit of silence in an open transaction.
    IdleInTransaction,
    /// The client received this error.
    Rejected(String),
    /// The service had `max_connections` clients.
    OverLimit,
    /// A bad or missing PROXY header from a listed peer, or any from an unlisted one.
    ProxyHeader(String),
    /// No route for the client, and its service has no servers.
    Unrouted(String),
    /// Too many connections of the client's address have ended with a flood of HTTP/2 frames.
    Flooding,
}

/// Reason why Evenkeel ended a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutReason {
    /// The server failed, and the service has `on_server_down = "cut"`.
    ServerDown,
    /// The server is no longer the primary, and the service has `on_primary_change = "cut"`.
    PrimaryChanged,
    /// The server was drained, and the limit has passed.
    DrainLimit,
    /// The server or service was removed from the configuration, and the limit has passed.
    Removed,
    /// Evenkeel stops.
    Shutdown,
    /// An operator's command.
    Command,
}

impl std::fmt::Display for CutReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ServerDown => "server down",
            Self::PrimaryChanged => "no longer the primary",
            Self::DrainLimit => "drain limit",
            Self::Removed => "removed from the configuration",
            Self::Shutdown => "shutdown",
            Self::Command => "killed by an operator",
        })
    }
}

impl std::fmt::Display for TerminationReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ClientClosed => f.write_str("client closed"),
            Self::ServerClosed => f.write_str("server closed"),
            Self::ResetByClient(why) => write!(f, "reset by client: {why}"),
            Self::ResetByServer(why) => write!(f, "reset by server: {why}"),
            Self::IdleTimeout => f.write_str("idle timeout"),
            Self::HalfCloseTimeout => f.write_str("half-close timeout"),
            Self::Cut(reason) => write!(f, "terminated: {reason}"),
            Self::ConnectFailed(why) => write!(f, "connect failed: {why}"),
            Self::NoServer => f.write_str("no server up"),
            Self::QueueFull => f.write_str("queue full"),
            Self::QueueTimeout => f.write_str("queue timeout"),
            Self::ClientLeft => f.write_str("client disconnected while queued"),
            Self::TransactionTimeout => f.write_str("transaction timeout"),
            Self::IdleInTransaction => f.write_str("idle in transaction"),
            Self::Rejected(what) => write!(f, "error: {what}"),
            Self::OverLimit => f.write_str("max_connections reached"),
            Self::ProxyHeader(why) => write!(f, "PROXY header: {why}"),
            Self::Unrouted(why) => write!(f, "not routed: {why}"),
            Self::Flooding => f.write_str("refused after floods of HTTP/2 frames"),
        }
    }
}

/// A finished connection.
#[derive(Debug, Clone)]
pub struct Record {
    /// Service of the connection.
    pub service: Arc<str>,
    /// Address of the client, from a trusted PROXY header or the socket; `None` on a Unix socket.
    pub client: Option<SocketAddr>,
    /// Server of the connection.
    pub server: Option<Arc<str>>,
    /// Servers whose connect failed before.
    pub tried: Vec<Arc<str>>,
    /// Waited for a server, milliseconds.
    pub wait_ms: u64,
    /// The successful connect, microseconds.
    pub connect_us: u64,
    /// Time from the connect to the server's first byte, microseconds; `None` if there was no byte.
    pub first_byte_us: Option<u64>,
    /// Time from accept to end, milliseconds.
    pub total_ms: u64,
    /// Bytes from the client.
    pub from_client: u64,
    /// Bytes to the client.
    pub to_client: u64,
    /// Reason why the session ended.
    pub ending: TerminationReason,
}

impl From<CutReason> for TerminationReason {
    fn from(reason: CutReason) -> Self {
        Self::Cut(reason)
    }
}

//! Settings of a service: plain, checked values that a reload replaces as a whole.

use std::time::Duration;

use evenkeel_engine::socket::Keepalive;
use evenkeel_wire::proxy_header::ProxyVersion;
use ipnet::IpNet;

/// Settings of one service; its servers and algorithm are in the
/// [`ServiceSnapshot`](crate::ServiceSnapshot).
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// Maximum number of concurrent clients; further ones are closed immediately. `u32::MAX` for no
    /// limit.
    pub max_connections: u32,
    /// Maximum duration of one connect to a server.
    pub connect_timeout: Duration,
    /// Maximum number of further connects, on another server if there is one.
    pub retries: u32,
    /// Time without a byte in either direction after which a session ends. Zero: never.
    pub idle_timeout: Duration,
    /// Idle timeout of a session in which one side has ended its sending. Zero: never.
    pub half_close_timeout: Duration,
    /// Maximum number of clients that wait while all servers are full.
    pub queue_length: usize,
    /// Maximum time that each of them waits.
    pub queue_wait: Duration,
    /// True if clients wait in the queue while no server is up, instead of being rejected
    /// immediately.
    pub wait_when_down: bool,
    /// Peers whose connections begin with a PROXY header. Such a header from any other peer is an
    /// attack.
    pub accept_proxy_from: Vec<IpNet>,
    /// The PROXY header that server connections begin with.
    pub send_proxy: Option<ProxyVersion>,
    /// True if the server sends first (MySQL). A server that is silent for `connect_timeout` is
    /// then replaced by another.
    pub server_speaks_first: bool,
    /// Detection of half-dead peers.
    pub keepalive: Keepalive,
    /// Assignment of accepted clients to workers.
    pub assignment: Assignment,
}

/// Way in which accepted clients are assigned to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// The accepting worker keeps a client unless it has many more than others: short connections
    /// would notice the wake-up of another worker.
    Keep,
    /// The least loaded worker gets each client, after the first ones have gathered at one worker.
    /// For long sessions.
    Gather,
}

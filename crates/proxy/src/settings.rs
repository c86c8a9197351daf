//! What a service is told: plain, checked values that a reload replaces as a whole.

use std::time::Duration;

use ipnet::IpNet;

/// Settings of one service; its servers and algorithm are in the [`View`](crate::View).
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// Clients at once; the surplus is closed at once. `u32::MAX` for no limit.
    pub max_connections: u32,
    /// How long one connect to a server may take.
    pub connect_timeout: Duration,
    /// How many more connects are tried, on another server where there is one.
    pub retries: u32,
    /// A session without a byte in either direction for this long ends. Zero: never.
    pub idle_timeout: Duration,
    /// The same for a session of which one side has ended its sending. Zero: never.
    pub half_close_timeout: Duration,
    /// How many clients may wait when all servers are full.
    pub queue_length: usize,
    /// How long each may wait.
    pub queue_wait: Duration,
    /// With no server up: wait in the queue instead of refusing at once.
    pub wait_when_down: bool,
    /// Peers whose connections begin with a PROXY header; from any other such a header is an
    /// attack.
    pub accept_proxy_from: Vec<IpNet>,
    /// The PROXY header to begin server connections with.
    pub send_proxy: Option<ProxyVersion>,
    /// The server has the first word (MySQL): one that is silent for `connect_timeout` is given up
    /// for another.
    pub server_speaks_first: bool,
    /// How half-dead peers are noticed.
    pub keepalive: Keepalive,
}

/// Version of the PROXY protocol to speak towards servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// One line of text.
    V1,
    /// Binary.
    V2,
}

/// TCP keepalive (tcp(7)) and the limit for unanswered bytes, on both sides of each session.
#[derive(Debug, Clone, Copy)]
pub struct Keepalive {
    /// Silence before the first probe (TCP_KEEPIDLE). Zero switches keepalive off.
    pub idle: Duration,
    /// Between probes (TCP_KEEPINTVL).
    pub interval: Duration,
    /// Probes without an answer until the peer counts as dead (TCP_KEEPCNT).
    pub probes: u32,
    /// Sent data without acknowledgement for this long means a dead peer. Zero: the kernel's own.
    pub user_timeout: Duration,
}

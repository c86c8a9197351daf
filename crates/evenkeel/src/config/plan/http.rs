//! Defines the settings that only services with `protocol = "http"` have.

use super::TlsPlan;

/// Settings of an HTTP service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpPlan {
    /// `[service.tls]`: TLS towards clients. `None`: plaintext.
    pub tls: Option<TlsPlan>,
    /// `[service.pool]`: server connections.
    pub pool: HttpPoolPlan,
    /// `[service.times]`: time limits of requests.
    pub times: HttpTimesPlan,
    /// `[service.http]`: limits of messages.
    pub limits: HttpLimitsPlan,
}

/// `[service.pool]` of an HTTP service: server connections, and the requests that wait for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpPoolPlan {
    /// Connections to one server. Default 0 = no limit.
    pub size: u32,
    /// Idle connections to each server that are kept open. Default 0.
    pub min_idle: u32,
    /// Time after which an idle connection beyond `min_idle` is closed. Default 4 000, which is
    /// less than the limits of common servers; 0 = never.
    pub idle_ms: u64,
    /// Age at which a connection is closed when it becomes idle. Default 3 600 000; 0 = never.
    pub lifetime_ms: u64,
    /// Limit for the wait for a connection, 1 ms to 10 minutes. Default 10 000.
    pub wait_ms: u64,
    /// Maximum number of waiting requests of the service. Default 10 000; 0 = no queue.
    pub queue_length: u32,
}

impl Default for HttpPoolPlan {
    fn default() -> HttpPoolPlan {
        HttpPoolPlan {
            size: 0,
            min_idle: 0,
            idle_ms: 4_000,
            lifetime_ms: 3_600_000,
            wait_ms: 10_000,
            queue_length: 10_000,
        }
    }
}

/// `[service.times]`: time limits of requests, in milliseconds; 0 = no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTimesPlan {
    /// Limit from the first byte of a request head to its end. Default 10 000.
    pub header_ms: u64,
    /// Limit from the end of a request to the first byte of its response. Default 60 000.
    pub first_byte_ms: u64,
    /// Limit of a client's silence between two requests. Default 75 000.
    pub keepalive_ms: u64,
    /// Limit of silence while a body is in progress. Default 30 000.
    pub body_idle_ms: u64,
    /// Limit of silence in a tunnel, such as a WebSocket. Default 3 600 000.
    pub tunnel_idle_ms: u64,
}

impl Default for HttpTimesPlan {
    fn default() -> HttpTimesPlan {
        HttpTimesPlan {
            header_ms: 10_000,
            first_byte_ms: 60_000,
            keepalive_ms: 75_000,
            body_idle_ms: 30_000,
            tunnel_idle_ms: 3_600_000,
        }
    }
}

/// `[service.http]`: limits of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpLimitsPlan {
    /// Size of a request head or response head, in bytes. Default 32 768.
    pub head_bytes_max: u32,
    /// Number of fields in a head. Default 100.
    pub fields_max: u32,
    /// Size of a request body, in bytes. Default 0 = no limit.
    pub body_bytes_max: u64,
}

impl Default for HttpLimitsPlan {
    fn default() -> HttpLimitsPlan {
        HttpLimitsPlan {
            head_bytes_max: 32_768,
            fields_max: 100,
            body_bytes_max: 0,
        }
    }
}

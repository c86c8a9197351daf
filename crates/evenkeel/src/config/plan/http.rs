//! Defines the settings that only services with `protocol = "http"` have.

use evenkeel_policy::http::replay::ReplaySettings;
use ipnet::IpNet;

use super::{ContentPlan, RoutePlan, TlsPlan};

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
    /// `[service.http]`: access log.
    pub access_log: AccessLogPlan,
    /// `[service.http]`: TLS of clients, their addresses, and the key of `balance = "source"`.
    pub clients: HttpClientsPlan,
    /// `[[service.route]]`, in the order of the file.
    pub routes: Vec<RoutePlan>,
    /// `[service.sticky]`. `None`: each request goes to any server.
    pub sticky: Option<StickyPlan>,
    /// `[service.retry]`: requests that are sent again.
    pub retry: RetryPlan,
}

/// `[service.http]`: TLS of clients, their addresses, and the key of `balance = "source"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpClientsPlan {
    /// Treatment of requests without TLS. Default off.
    pub https: Https,
    /// Days for which browsers use TLS only, up to 3 650 (RFC 6797). Default 0 = not announced.
    pub hsts_days: u32,
    /// Networks of proxies whose `X-Forwarded-For` and `Forwarded` are read. Default none.
    pub forwarded_from: Vec<IpNet>,
    /// Value by which `balance = "source"` chooses a server. Default: the client's address.
    pub hash: HashKeyPlan,
    /// Pages for Evenkeel's own answers. Default none.
    pub error_pages: Vec<ErrorPagePlan>,
    /// `request_id`: true if each request gets an id. Default false.
    pub makes_request_ids: bool,
}

/// Page for the statuses of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPagePlan {
    /// First status.
    pub first: u16,
    /// Last status.
    pub last: u16,
    /// Content of the answers.
    pub content: ContentPlan,
}

/// Treatment of requests without TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Https {
    /// Served.
    #[default]
    Off,
    /// Redirected to the same URL with TLS.
    Redirect,
    /// Refused.
    Only,
}

/// Value by which `balance = "source"` chooses a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HashKeyPlan {
    /// Address of the client.
    #[default]
    Address,
    /// Value of the header field of this name, in lower case. The address, if there is none.
    Header(String),
    /// Value of the cookie of this name. The address, if there is none.
    Cookie(String),
    /// Path of the request.
    Path,
}

/// `[service.sticky]`: keeps the requests of a client on one server, by a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickyPlan {
    /// Name of the cookie. Default `evenkeel`.
    pub cookie: String,
    /// Time after which the client forgets the cookie. Default 0 = when the browser ends.
    pub ttl_ms: u64,
    /// Requests from other sites that carry the cookie. Default lax.
    pub same_site: SameSite,
}

impl Default for StickyPlan {
    fn default() -> StickyPlan {
        StickyPlan {
            cookie: "evenkeel".to_owned(),
            ttl_ms: 0,
            same_site: SameSite::Lax,
        }
    }
}

/// Requests from other sites that carry a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// None.
    Strict,
    /// Only links that the user follows.
    Lax,
    /// All. Browsers require TLS for such a cookie.
    None,
}

/// `[service.retry]`: requests that are sent again after an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPlan {
    /// Kinds of requests. Its `retries` is the key of the service. Default: unsent and idempotent.
    pub replay: ReplaySettings,
    /// Part of the requests in flight that may be retries, in percent; at least 3 may. Default 20.
    pub budget_percent: u32,
    /// Size up to which a request body is held for a retry, in bytes. Default 65 536.
    pub body_hold_bytes: u32,
}

impl Default for RetryPlan {
    fn default() -> RetryPlan {
        RetryPlan {
            replay: ReplaySettings::default(),
            budget_percent: 20,
            body_hold_bytes: 65_536,
        }
    }
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
    /// Limit from the first byte of a request to the end of its response. Default 0.
    pub request_ms: u64,
    /// Limit of a client's silence between two requests. Default 75 000.
    pub keepalive_ms: u64,
    /// Limit of silence while a body is in progress. Default 30 000.
    pub body_idle_ms: u64,
    /// Minimum rate of a request body, in bytes per second. Default 256.
    pub body_rate_bytes_min: u32,
    /// Limit of silence in a tunnel, such as a WebSocket. Default 3 600 000.
    pub tunnel_idle_ms: u64,
}

impl Default for HttpTimesPlan {
    fn default() -> HttpTimesPlan {
        HttpTimesPlan {
            header_ms: 10_000,
            first_byte_ms: 60_000,
            request_ms: 0,
            keepalive_ms: 75_000,
            body_idle_ms: 30_000,
            body_rate_bytes_min: 256,
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

/// Access log of `[service.http]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessLogPlan {
    /// `access_log`: format of its lines.
    pub format: AccessLog,
    /// `access_log_query`: true if query strings are replaced by `***`. Default false.
    pub masks_query: bool,
}

/// Format of an access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// No lines. The default.
    #[default]
    Off,
    /// One JSON object per line.
    Json,
    /// The Combined Log Format of Apache's httpd.
    Combined,
}

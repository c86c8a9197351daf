//! Defines the settings that only services with `protocol = "http"` have.

use evenkeel_policy::http::compress::{Coding, CompressSettings, DEFAULT_TYPES, MediaRange};
use evenkeel_policy::http::replay::ReplaySettings;
use ipnet::IpNet;

use super::{ContentPlan, HttpTlsPlan, RoutePlan};
use crate::setting::{DAY_MS, HOUR_MS, Kind, TEN_MINUTES_MS, WEEK_MS, number, settings, words};

/// Highest limit of the size of a request body.
pub(crate) const BODY_BYTES_MAX: u64 = 1 << 50;

/// Settings of an HTTP service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpPlan {
    /// `[service.tls]`: TLS towards clients. `None`: plaintext.
    pub tls: Option<HttpTlsPlan>,
    /// `[service.pool]`: server connections.
    pub pool: HttpPoolPlan,
    /// `[service.times]`: time limits of requests.
    pub times: HttpTimesPlan,
    /// `[service.http]`: limits of messages.
    pub limits: HttpLimitsPlan,
    /// `[service.http]`: responses that are compressed.
    pub compress: CompressPlan,
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
    /// Clients that may use HTTP/2. Default: those with TLS.
    pub http2: Http2,
    /// Servers that get HTTP/2. Default: none.
    pub server_http2: ServerHttp2,
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

words! {
    /// Treatment of requests without TLS.
    #[derive(Default)]
    pub enum Https {
        /// Served.
        #[default]
        Off = "off",
        /// Redirected to the same URL with TLS.
        Redirect = "redirect",
        /// Refused.
        Only = "only",
    }
}

words! {
    /// Clients that may use HTTP/2.
    #[derive(Default)]
    pub enum Http2 {
        /// None.
        Off = "off",
        /// Clients with TLS that offer it.
        #[default]
        Tls = "tls",
        /// Also clients without TLS that begin with its preface.
        All = "all",
    }
}

words! {
    /// Servers that get HTTP/2.
    #[derive(Default)]
    pub enum ServerHttp2 {
        /// None.
        #[default]
        Off = "off",
        /// Those with TLS that agree to it.
        Tls = "tls",
        /// Also all those without TLS.
        All = "all",
    }
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

settings! {
    /// `[service.sticky]`: keeps the requests of a client on one server, by a cookie.
    pub struct StickyPlan {
        /// Name of the cookie; servers do not receive it.
        cookie: String = "evenkeel".to_owned(), Kind::Text("letters, digits, `-`, `_`");
        /// Time after which the client forgets it; 0 = when the browser ends.
        ttl_ms: u64 = 0, number(0, 400 * DAY_MS);
        /// Requests from other sites that carry it; browsers accept `none` with TLS only.
        same_site: SameSite = SameSite::Lax;
    }
}

words! {
    /// Requests from other sites that carry a cookie.
    pub enum SameSite {
        /// None.
        Strict = "strict",
        /// Only links that the user follows.
        Lax = "lax",
        /// All. Browsers require TLS for such a cookie.
        None = "none",
    }
}

settings! {
    /// `[service.retry]`: requests that are sent again after an attempt failed.
    pub struct RetryPlan {
        /// Part of the service's requests in flight that may be retries; 3 always may.
        budget_percent: u32 = 20, number(0, 100);
        /// Size up to which a request body is held for a retry; 0 = none is.
        body_hold_bytes: u32 = 65_536, number(0, 16 << 20);
    } also {
        /// Kinds of requests: the key `on`. `retries` is the key of the service.
        replay: ReplaySettings = ReplaySettings::default();
    }
}

settings! {
    /// `[service.pool]` of an HTTP service: server connections, and the requests that wait for one.
    pub struct HttpPoolPlan {
        /// Maximum connections to one server; 0 = no limit. `max_connections` of a server limits
        /// all services together.
        size: u32 = 0, number(0, 1_000_000);
        /// Idle connections to each server that stay open.
        min_idle: u32 = 0, number(0, 100_000);
        /// Closes an idle connection after this time. Keep it below the servers' own limit (Node:
        /// 5 s, nginx: 75 s): otherwise a server may close a connection while a request is on its
        /// way; 0 = never.
        idle_ms: u64 = 4_000, number(0, WEEK_MS);
        /// Closes a connection of this age when it becomes idle; 0 = never.
        lifetime_ms: u64 = 3_600_000, number(0, WEEK_MS);
        /// Limit for the wait of a request for a connection; then it is answered with 503.
        wait_ms: u64 = 10_000, number(1, TEN_MINUTES_MS);
        /// Maximum number of waiting requests of the service; further ones are answered with 503.
        queue_length: u32 = 10_000, number(0, 1_000_000);
    }
}

settings! {
    /// `[service.times]`: time limits of requests, in milliseconds; 0 = no limit.
    pub struct HttpTimesPlan {
        /// Limit from the first byte of a request head to its end, answered with 408; 0 = no limit.
        header_ms: u64 = 10_000, number(0, HOUR_MS);
        /// Limit from the end of a request to the head of the response, answered with 504; 0 = no
        /// limit.
        first_byte_ms: u64 = 60_000, number(0, DAY_MS);
        /// Limit from the head of a request to the end of its response: answered with 504, or cut
        /// if the response has begun; 0 = no limit. Not for WebSockets.
        request_ms: u64 = 0, number(0, DAY_MS);
        /// Closes a client connection without a request for this long; 0 = never.
        keepalive_ms: u64 = 75_000, number(0, DAY_MS);
        /// Limit of silence within a body; 0 = no limit.
        body_idle_ms: u64 = 30_000, number(0, DAY_MS);
        /// Minimum rate of a request body, in bytes per second, on average since its begin and
        /// after 10 seconds; slower ones are answered with 408; 0 = no limit.
        body_rate_bytes_min: u32 = 256, number(0, 1 << 20);
        /// Limit of silence in a WebSocket; 0 = no limit.
        tunnel_idle_ms: u64 = 3_600_000, number(0, WEEK_MS);
    }
}

settings! {
    /// `[service.http]`: limits of messages.
    pub struct HttpLimitsPlan {
        /// Maximum size of a request head (answered with 431, or 414 for the target alone) or
        /// response head (502).
        head_bytes_max: u32 = 32_768, number(1_024, 1_048_576);
        /// Maximum number of fields in a head.
        fields_max: u32 = 100, number(8, 1_000);
        /// Maximum size of a request body, answered with 413; 0 = no limit. A route may have its
        /// own; else the limit of the service whose servers answer.
        body_bytes_max: u64 = 0, number(0, BODY_BYTES_MAX);
        /// Floods of HTTP/2 frames in a minute, each of which ends its connection, after which new
        /// connections of the client's address (IPv4) or /64 network (IPv6) are reset, until the
        /// minute has one less. Addresses of `forwarded_from` are exempt. 0 = no limit.
        http2_floods_per_minute: u32 = 60, number(0, 60_000);
    }
}

settings! {
    /// `[service.http]`: responses that are compressed.
    pub struct CompressPlan {
        /// Bodies that are known to be shorter are not compressed.
        compress_bytes_min: u32 = 1_024, number(1, 1 << 30);
    } also {
        /// `compress`: codings, the preferred one first. Default none.
        codings: Vec<Coding> = Vec::new();
        /// `compress_types`: media types of these responses.
        types: Vec<MediaRange> = default_types();
    }
}

fn default_types() -> Vec<MediaRange> {
    let types = DEFAULT_TYPES.iter();
    types.filter_map(|text| MediaRange::parse(text)).collect()
}

impl CompressPlan {
    /// Returns the settings for the data plane. `None`: no response is compressed.
    pub fn settings(&self) -> Option<CompressSettings> {
        (!self.codings.is_empty()).then(|| CompressSettings {
            codings: self.codings.clone(),
            types: self.types.clone(),
            bytes_min: u64::from(self.compress_bytes_min),
        })
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

words! {
    /// Format of an access log.
    #[derive(Default)]
    pub enum AccessLog {
        /// No lines. The default.
        #[default]
        Off = "off",
        /// One JSON object per line.
        Json = "json",
        /// The Combined Log Format of Apache's httpd.
        Combined = "combined",
    }
}

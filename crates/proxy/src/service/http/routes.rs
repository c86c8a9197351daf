//! Holds the compiled routes of an HTTP service.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_policy::http::compress::CompressSettings;
use evenkeel_policy::http::rate::RateTable;
use evenkeel_policy::http::redirect::Redirect;
use evenkeel_policy::http::rewrite::Rewrite;
use evenkeel_policy::http::route::RouteTable;
use evenkeel_policy::http::sticky::StickyServers;
use evenkeel_policy::http::trusted_proxies::TrustedProxies;
use ipnet::IpNet;

use super::basic_auth::BasicAuth;
use super::error_pages::ErrorPages;
use super::route_stats::RouteStats;
use crate::service::Service;

/// Treatment of requests before and after they are balanced.
#[derive(Debug)]
pub struct Routes {
    /// Routes with their actions, in the order of the file.
    pub table: RouteTable<RouteAction>,
}

/// Treatment of the requests of a route.
#[derive(Debug)]
pub struct RouteAction {
    /// Name and statistics.
    pub stats: Arc<RouteStats>,
    /// Target of the requests.
    pub target: RouteTarget,
    /// Change of the path.
    pub rewrite: Rewrite,
    /// Fields that are set in requests.
    pub set_request: Vec<(String, String)>,
    /// Fields that are set in responses.
    pub set_response: Vec<(String, String)>,
    /// Names of fields that are removed from requests.
    pub remove_request: Vec<String>,
    /// Networks of permitted clients. `None`: all.
    pub allow_from: Option<Vec<IpNet>>,
    /// Users that may use the route. `None`: all.
    pub basic_auth: Option<BasicAuth>,
    /// Limit for the requests of each client. `None`: no limit.
    pub rate: Option<Arc<RateTable>>,
    /// Limits in the place of those of the service whose servers answer.
    pub limits: RouteLimits,
    /// Copies of requests without a body. `None`: none.
    pub mirror: Option<Mirror>,
}

/// Copies of requests for another service, whose responses are discarded.
#[derive(Debug)]
pub struct Mirror {
    /// Service whose servers get the copies.
    pub service: Weak<Service>,
    /// Part of the requests that are copied, in percent.
    pub percent: u32,
    /// Maximum number of copies in progress, of all workers.
    pub in_flight_max: u32,
    /// Fields that are set in copies, after the changes of the route.
    pub set_request: Vec<(String, String)>,
    /// Names of fields that are removed from copies.
    pub remove_request: Vec<String>,
}

/// Limits of each request of a route. `None`: that of the service whose servers answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteLimits {
    /// Limit of the request body, in bytes; [`u64::MAX`]: none.
    pub body: Option<u64>,
    /// Limit from the head of a request to the end of its response; zero: none.
    pub request: Option<Duration>,
}

/// Target of the requests of a route.
#[derive(Debug)]
pub enum RouteTarget {
    /// The servers of the route's own service.
    Own,
    /// The servers of another service.
    Service(Weak<Service>),
    /// The servers of one of these services, which is chosen by these weights.
    Split(Vec<(Weak<Service>, u32)>),
    /// A redirect.
    Redirect(Redirect),
    /// A fixed answer.
    Respond(FixedAnswer),
}

/// Fixed answer.
#[derive(Debug)]
pub struct FixedAnswer {
    /// Status, 200 to 599.
    pub status: u16,
    /// Value of `Content-Type`; `None`: there is no content.
    pub media_type: Option<&'static str>,
    /// Content.
    pub content: String,
}

/// Treatment of clients and their addresses.
#[derive(Debug, Default)]
pub struct ClientSettings {
    /// Treatment of requests without TLS.
    pub https: Https,
    /// Clients that may use HTTP/2.
    pub http2: Http2,
    /// Value of `Strict-Transport-Security` in responses over TLS (RFC 6797). `None`: not sent.
    pub hsts: Option<String>,
    /// Proxies whose reports of client addresses are read. `None`: none.
    pub forwarded_from: Option<TrustedProxies>,
    /// Limit for the floods of each client, after which its connections are refused. `None`: no
    /// limit.
    pub floods: Option<RateTable>,
    /// Value that the `source` algorithm hashes.
    pub hash: HashSource,
    /// Pages for Evenkeel's own answers.
    pub error_pages: ErrorPages,
    /// Responses that are compressed. `None`: none.
    pub compress: Option<CompressSettings>,
    /// True if each request gets an id, unless a trusted proxy has sent one.
    pub makes_request_ids: bool,
}

impl ClientSettings {
    /// Counts a connection that a flood of frames has ended.
    pub(crate) fn count_flood(&self, client: IpAddr) {
        if let Some(floods) = &self.floods {
            // A flood beyond the limit is not counted: the client is refused until the table has
            // room for one.
            floods.admit(client, clock::now_us());
        }
    }

    /// Returns whether connections of this client are refused after too many floods. A trusted
    /// proxy has many clients, and is served.
    pub(crate) fn refuses(&self, client: IpAddr) -> bool {
        let Some(floods) = &self.floods else {
            return false;
        };
        let proxies = self.forwarded_from.as_ref();
        floods.is_limited(client, clock::now_us())
            && !proxies.is_some_and(|proxies| proxies.contains(client))
    }
}

/// Treatment of requests without TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Https {
    /// Served.
    #[default]
    Off,
    /// Redirected to the same URL with TLS.
    Redirect,
    /// Refused.
    Only,
}

/// Clients that may use HTTP/2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Http2 {
    /// None.
    Off,
    /// Clients with TLS that offer it (ALPN, RFC 7301).
    #[default]
    Tls,
    /// Also clients without TLS that begin with its preface (RFC 9113 §3.3).
    All,
}

/// Value that the `source` algorithm hashes.
#[derive(Debug, Default)]
pub enum HashSource {
    /// Address of the client.
    #[default]
    Address,
    /// Value of the field of this name; the address if there is none.
    Header(String),
    /// Value of the cookie of this name; the address if there is none.
    Cookie(String),
    /// Path of the request.
    Path,
}

/// Cookie that keeps the requests of a client on one server.
#[derive(Debug)]
pub struct StickyCookie {
    /// Name of the cookie.
    pub name: String,
    /// Attributes after the value, from the first `;` on.
    pub attributes: String,
    /// Values for the servers of the snapshot.
    pub servers: StickyServers,
}

impl RouteAction {
    /// Returns whether a client may use the route. Clients of a Unix socket have no address, and
    /// may.
    pub(crate) fn allows(&self, client: Option<IpAddr>) -> bool {
        match (&self.allow_from, client) {
            (Some(networks), Some(client)) => {
                networks.iter().any(|network| network.contains(&client))
            }
            _ => true,
        }
    }
}

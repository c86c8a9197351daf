//! Defines the routes of HTTP services, and those of TCP services by the server name of TLS.

use std::collections::BTreeMap;
use std::path::PathBuf;

use evenkeel_policy::http::rate::RateLimit;
use evenkeel_policy::http::redirect::Redirect;
use evenkeel_policy::http::rewrite::Rewrite;
use evenkeel_policy::http::route::{Conditions, Route, RouteTable};
use ipnet::IpNet;

use super::Secret;
use super::http::BODY_BYTES_MAX;
use crate::setting::{DAY_MS, TEN_MINUTES_MS, number, settings};

/// `[[service.route]]`: requests that it takes, and their treatment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Name in statistics and logs. Default: its first host and its path.
    pub name: String,
    /// `host`, `path`, `methods` and `headers`.
    pub conditions: Conditions,
    /// Target of its requests.
    pub target: RouteTarget,
    /// `strip_prefix` or `replace_prefix`. Default: the path stays.
    pub rewrite: Rewrite,
    /// Fields that are set in requests, instead of those of the same names.
    pub set_request: Vec<(String, String)>,
    /// Fields that are set in responses, instead of those of the same names.
    pub set_response: Vec<(String, String)>,
    /// Names of fields that are removed from requests.
    pub remove_request: Vec<String>,
    /// Networks of permitted clients. `None`: all.
    pub allow_from: Option<Vec<IpNet>>,
    /// `basic_auth`: users that may use the route. `None`: all clients.
    pub basic_auth: Option<BasicAuthPlan>,
    /// Limit for the requests of each client. `None`: no limit.
    pub rate: Option<RateLimit>,
    /// Limits in the place of those of the service whose servers answer.
    pub limits: RouteLimitsPlan,
    /// Copies of its requests. `None`: none.
    pub mirror: Option<MirrorPlan>,
}

settings! {
    /// Routes of a tcp service. Their only conditions are hosts.
    pub struct TlsRoutesPlan {
        /// Time within which a client must send its first TLS message, the ClientHello, if the
        /// service has routes.
        hello_timeout_ms: u64 = 5_000, number(1, TEN_MINUTES_MS) => &["tcp"];
    } also {
        /// `[[service.route]]`, in the order of the file.
        routes: Vec<RoutePlan> = Vec::new();
    }
}

/// Users of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuthPlan {
    /// Name of the area that the password is for. Default `restricted`.
    pub realm: String,
    /// Hashes of passwords by user, as `htpasswd -B` writes them.
    pub users: BTreeMap<String, Secret>,
    /// Highest cost of these hashes; verifying one takes 2^cost steps.
    pub cost_max: u32,
}

settings! {
    /// Limits of each request of a route. `None`: that of the service whose servers answer.
    #[derive(Copy)]
    pub struct RouteLimitsPlan {
        /// As in `[service.http]`, in its place for requests of the route.
        body_bytes_max: Option<u64> = None, number(0, BODY_BYTES_MAX);
        /// As in `[service.times]`, in its place for requests of the route.
        request_ms: Option<u64> = None, number(0, DAY_MS);
    }
}

impl RoutePlan {
    /// Returns a route without a treatment, and with the default name for its number.
    pub fn new(conditions: Conditions, target: RouteTarget, number: usize) -> RoutePlan {
        RoutePlan {
            name: default_name(&conditions, number),
            conditions,
            target,
            rewrite: Rewrite::Keep,
            set_request: Vec::new(),
            set_response: Vec::new(),
            remove_request: Vec::new(),
            allow_from: None,
            basic_auth: None,
            rate: None,
            limits: RouteLimitsPlan::default(),
            mirror: None,
        }
    }

    /// Returns whether the route restricts access.
    pub fn protects(&self) -> bool {
        self.allow_from.is_some() || self.basic_auth.is_some()
    }
}

/// Target of the requests of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// The servers of the route's own service.
    Own,
    /// The servers of another service of the same protocol, by its name.
    Service(String),
    /// The servers of one of these services, which is chosen for each request by weight.
    Split(Vec<SplitPart>),
    /// A redirect.
    Redirect(Redirect),
    /// A fixed answer.
    Respond(RespondPlan),
}

impl RouteTarget {
    /// Returns whether servers answer the requests.
    pub fn has_servers(&self) -> bool {
        match self {
            RouteTarget::Own | RouteTarget::Service(_) | RouteTarget::Split(_) => true,
            RouteTarget::Redirect(_) | RouteTarget::Respond(_) => false,
        }
    }

    /// Returns the names of the services that the requests may go to.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        let (one, parts) = match self {
            RouteTarget::Service(name) => (Some(name), &[][..]),
            RouteTarget::Split(parts) => (None, parts.as_slice()),
            RouteTarget::Own | RouteTarget::Redirect(_) | RouteTarget::Respond(_) => {
                (None, &[][..])
            }
        };
        let of_parts = parts.iter().map(|part| &part.service);
        one.into_iter().chain(of_parts).map(String::as_str)
    }
}

settings! {
    /// Service that gets a part of the requests of a route.
    pub struct SplitPart {
        /// Part of the requests, divided by the sum of all; 0 = only clients that have a cookie of
        /// `[service.sticky]` for its servers.
        weight: u32 = 1, number(0, 1_000);
    } also {
        /// `service`: name of the service.
        service: String = String::new();
    }
}

settings! {
    /// Copies of requests without a body for another service, whose responses are discarded.
    pub struct MirrorPlan {
        /// Part of the requests without a body that are copied, by chance.
        percent: u32 = 100, number(1, 100);
        /// Maximum number of copies in progress; further ones are dropped.
        in_flight: u32 = 100, number(1, 10_000);
    } also {
        /// `service`: name of the service.
        service: String = String::new();
        /// Fields that are set in copies.
        set_request: Vec<(String, String)> = Vec::new();
        /// Names of fields that are removed from copies.
        remove_request: Vec<String> = Vec::new();
    }
}

/// Fixed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RespondPlan {
    /// Status, 200 to 599.
    pub status: u16,
    /// Content. `None`: the answer is empty.
    pub content: Option<ContentPlan>,
}

/// Content of a fixed answer, read when the configuration is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentPlan {
    /// File from which it was read.
    pub path: PathBuf,
    /// Text of the file.
    pub text: String,
    /// Value of `Content-Type`.
    pub media_type: &'static str,
}

/// Returns the name of a route that has none in the file: its first host and its path, such as
/// `shop.example/api/`; else its number, from 1.
pub(crate) fn default_name(conditions: &Conditions, number: usize) -> String {
    let host = conditions.hosts.first().map(ToString::to_string);
    let name = host.unwrap_or_default() + &conditions.path.to_string();
    match name.is_empty() {
        true => format!("route {number}"),
        false => name,
    }
}

/// Returns the compiled table of these routes. Its indices are those of the list.
pub fn route_table(routes: &[RoutePlan]) -> RouteTable<()> {
    let route = |plan: &RoutePlan| Route {
        conditions: plan.conditions.clone(),
        protects: plan.protects(),
        target: (),
    };
    RouteTable::new(routes.iter().map(route).collect())
}

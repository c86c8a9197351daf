//! Decides what becomes of a request before a server is picked: the client's address, TLS, the
//! route, and the route's limits.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use evenkeel_engine::{clock, fast_random};
use evenkeel_policy::balance::key_of;
use evenkeel_policy::http::path::normalised;
use evenkeel_policy::http::rate::Admission;
use evenkeel_policy::http::redirect::Redirect;
use evenkeel_policy::http::rewrite::Rewrite;
use evenkeel_policy::http::route::{HeaderCondition, RouteRequest};
use evenkeel_policy::http::split::choose;
use evenkeel_wire::http::cookie;
use evenkeel_wire::http::forwarded::{client_of_forwarded, client_of_x_forwarded_for};
use evenkeel_wire::http::{KnownName, RequestHead};
use smallvec::SmallVec;

use super::Session;
use super::acquire::method_text;
use super::auth::{Attempt, Login};
use super::forward::sticky_cookie;
use crate::service::Service;
use crate::service::http::HttpSnapshot;
use crate::service::http::routes::{HashSource, Https, RouteAction, RouteTarget};

/// Decision about a request.
pub(super) enum Admitted<'a> {
    /// A server answers it: of another service, or of the session's own.
    Forward(Option<Arc<Service>>),
    /// A fixed answer of a route.
    Fixed(&'a RouteAction),
    /// A redirect of a route, with this status to this location.
    Redirect(u16, Cow<'a, [u8]>),
    /// The content that a certificate authority asks for, to verify a name.
    Challenge(String),
    /// A redirect of a request without TLS to this location.
    ToHttps(String),
    /// A refusal with this status, and the reason.
    Refuse(u16, &'static str),
    /// A refusal because of too many requests, for this time in seconds.
    Limited(u64),
    /// A refusal of a client that has shown no password.
    Stranger,
    /// The password must be verified first.
    Unverified(Attempt),
}

impl Session<'_> {
    /// Returns the address of the client: the peer's, or what trusted proxies report.
    pub(super) fn client_address(
        &self,
        head: &RequestHead,
        bytes: &[u8],
        http: &HttpSnapshot,
    ) -> Option<IpAddr> {
        let peer = self.peer.address?.ip().to_canonical();
        let Some(trusted) = &http.clients.forwarded_from else {
            return Some(peer);
        };
        let trusts = |address| trusted.contains(address);
        Some(match head.has(KnownName::Forwarded) {
            true => client_of_forwarded(peer, head.get_all(bytes, KnownName::Forwarded), trusts),
            false => {
                let values = head.get_all(bytes, KnownName::XForwardedFor);
                client_of_x_forwarded_for(peer, values, trusts)
            }
        })
    }

    /// Decides what becomes of a request, and sets its route.
    pub(super) fn admit<'h>(
        &mut self,
        (head, bytes): (&RequestHead, &[u8]),
        http: &'h HttpSnapshot,
        client: Option<IpAddr>,
    ) -> Admitted<'h> {
        // Before redirects: the authority asks without TLS.
        let challenges = http.challenges.as_ref();
        if let Some(content) = challenges.and_then(|all| all.content(head.path(bytes))) {
            return Admitted::Challenge(content);
        }
        if http.tls.is_some() && !self.client.is_encrypted() {
            match http.clients.https {
                Https::Off => {}
                Https::Redirect => return redirect_to_https(head, bytes),
                Https::Only => {
                    return Admitted::Refuse(403, "TLS is required ([service.http] https)");
                }
            }
        }
        let host = head.host(bytes).unwrap_or_default();
        if let Some((status, why)) = self.misdirected(host, http) {
            return Admitted::Refuse(status, why);
        }
        let Some(routes) = &http.routes else {
            return Admitted::Forward(None);
        };
        let normal = normalised(head.path(bytes));
        if normal.ambiguity.is_some() && routes.table.guards(host) {
            return Admitted::Refuse(400, "servers may read the path differently");
        }
        let request = RouteRequest {
            host,
            path: &normal.path,
            method: match method_text(head.method()) {
                b"" => head.method_text(bytes),
                known => known,
            },
        };
        let found = routes
            .table
            .find(&request, |condition| holds(condition, head, bytes));
        match found {
            None if http.servers.is_empty() => Admitted::Refuse(404, "no route matches"),
            None => Admitted::Forward(None),
            Some(index) => {
                self.exchange.route = Some((Arc::clone(routes), index));
                let action = &routes.table.routes()[index].target;
                self.admit_to(action, (head, bytes), client)
            }
        }
    }

    fn admit_to<'h>(
        &mut self,
        action: &'h RouteAction,
        message: (&RequestHead, &[u8]),
        client: Option<IpAddr>,
    ) -> Admitted<'h> {
        if !action.allows(client) {
            return Admitted::Refuse(403, "the address is not permitted");
        }
        if let Some(auth) = &action.basic_auth {
            match self.log_in(auth, message, client) {
                Login::Known => {}
                Login::Missing => return Admitted::Stranger,
                Login::TooOften => return Admitted::Limited(1),
                Login::Unverified(attempt) => return Admitted::Unverified(attempt),
            }
        }
        if let (Some(rate), Some(client)) = (&action.rate, client)
            && let Admission::Limited { retry_after_ms } = rate.admit(client, clock::now_us())
        {
            return Admitted::Limited(retry_after_ms.div_ceil(1_000));
        }
        match &action.target {
            RouteTarget::Own => Admitted::Forward(None),
            RouteTarget::Service(service) => match service.upgrade() {
                Some(service) => Admitted::Forward(Some(service)),
                None => Admitted::Refuse(503, "the service of the route was removed"),
            },
            RouteTarget::Split(parts) => match split(parts, message) {
                Some(service) => Admitted::Forward(Some(service)),
                None => Admitted::Refuse(503, "the services of the route were removed"),
            },
            RouteTarget::Redirect(redirect) => {
                let location = location(redirect, &action.rewrite, message);
                Admitted::Redirect(redirect.status, location)
            }
            RouteTarget::Respond(_) => Admitted::Fixed(action),
        }
    }

    /// Returns the refusal of a request whose host demands a client certificate, on a connection
    /// that was not accepted under the policy of this host.
    fn misdirected(&self, host: &[u8], http: &HttpSnapshot) -> Option<(u16, &'static str)> {
        let acceptor = http.tls.as_ref().filter(|tls| tls.demands_certificates())?;
        let wanted = acceptor.policy(&String::from_utf8_lossy(host));
        match self.client.client_policy() {
            _ if !wanted.demands_certificate() => None,
            Some(policy) if policy == wanted => None,
            // RFC 9110 §15.5.20: the client may repeat the request over another connection.
            Some(_) => Some((421, "the connection was made for another host")),
            None => Some((403, "the host requires TLS with a client certificate")),
        }
    }

    /// Returns the key that the `source` algorithm hashes, if the client's address is not it.
    pub(super) fn hash_key(
        &self,
        (head, bytes): (&RequestHead, &[u8]),
        http: &HttpSnapshot,
        client: Option<IpAddr>,
    ) -> u64 {
        let address = || match client {
            Some(IpAddr::V4(ip)) => key_of(&ip.octets()),
            Some(IpAddr::V6(ip)) => key_of(&ip.octets()),
            None => 0,
        };
        match &http.clients.hash {
            HashSource::Address => address(),
            HashSource::Path => key_of(head.path(bytes)),
            HashSource::Header(name) => field(head, bytes, name).map_or_else(address, key_of),
            HashSource::Cookie(name) => {
                let cookies = head.get_all(bytes, KnownName::Cookie);
                cookie::find(cookies, name.as_bytes()).map_or_else(address, key_of)
            }
        }
    }
}

/// Returns the service of a split for a request: the one whose server the client's cookie names,
/// else one by weight, among those with a server that takes requests. `None`: all were removed.
fn split(
    parts: &[(Weak<Service>, u32)],
    (head, bytes): (&RequestHead, &[u8]),
) -> Option<Arc<Service>> {
    let live = parts.iter();
    let live = live.filter_map(|(service, weight)| Some((service.upgrade()?, *weight)));
    let live: SmallVec<[(Arc<Service>, u32); 4]> = live.collect();
    let is_usable = |service: &Service| service.snapshot().has_untried(&[]);
    let is_known = |service: &Service| {
        let view = service.snapshot();
        let sticky = view.http().and_then(|http| {
            let cookie = sticky_cookie(http, head, bytes)?;
            Some(http.sticky.as_ref()?.servers.knows(&cookie))
        });
        sticky == Some(true)
    };
    let mut known = live.iter();
    if let Some((service, _)) = known.find(|(one, _)| is_known(one) && is_usable(one)) {
        return Some(Arc::clone(service));
    }
    let usable = live
        .iter()
        .map(|(service, weight)| match is_usable(service) {
            true => *weight,
            false => 0,
        });
    let usable: SmallVec<[u32; 4]> = usable.collect();
    let index = choose(usable.iter().copied(), fast_random())
        .or_else(|| choose(live.iter().map(|(_, weight)| *weight), fast_random()))?;
    live.get(index).map(|(service, _)| Arc::clone(service))
}

/// Returns the location of a route's redirect.
fn location<'h>(
    redirect: &'h Redirect,
    rewrite: &Rewrite,
    (head, bytes): (&RequestHead, &[u8]),
) -> Cow<'h, [u8]> {
    let target = head.path_and_query(bytes);
    let normal = normalised(target.path);
    let path = rewrite.apply(target.path, &normal).concat();
    redirect.location(&path, target.query)
}

/// Redirects to the same URL with TLS. The port stays unless it is the one of plaintext.
fn redirect_to_https<'h>(head: &RequestHead, bytes: &[u8]) -> Admitted<'h> {
    let (Some(host), Some(authority)) = (head.host(bytes), head.authority(bytes)) else {
        return Admitted::Refuse(400, "the redirect to HTTPS needs a host");
    };
    let authority = match head.port() {
        Some(80) => host,
        _ => authority,
    };
    let target = head.path_and_query(bytes);
    // A URL names the server as a whole, the target `*`, without a path (RFC 9112 §3.2.4).
    let path = if target.path == b"*" {
        b"/"
    } else {
        target.path
    };
    let parts = [authority, path, target.query].map(String::from_utf8_lossy);
    Admitted::ToHttps(format!("https://{}", parts.concat()))
}

fn holds(condition: &HeaderCondition, head: &RequestHead, bytes: &[u8]) -> bool {
    let mut values = values_of(head, bytes, &condition.name);
    match &condition.value {
        None => values.next().is_some(),
        Some(wanted) => values.any(|value| value == wanted.as_bytes()),
    }
}

fn field<'a>(head: &'a RequestHead, bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    values_of(head, bytes, name).next()
}

/// Returns the values of all fields of a name, in their order.
pub(super) fn values_of<'a>(
    head: &'a RequestHead,
    bytes: &'a [u8],
    name: &str,
) -> impl Iterator<Item = &'a [u8]> {
    let fields = head.fields(bytes);
    fields
        .filter(move |field| field.name.eq_ignore_ascii_case(name.as_bytes()))
        .map(|field| field.value)
}

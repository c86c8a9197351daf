//! Compiles the routes of HTTP services for the data plane, and what else its snapshots keep from
//! one publication to the next.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_config::plan::{
    self, ErrorPagePlan, HashKeyPlan, HttpClientsPlan, HttpPlan, RoutePlan, SameSite, StickyPlan,
};
use evenkeel_policy::http::keyed_hash::HashKey;
use evenkeel_policy::http::rate::{RateLimit, RateTable};
use evenkeel_policy::http::route::{Route, RouteTable};
use evenkeel_policy::http::sticky::StickyServers;
use evenkeel_policy::http::trusted_proxies::TrustedProxies;
use evenkeel_policy::server_set::Member;
use evenkeel_proxy::Service;
use evenkeel_proxy::http::HttpService;
use evenkeel_proxy::http::basic_auth::BasicAuth;
use evenkeel_proxy::http::error_pages::{ErrorPage, ErrorPages};
use evenkeel_proxy::http::route_stats::RouteStats;
use evenkeel_proxy::http::routes::{
    ClientSettings, FixedAnswer, HashSource, Http2, Https, Mirror, RouteAction, RouteLimits,
    RouteTarget, Routes, StickyCookie,
};
use sha2::{Digest, Sha256};

use crate::control_plane::{ControlPlane, tls_routes};

/// Memory for the clients that have sent floods, in bytes: 8,000 clients.
const FLOODS_BYTES_MAX: usize = 1 << 16;

/// Memory for the clients of a rate limit, in bytes: 130,000 clients.
const RATE_BYTES_MAX: usize = 1 << 20;

/// Parts of an HTTP service's snapshot that change with its plan only.
#[derive(Clone)]
pub(in crate::control_plane) struct HttpParts {
    pub(super) routes: Option<Arc<Routes>>,
    pub(super) clients: Arc<ClientSettings>,
    key: Arc<HashKey>,
}

impl ControlPlane {
    /// Compiles the routes of all services. Called when all services of a plan exist, because
    /// routes lead to other services.
    pub(in crate::control_plane) fn adopt_routes(&mut self) {
        let named: Vec<_> = self
            .services
            .iter()
            .map(|one| (one.plan.name.clone(), Arc::downgrade(&one.service)))
            .collect();
        let find = |name: &str| {
            let found = named.iter().find(|(known, _)| known == name);
            found.map_or_else(Weak::new, |(_, service)| Weak::clone(service))
        };
        for managed in &mut self.services {
            managed.tls_routes = tls_routes::compile(&managed.plan.tls_routes, &find);
            managed.http_parts =
                managed
                    .plan
                    .http()
                    .zip(managed.service.http())
                    .map(|(plan, shared)| {
                        let key = key_of(&managed.plan.name, plan, self.acme.secret());
                        parts(key, (plan, shared), &find)
                    });
        }
    }
}

fn parts(
    key: HashKey,
    (plan, shared): (&HttpPlan, &HttpService),
    find: &impl Fn(&str) -> Weak<Service>,
) -> HttpParts {
    let stats = shared.adopt_routes(plan.routes.iter().map(|route| &*route.name));
    let action = |(route, stats): (&RoutePlan, Arc<RouteStats>)| Route {
        conditions: route.conditions.clone(),
        protects: route.protects(),
        target: action((route, stats), &key, find),
    };
    let routes: Vec<_> = plan.routes.iter().zip(stats).map(action).collect();
    HttpParts {
        routes: (!routes.is_empty()).then(|| {
            Arc::new(Routes {
                table: RouteTable::new(routes),
            })
        }),
        clients: Arc::new(ClientSettings {
            compress: plan.compress.settings(),
            floods: floods(plan.limits.http2_floods_per_minute, key.clone()),
            ..clients(&plan.clients)
        }),
        key: Arc::new(key),
    }
}

/// Returns a key that instances with the same configuration share, and clients do not know if the
/// service has TLS. `acme_secret` is that of instances whose certificates come by ACME only.
fn key_of(name: &str, plan: &HttpPlan, acme_secret: &[u8]) -> HashKey {
    let mut hasher = Sha256::new();
    hasher.update(name.as_bytes());
    if let Some(tls) = &plan.tls {
        match tls.certificates.first() {
            Some(first) => hasher.update(first.own.key.text.expose().as_bytes()),
            None => hasher.update(acme_secret),
        }
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize()[..16]);
    HashKey::new(bytes)
}

fn action(
    (route, stats): (&RoutePlan, Arc<RouteStats>),
    key: &HashKey,
    find: &impl Fn(&str) -> Weak<Service>,
) -> RouteAction {
    RouteAction {
        stats,
        target: match &route.target {
            plan::RouteTarget::Own => RouteTarget::Own,
            plan::RouteTarget::Service(name) => RouteTarget::Service(find(name)),
            plan::RouteTarget::Split(parts) => {
                let parts = parts.iter();
                RouteTarget::Split(parts.map(|one| (find(&one.service), one.weight)).collect())
            }
            plan::RouteTarget::Redirect(redirect) => RouteTarget::Redirect(redirect.clone()),
            plan::RouteTarget::Respond(answer) => RouteTarget::Respond(FixedAnswer {
                status: answer.status,
                media_type: answer.content.as_ref().map(|content| content.media_type),
                content: answer
                    .content
                    .as_ref()
                    .map(|content| content.text.clone())
                    .unwrap_or_default(),
            }),
        },
        rewrite: route.rewrite.clone(),
        set_request: route.set_request.clone(),
        set_response: route.set_response.clone(),
        remove_request: route.remove_request.clone(),
        allow_from: route.allow_from.clone(),
        basic_auth: route.basic_auth.as_ref().map(|auth| {
            let users = auth.users.iter();
            let users = users.map(|(name, hash)| (name.clone(), hash.expose().to_owned()));
            BasicAuth::new(&auth.realm, users, auth.cost_max)
        }),
        rate: route
            .rate
            .map(|limit| Arc::new(RateTable::new(limit, RATE_BYTES_MAX, key.clone()))),
        limits: RouteLimits {
            body: route.limits.body_bytes_max.map(super::body_bytes),
            request: route.limits.request_ms.map(Duration::from_millis),
        },
        mirror: route.mirror.as_ref().map(|mirror| Mirror {
            service: find(&mirror.service),
            percent: mirror.percent,
            in_flight_max: mirror.in_flight,
            set_request: mirror.set_request.clone(),
            remove_request: mirror.remove_request.clone(),
        }),
    }
}

fn floods(per_minute: u32, key: HashKey) -> Option<RateTable> {
    let limit = RateLimit {
        requests: per_minute,
        period_ms: 60_000,
    };
    (per_minute > 0).then(|| RateTable::new(limit, FLOODS_BYTES_MAX, key))
}

fn clients(plan: &HttpClientsPlan) -> ClientSettings {
    ClientSettings {
        https: match plan.https {
            plan::Https::Off => Https::Off,
            plan::Https::Redirect => Https::Redirect,
            plan::Https::Only => Https::Only,
        },
        http2: match plan.http2 {
            plan::Http2::Off => Http2::Off,
            plan::Http2::Tls => Http2::Tls,
            plan::Http2::All => Http2::All,
        },
        hsts: (plan.hsts_days > 0)
            .then(|| format!("max-age={}", u64::from(plan.hsts_days) * 86_400)),
        forwarded_from: (!plan.forwarded_from.is_empty())
            .then(|| TrustedProxies::new(plan.forwarded_from.clone())),
        hash: match &plan.hash {
            HashKeyPlan::Address => HashSource::Address,
            HashKeyPlan::Header(name) => HashSource::Header(name.clone()),
            HashKeyPlan::Cookie(name) => HashSource::Cookie(name.clone()),
            HashKeyPlan::Path => HashSource::Path,
        },
        error_pages: ErrorPages::new(plan.error_pages.iter().map(error_page).collect()),
        makes_request_ids: plan.makes_request_ids,
        compress: None,
        floods: None,
    }
}

fn error_page(plan: &ErrorPagePlan) -> ErrorPage {
    ErrorPage {
        first: plan.first,
        last: plan.last,
        media_type: plan.content.media_type,
        content: plan.content.text.clone(),
    }
}

/// Returns the cookie that keeps clients on their servers.
pub(super) fn sticky_cookie(
    plan: &StickyPlan,
    parts: &HttpParts,
    members: &[Member],
) -> StickyCookie {
    let mut attributes = "; Path=/; HttpOnly".to_owned();
    if plan.ttl_ms > 0 {
        attributes.push_str(&format!("; Max-Age={}", plan.ttl_ms.div_ceil(1_000)));
    }
    attributes.push_str(match plan.same_site {
        SameSite::Strict => "; SameSite=Strict",
        SameSite::Lax => "; SameSite=Lax",
        SameSite::None => "; SameSite=None",
    });
    StickyCookie {
        name: plan.cookie.clone(),
        attributes,
        servers: StickyServers::new(&parts.key, members, 0),
    }
}

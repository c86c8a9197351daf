//! Reads `[[service.route]]` of a tcp service: the server names of TLS that a route takes.

use evenkeel_policy::http::route::{Conditions, HostPattern};

use super::{RouteSpans, read_hosts};
use crate::keys;
use crate::plan::{RoutePlan, RouteTarget, TlsRoutesPlan};
use crate::problem::Problems;
use crate::reader::Table;
use crate::setting::Settings;

/// Keys of such a route.
const KEYS: [&str; 2] = ["host", "to"];

/// Reads the routes of a service, in order, and the limit of what they wait for.
pub(crate) fn read(
    service: &Table<'_>,
    problems: &mut Problems,
) -> (TlsRoutesPlan, Vec<RouteSpans>) {
    let mut plan = TlsRoutesPlan::of(service, problems);
    let mut spans = Vec::new();
    for table in service.tables("route", &keys::ROUTE, problems) {
        plan.routes
            .push(read_one(&table, plan.routes.len() + 1, problems));
        spans.push(RouteSpans::of(&table));
    }
    let span = service.key_span("hello_timeout_ms");
    if span.is_some() && service.value("route").is_none() {
        let message = "`hello_timeout_ms` has no effect in a service without routes";
        let help = "remove it, or add a [[service.route]]";
        problems.warning(&span, "W_NO_EFFECT", message, help);
    }
    (plan, spans)
}

fn read_one(table: &Table<'_>, number: usize, problems: &mut Problems) -> RoutePlan {
    refuse_other_keys(table, problems);
    let hosts = read_hosts(table, problems);
    if table.value("host").is_none() && !table.has_unknown {
        let message = "this route has no `host`";
        let help = "add `host = \"shop.example\"`; clients that no route takes use the service's \
                    own `servers`";
        problems.error(&table.span, "E_MISSING_KEY", message, help);
    }
    if let Some(address) = hosts.iter().find(|host| is_address(host)) {
        let message = format!("`{address}` never matches: TLS sends names of hosts, not addresses");
        let help = "write the name by which clients connect; without one, they use the service's \
                    own `servers`";
        problems.error(&table.value_span("host"), "E_VALUE", message, help);
    }
    let target = table.text("to", problems);
    let target = target.map_or(RouteTarget::Own, |name| {
        RouteTarget::Service(name.to_owned())
    });
    let conditions = Conditions {
        hosts,
        ..Conditions::default()
    };
    RoutePlan::new(conditions, target, number)
}

/// Reports keys that need a request, which `tcp` does not read.
fn refuse_other_keys(table: &Table<'_>, problems: &mut Problems) {
    let names = keys::ROUTE.keys().map(|key| key.name);
    for key in names.filter(|key| !KEYS.contains(key) && table.value(key).is_some()) {
        let message = format!("`{key}` is for `protocol = \"http\"`, not for `tcp`");
        let help = "a route of a tcp service has `host` and `to` only: it knows the server name of \
                    TLS, and no request";
        problems.error(&table.key_span(key), "E_PROTOCOL_KEY", message, help);
    }
}

fn is_address(host: &HostPattern) -> bool {
    let (HostPattern::Exact(name) | HostPattern::Suffix(name)) = host;
    let last = name.rsplit('.').next().unwrap_or(name);
    name.starts_with('[') || last.bytes().all(|byte| byte.is_ascii_digit())
}

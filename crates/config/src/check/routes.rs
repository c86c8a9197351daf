//! Checks routes: their targets, their order, and services that none leads to.

use crate::nearest::nearest;
use crate::plan::{
    MirrorPlan, ProtocolInfo, RoutePlan, RouteTarget, ServerConnections, ServicePlan, route_table,
};
use crate::problem::{Problems, SourceSpan};
use crate::route::RouteSpans;
use crate::service::{Draft, NO_LISTEN, NO_LISTEN_HELP};

/// Checks the routes of all services.
pub(crate) fn check(drafts: &[Draft], problems: &mut Problems) {
    for draft in drafts {
        for (route, spans) in routes(draft) {
            for name in route.target.services() {
                let own_help = "leave `to` out: the route then uses the servers of its service";
                check_service(name, (&spans.to, own_help), draft, drafts, problems);
            }
            if matches!(route.target, RouteTarget::Own) {
                check_own(spans, draft, problems);
            }
            if let Some(mirror) = &route.mirror {
                check_mirror(mirror, (route, spans), draft, drafts, problems);
            }
        }
        shadowed(draft, problems);
        check_listen(draft, drafts, problems);
    }
}

fn routes(draft: &Draft) -> impl Iterator<Item = (&RoutePlan, &RouteSpans)> {
    draft.plan.routes().iter().zip(&draft.spans.routes)
}

/// Returns the names of the services whose servers the requests of a route or their copies reach.
fn services(route: &RoutePlan) -> impl Iterator<Item = &str> {
    let mirror = route.mirror.as_ref().map(|mirror| &*mirror.service);
    route.target.services().chain(mirror)
}

/// Returns whether routes of the one service may lead to the other.
fn are_alike(one: &ServicePlan, other: &ServicePlan) -> bool {
    one.protocol_info().connections == other.protocol_info().connections
}

fn is_tcp(plan: &ServicePlan) -> bool {
    plan.protocol_info().connections == ServerConnections::PerClient
}

fn has_routes(draft: &Draft) -> bool {
    !draft.plan.routes().is_empty()
}

/// Returns what routes of the service take.
fn noun(plan: &ServicePlan) -> &'static str {
    if is_tcp(plan) { "clients" } else { "requests" }
}

/// Checks the name of another service at a place. `own_help` is for that of the route's service.
fn check_service(
    name: &str,
    (span, own_help): (&SourceSpan, &str),
    own: &Draft,
    drafts: &[Draft],
    problems: &mut Problems,
) {
    let (message, help) = match drafts.iter().find(|draft| draft.plan.name == name) {
        Some(target) if target.plan.name == own.plan.name => (
            format!("`{name}` is the service of this route"),
            own_help.to_owned(),
        ),
        Some(target) if !are_alike(&own.plan, &target.plan) => (
            format!(
                "service `{name}` has `protocol = \"{}\"`",
                target.plan.protocol_info().name
            ),
            format!(
                "name a service with `protocol = \"{}\"`",
                own.plan.protocol_info().name
            ),
        ),
        Some(target) if target.plan.servers.is_empty() => (
            format!("service `{name}` has no servers of its own"),
            "name the service that its routes lead to".to_owned(),
        ),
        Some(_) => return,
        None => (
            format!("there is no service `{name}`"),
            unknown_help(name, own, drafts),
        ),
    };
    problems.error(span, "E_UNKNOWN_SERVICE", message, help);
}

/// Reports a mirror that gets no copies, or that gets those of its own requests.
fn check_mirror(
    mirror: &MirrorPlan,
    (route, spans): (&RoutePlan, &RouteSpans),
    own: &Draft,
    drafts: &[Draft],
    problems: &mut Problems,
) {
    let name = &*mirror.service;
    // An empty name is one of a wrong type, which is reported.
    if name.is_empty() {
        return;
    }
    let help = "name another service, whose servers get the copies";
    if route.target.services().any(|target| target == name) {
        let message = format!("`{name}` answers the requests of this route, and is no mirror");
        problems.error(&spans.mirror, "E_UNKNOWN_SERVICE", message, help);
        return;
    }
    check_service(name, (&spans.mirror, help), own, drafts, problems);
}

fn unknown_help(name: &str, own: &Draft, drafts: &[Draft]) -> String {
    let alike = drafts
        .iter()
        .filter(|draft| are_alike(&own.plan, &draft.plan));
    let names = alike.map(|draft| draft.plan.name.as_str());
    let ProtocolInfo { name: protocol, .. } = own.plan.protocol_info();
    match nearest(name, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            format!(
                "add a [[service]] of this name, with `protocol = \"{protocol}\"` and `servers`"
            )
        }
    }
}

/// Reports a route without a target in a service without servers.
fn check_own(spans: &RouteSpans, draft: &Draft, problems: &mut Problems) {
    if draft.plan.servers.is_empty() && draft.plan.cluster.is_none() {
        let message = "this route has no target, and its service has no servers";
        let help = match is_tcp(&draft.plan) {
            true => "add `to`, or add `servers` to the service",
            false => "add `to`, `redirect` or `respond`, or add `servers` to the service",
        };
        problems.error(&spans.route, "E_MISSING_KEY", message, help);
    }
}

/// Reports routes that never match.
fn shadowed(draft: &Draft, problems: &mut Problems) {
    let taken = noun(&draft.plan);
    let place = |index: usize| -> SourceSpan { draft.spans.routes.get(index)?.route.clone() };
    for shadow in route_table(draft.plan.routes()).shadowed() {
        let message = match shadow.by.len() {
            1 => format!("this route never matches: an earlier one takes all of its {taken}"),
            _ => format!("this route never matches: earlier ones take all of its {taken}"),
        };
        let help = "move it before that route, or remove it";
        let problem = problems.warning(&place(shadow.route), "W_NO_EFFECT", message, help);
        if let Some(first) = shadow.by.first() {
            problem.with_other(&place(*first), "the earlier route is");
        }
    }
}

/// Reports a service that no client can reach, and routes of one that no client connects to.
fn check_listen(draft: &Draft, drafts: &[Draft], problems: &mut Problems) {
    let Draft { plan, spans } = draft;
    // A service without a place is that of the command line, where `--listen` is required.
    let is_reported = spans.listen_key.is_some() || spans.service.is_none();
    if plan.database().is_some() || !plan.listen.is_empty() || is_reported {
        return;
    }
    let is_it = |route: &RoutePlan| services(route).any(|name| name == plan.name);
    if let Some(first) = spans.routes.first() {
        let message = "routes have no effect in a service without `listen`";
        let help = "add `listen`, or move the routes to the service that clients connect to";
        problems.warning(&first.route, "W_NO_EFFECT", message, help);
    }
    if !drafts
        .iter()
        .flat_map(routes)
        .any(|(route, _)| is_it(route))
    {
        let port = if is_tcp(plan) { 443 } else { 80 };
        let (message, help) = match is_tcp(plan) && !drafts.iter().any(has_routes) {
            true => (NO_LISTEN, NO_LISTEN_HELP.to_owned()),
            false => (
                "this service has no `listen` address, and no route leads to it",
                format!(
                    "add `listen = \"*:{port}\"`, or a route with `to = \"{}\"`",
                    plan.name
                ),
            ),
        };
        problems.error(&spans.service, "E_MISSING_KEY", message, help);
    }
}

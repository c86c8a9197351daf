//! Explains the way of a request of HTTP: its route, its servers, and what is changed in it.

use evenkeel_config::plan::{HttpPlan, Https, RoutePlan, RouteTarget, ServicePlan, route_table};
use evenkeel_policy::http::path::normalised;
use evenkeel_policy::http::redirect::Redirect;
use evenkeel_policy::http::route::{OutrankedBy, RouteRequest, Verdict};

use crate::status::{Explanation, Question};

/// Request as the command line names it.
struct Request<'a> {
    method: &'a str,
    is_https: bool,
    host: &'a str,
    path: &'a str,
    /// Query with its `?`; empty: there is none.
    query: &'a str,
}

/// Returns the explanation of a text such as `GET https://shop.example/api/x`, or `None` if it is
/// no request.
pub(crate) fn explain_request<'a>(
    question: &Question,
    services: impl Iterator<Item = &'a ServicePlan> + Clone,
) -> Option<Result<Explanation, String>> {
    let request = parsed(&question.sql)?;
    let found = find(services.clone(), question.service.as_deref());
    Some(found.map(|(service, http)| explain(&request, service, http, services)))
}

fn parsed(text: &str) -> Option<Request<'_>> {
    let text = text.trim();
    let (method, url) = match text.split_once(' ') {
        Some((method, url)) => (method, url.trim()),
        None => ("GET", text),
    };
    let (scheme, rest) = url.split_once("://")?;
    let is_https = match scheme {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let path = Some(path).filter(|path| !path.is_empty());
    Some(Request {
        method,
        is_https,
        host,
        path: path.unwrap_or("/"),
        query,
    })
}

fn find<'a>(
    services: impl Iterator<Item = &'a ServicePlan>,
    wanted: Option<&str>,
) -> Result<(&'a ServicePlan, &'a HttpPlan), String> {
    let all = services.filter_map(|service| Some((service, service.http()?)));
    let reachable = all.filter(|(service, _)| !service.listen.is_empty());
    let all: Vec<_> = reachable.collect();
    match (wanted, all.as_slice()) {
        (_, []) => Err("no service has `protocol = \"http\"` and `listen`".to_owned()),
        (None, [only]) => Ok(*only),
        (None, _) => Err("several services receive requests, choose one with --service".to_owned()),
        (Some(wanted), _) => {
            let found = all.iter().find(|(service, _)| service.name == wanted);
            found
                .copied()
                .ok_or_else(|| format!("service {wanted:?} does not receive requests"))
        }
    }
}

fn explain<'a>(
    request: &Request<'_>,
    service: &ServicePlan,
    http: &HttpPlan,
    services: impl Iterator<Item = &'a ServicePlan> + Clone,
) -> Explanation {
    let mut explanation = Explanation {
        service: service.name.clone(),
        ..Explanation::default()
    };
    if let Some((target, why)) = without_tls(request, http) {
        explanation.target = target.to_owned();
        explanation.why = format!("{why} ([service.http] https)");
        return explanation;
    }
    let normal = normalised(request.path.as_bytes());
    let facts = RouteRequest {
        host: request.host.as_bytes(),
        path: &normal.path,
        method: request.method.as_bytes(),
    };
    let table = route_table(&http.routes);
    // Fields are not part of the question.
    let candidates = table.explain(&facts, |_| false);
    let (mut chosen, mut others) = (None, Vec::new());
    for candidate in candidates {
        let name = name_of(candidate.route, &http.routes);
        match candidate.verdict {
            Verdict::Chosen => chosen = Some((candidate.route, name)),
            verdict => others.push(format!("{name}: {}", reason(verdict))),
        }
    }
    if http
        .routes
        .iter()
        .any(|route| !route.conditions.headers.is_empty())
    {
        let assumed = "the request has none of the fields that routes require";
        explanation.assumed.push(assumed.to_owned());
    }
    if let Some(ambiguity) = normal.ambiguity
        && table.guards(request.host.as_bytes())
    {
        explanation.target = "an error (400)".to_owned();
        explanation.why = format!(
            "servers may read the path differently ({}), and a route restricts access",
            ambiguity.text()
        );
        return explanation;
    }
    explanation.obstacles = others;
    match chosen {
        Some((index, name)) => {
            let route = &http.routes[index];
            explanation.why = format!("{name} matches first");
            describe(route, request, service, services, &mut explanation);
            explanation.changes = changes(route, request.path);
        }
        None if service.servers.is_empty() => {
            explanation.target = "an error (404)".to_owned();
            explanation.why = "no route matches, and the service has no servers".to_owned();
        }
        None => {
            explanation.target = "its own servers".to_owned();
            explanation.why = "no route matches".to_owned();
            explanation.servers = names(service);
        }
    }
    explanation
}

/// Returns the treatment of a request without TLS, if it is not served.
fn without_tls(request: &Request<'_>, http: &HttpPlan) -> Option<(&'static str, &'static str)> {
    if http.tls.is_none() || request.is_https {
        return None;
    }
    match http.clients.https {
        Https::Off => None,
        Https::Redirect => Some(("the same URL with https", "plaintext is redirected")),
        Https::Only => Some(("an error (403)", "plaintext is refused")),
    }
}

fn describe<'a>(
    route: &RoutePlan,
    request: &Request<'_>,
    service: &ServicePlan,
    mut services: impl Iterator<Item = &'a ServicePlan>,
    explanation: &mut Explanation,
) {
    explanation.target = match &route.target {
        RouteTarget::Own => {
            explanation.servers = names(service);
            "its own servers".to_owned()
        }
        RouteTarget::Service(name) => {
            let target = services.find(|service| service.name == *name);
            explanation.servers = target.map(names).unwrap_or_default();
            format!("service {name}")
        }
        RouteTarget::Split(parts) => {
            let of_parts =
                services.filter(|one| route.target.services().any(|name| name == one.name));
            explanation.servers = of_parts.flat_map(names).collect();
            let assumed = "the client has no cookie of [service.sticky] for one of these servers";
            explanation.assumed.push(assumed.to_owned());
            let total: u32 = parts.iter().map(|part| part.weight).sum();
            let parts = parts.iter();
            let parts = parts.map(|part| format!("{} ({} of {total})", part.service, part.weight));
            format!(
                "one of the services {}",
                parts.collect::<Vec<_>>().join(", ")
            )
        }
        RouteTarget::Redirect(redirect) => redirection(route, redirect, request),
        RouteTarget::Respond(answer) => format!("an answer with status {}", answer.status),
    };
    describe_mirror(route, &mut explanation.assumed, &mut explanation.target);
    if let Some(networks) = &route.allow_from {
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        let assumed = format!("the client is in {}", networks.join(", "));
        explanation.assumed.push(assumed);
    }
    if let Some(auth) = &route.basic_auth {
        let users = auth.users.len();
        let assumed = format!("the client sends the password of one of {users} users");
        explanation.assumed.push(assumed);
    }
    if let Some(rate) = &route.rate {
        let (requests, period_ms) = (rate.requests, rate.period_ms);
        let assumed = format!(
            "the client sends at most {requests} {} in {period_ms} ms",
            request.method
        );
        explanation.assumed.push(assumed);
    }
    if let Some(bytes @ 1..) = route.limits.body_bytes_max {
        let assumed = format!("the body has at most {bytes} bytes");
        explanation.assumed.push(assumed);
    }
    if let Some(time_ms @ 1..) = route.limits.request_ms {
        let assumed = format!("the response is complete within {time_ms} ms");
        explanation.assumed.push(assumed);
    }
}

/// Adds the mirror of a route to the target of a request that is assumed to have no body.
fn describe_mirror(route: &RoutePlan, assumed: &mut Vec<String>, target: &mut String) {
    let Some(mirror) = route.mirror.as_ref().filter(|_| route.target.has_servers()) else {
        return;
    };
    let name = &mirror.service;
    let copied = match mirror.percent {
        100 => format!(", with a copy to service {name}"),
        percent => format!(", with a copy of {percent} % of the requests to service {name}"),
    };
    target.push_str(&copied);
    assumed.push("the request has no body, and is no upgrade".to_owned());
}

/// Returns the redirect of a request, with its status.
fn redirection(route: &RoutePlan, redirect: &Redirect, request: &Request<'_>) -> String {
    let path = sent_path(route, request.path);
    let location = redirect.location(&path, request.query.as_bytes());
    let (status, location) = (redirect.status, String::from_utf8_lossy(&location));
    format!("a redirect with status {status} to {location}")
}

/// Returns a path as the route rewrites it.
fn sent_path(route: &RoutePlan, path: &str) -> Vec<u8> {
    let normal = normalised(path.as_bytes());
    route.rewrite.apply(path.as_bytes(), &normal).concat()
}

/// Returns the changes that a route makes to a request and its response.
fn changes(route: &RoutePlan, path: &str) -> Vec<String> {
    let sent = sent_path(route, path);
    let sent = String::from_utf8_lossy(&sent);
    let mut changes = Vec::new();
    if sent != path && !matches!(route.target, RouteTarget::Redirect(_)) {
        changes.push(format!("path {sent}"));
    }
    let set = |(name, value): &(String, String)| format!("set {name}: {value}");
    changes.extend(route.set_request.iter().map(set));
    if route.basic_auth.is_some() {
        changes.push("remove Authorization".to_owned());
    }
    let removed = route.remove_request.iter();
    changes.extend(removed.map(|name| format!("remove {name}")));
    if let Some(mirror) = &route.mirror {
        let set_in_copy = mirror.set_request.iter().map(set);
        changes.extend(set_in_copy.map(|change| format!("{change} in the copy")));
        let removed = mirror.remove_request.iter();
        changes.extend(removed.map(|name| format!("remove {name} in the copy")));
    }
    let of_response = route.set_response.iter().map(set);
    changes.extend(of_response.map(|change| format!("{change} in the response")));
    changes
}

pub(super) fn names(service: &ServicePlan) -> Vec<String> {
    let servers = service.servers.iter();
    servers.map(|server| server.name.clone()).collect()
}

/// Returns the number and the name of a route.
pub(super) fn name_of(index: usize, routes: &[RoutePlan]) -> String {
    let number = format!("route {}", index + 1);
    match routes.get(index) {
        Some(route) if route.name != number => format!("{number} ({})", route.name),
        _ => number,
    }
}

pub(super) fn reason(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Chosen => "chosen",
        Verdict::Outranked(OutrankedBy::Host) => "its host is less specific",
        Verdict::Outranked(OutrankedBy::Path) => "its path is shorter",
        Verdict::Outranked(OutrankedBy::Order) => "it comes later in the file",
        Verdict::OtherHost => "another host",
        Verdict::OtherPath => "another path",
        Verdict::OtherMethod => "another method",
        Verdict::OtherHeader(_) => "it requires a field",
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_config::{Sources, parse};

    use super::*;

    const FILE: &str = "\
        [[service]]\nname = 'web'\nprotocol = 'http'\nlisten = '*:80'\nservers = ['a:80']\n\
        [[service.route]]\nhost = ['shop.example']\npath = '/api/'\nto = 'api'\n\
        strip_prefix = '/api'\nset_request = { X-Env = 'prod' }\n\
        [[service.route]]\npath = '=/old'\nredirect = 'https://shop.example/new'\n\
        [[service.route]]\npath = '/api/'\nrespond = { status = 404 }\n\
        [[service.route]]\nhost = 'old.example'\npath = '/a/'\nstrip_prefix = '/a'\n\
        redirect = 'https://new.example'\nredirect_status = 301\nkeep_path = true\n\
        [[service]]\nname = 'api'\nprotocol = 'http'\nservers = ['b:80', 'c:80']\n";

    fn explained(text: &str) -> Explanation {
        let plan = parse(FILE, None, &Sources::default());
        let plan = plan.plan.expect("a valid file");
        let question = Question {
            sql: text.to_owned(),
            ..Question::default()
        };
        let explained = explain_request(&question, plan.services.iter());
        explained.expect("a request").expect("an explanation")
    }

    #[test]
    fn a_request_is_explained_by_its_route() {
        let api = explained("GET https://shop.example/api/x?y");
        assert_eq!(api.target, "service api");
        assert_eq!(api.servers, ["b:80", "c:80"]);
        assert_eq!(api.changes, ["path /x", "set X-Env: prod"]);
        assert_eq!(api.obstacles.len(), 3, "{:?}", api.obstacles);
        let other_host = explained("https://other.example/api/x");
        assert_eq!(other_host.target, "an answer with status 404");
        let old = explained("POST http://shop.example:8080/old");
        let to = "a redirect with status 307 to https://shop.example/new";
        assert_eq!(old.target, to);
        let moved = explained("http://old.example/a/b?c=d");
        let to = "a redirect with status 301 to https://new.example/b?c=d";
        assert_eq!((&*moved.target, moved.changes.len()), (to, 0));
        let own = explained("http://shop.example/");
        assert_eq!(
            (&*own.target, own.servers),
            ("its own servers", vec!["a:80".to_owned()])
        );
    }

    #[test]
    fn a_statement_is_no_request() {
        assert!(parsed("SELECT 'http://x'").is_none());
        assert!(parsed("select 1").is_none());
    }
}

//! Explains the way of a TLS client through a tcp service: its route and its servers.

use evenkeel_config::plan::{RouteTarget, ServicePlan, route_table};
use evenkeel_policy::http::route::{RouteRequest, Verdict};

use super::request::{name_of, names, reason};
use crate::status::{Explanation, Question};

/// Returns the explanation of a text such as `tls://shop.example`, or `None` if it is another one.
pub(crate) fn explain_server_name<'a>(
    question: &Question,
    services: impl Iterator<Item = &'a ServicePlan> + Clone,
) -> Option<Result<Explanation, String>> {
    let rest = question.sql.trim().strip_prefix("tls://")?;
    let host = rest.split([':', '/']).next().unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host);
    let found = find(services.clone(), question.service.as_deref());
    Some(found.map(|service| explain(host, service, services)))
}

fn find<'a>(
    services: impl Iterator<Item = &'a ServicePlan>,
    wanted: Option<&str>,
) -> Result<&'a ServicePlan, String> {
    let all = services
        .filter(|service| !service.tls_routes.routes.is_empty() && !service.listen.is_empty());
    let all: Vec<_> = all.collect();
    match (wanted, all.as_slice()) {
        (_, []) => Err("no service has `protocol = \"tcp\"`, `listen` and routes".to_owned()),
        (None, [only]) => Ok(*only),
        (None, _) => Err("several tcp services have routes, choose one with --service".to_owned()),
        (Some(wanted), _) => {
            let found = all.iter().find(|service| service.name == wanted);
            found
                .copied()
                .ok_or_else(|| format!("service {wanted:?} has no routes by server name"))
        }
    }
}

fn explain<'a>(
    host: &str,
    service: &'a ServicePlan,
    mut services: impl Iterator<Item = &'a ServicePlan>,
) -> Explanation {
    let mut explanation = Explanation {
        service: service.name.clone(),
        ..Explanation::default()
    };
    let request = RouteRequest {
        host: host.as_bytes(),
        path: b"/",
        method: b"",
    };
    let routes = service.routes();
    let mut chosen = None;
    for candidate in route_table(routes).explain(&request, |_| false) {
        let name = name_of(candidate.route, routes);
        match candidate.verdict {
            Verdict::Chosen => chosen = Some((&routes[candidate.route].target, name)),
            verdict => explanation
                .obstacles
                .push(format!("{name}: {}", reason(verdict))),
        }
    }
    let (target, why) = match chosen {
        Some((RouteTarget::Service(target), route)) => {
            let found = services.find(|service| service.name == *target);
            explanation.servers = found.map(names).unwrap_or_default();
            (
                format!("service {target}"),
                format!("{route} matches first"),
            )
        }
        Some((_, route)) => {
            explanation.servers = names(service);
            (
                "its own servers".to_owned(),
                format!("{route} matches first"),
            )
        }
        None if service.servers.is_empty() => (
            "no server: the client is closed".to_owned(),
            "no route matches, and the service has no servers".to_owned(),
        ),
        None => {
            explanation.servers = names(service);
            ("its own servers".to_owned(), "no route matches".to_owned())
        }
    };
    (explanation.target, explanation.why) = (target, why);
    explanation
}

#[cfg(test)]
mod tests {
    use evenkeel_config::{Sources, parse};

    use super::*;

    const FILE: &str = "\
        [[service]]\nname = 'tls'\nlisten = '*:443'\nservers = ['a:443']\n\
        [[service.route]]\nhost = '*.pay.example'\nto = 'pay'\n\
        [[service.route]]\nhost = 'old.pay.example'\n\
        [[service]]\nname = 'pay'\nservers = ['b:443', 'c:443']\n";

    #[test]
    fn a_server_name_is_explained_by_its_route() {
        let explained = |text: &str, file: &str| {
            let plan = parse(file, None, &Sources::default());
            let plan = plan.plan.expect("a valid file");
            let question = Question {
                sql: text.to_owned(),
                ..Question::default()
            };
            explain_server_name(&question, plan.services.iter()).map(Result::unwrap)
        };
        let pay = explained("tls://WWW.pay.example.:443", FILE).expect("a name");
        assert_eq!((&*pay.target, &*pay.service), ("service pay", "tls"));
        assert_eq!(pay.servers, ["b:443", "c:443"]);
        assert_eq!(pay.why, "route 1 (*.pay.example) matches first");
        let old = explained("tls://old.pay.example", FILE).expect("a name");
        assert_eq!(
            (&*old.target, &*old.servers),
            ("its own servers", &["a:443".to_owned()][..])
        );
        let reasons = ["route 1 (*.pay.example): its host is less specific"];
        assert_eq!(old.obstacles, reasons);
        let other = explained("tls://other.example", FILE).expect("a name");
        assert_eq!(
            (&*other.target, &*other.why),
            ("its own servers", "no route matches")
        );
        let without = FILE.replace("servers = ['a:443']\n", "").replace(
            "host = 'old.pay.example'\n",
            "host = 'old.pay.example'\nto = 'pay'\n",
        );
        let other = explained("tls://other.example", &without).expect("a name");
        assert_eq!(other.target, "no server: the client is closed");
        assert!(explained("https://other.example", FILE).is_none());
    }
}

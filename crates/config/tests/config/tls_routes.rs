//! Tests the routes of tcp services by the server name of TLS.

use evenkeel_config::plan::{RouteTarget, TlsRoutesPlan};

use super::wrong::check;
use super::{plan, postgres, service};

/// Returns a tcp service and another one, `pay`, that only routes reach. `lines` begin in line 5.
fn with_pay(lines: &str) -> String {
    let pay = "\n[[service]]\nname = 'pay'\nservers = ['db3:443']\n";
    format!("{}{pay}", service(lines))
}

fn routes(lines: &str) -> TlsRoutesPlan {
    plan(&with_pay(lines)).services.remove(0).tls_routes
}

#[test]
fn a_route_has_hosts_and_a_service() {
    let plan = routes(
        "hello_timeout_ms = 7000\n[[service.route]]\nhost = ['Pay.example', '*.pay.example']\n\
         to = 'pay'\n[[service.route]]\nhost = 'a.pay.example'\n",
    );
    assert_eq!(plan.hello_timeout_ms, 7_000);
    let [first, second] = plan.routes.as_slice() else {
        panic!("{plan:#?}");
    };
    let hosts = first.conditions.hosts.iter().map(ToString::to_string);
    assert_eq!(hosts.collect::<Vec<_>>(), ["pay.example", "*.pay.example"]);
    assert_eq!(first.target, RouteTarget::Service("pay".to_owned()));
    assert_eq!(second.target, RouteTarget::Own);
    let default = routes("[[service.route]]\nhost = 'a'\nto = 'pay'\n");
    assert_eq!(default.hello_timeout_ms, 5_000);
}

#[test]
fn a_service_with_routes_needs_no_servers_and_a_target_no_listen() {
    let text = with_pay("[[service.route]]\nhost = 'a'\nto = 'pay'\n");
    let without = text.replace("servers = [\"db1:3306\", \"db2:3306\"]\n", "");
    let services = plan(&without).services;
    assert!(services[0].servers.is_empty() && services[1].listen.is_empty());
    let unused = with_pay("");
    let words = "address / add `listen = \"127.0.0.1:3306\"`";
    check(&unused, "E_MISSING_KEY 6:1", words);
    let other = with_pay("[[service.route]]\nhost = 'a'\n");
    check(&other, "E_MISSING_KEY 8:1", "a route with `to = \"pay\"`");
    let own = "[[service]]\nname = 'a'\nlisten = '*:443'\n[[service.route]]\nhost = 'a'\n";
    check(own, "E_MISSING_KEY 4:1", "add `to`, or add `servers`");
}

#[test]
fn keys_that_need_a_request_are_refused() {
    let check_route = |line: &str, expected: &str, words: &str| {
        let lines = format!("[[service.route]]\nhost = 'a'\nto = 'pay'\n{line}\n");
        check(&with_pay(&lines), expected, words);
    };
    for line in [
        "path = '/a'",
        "headers = { A = '1' }",
        "strip_prefix = '/a'",
        "redirect = '/a'",
        "allow_from = '10.0.0.0/8'",
        "request_ms = 1",
        "name = 'a'",
    ] {
        check_route(line, "E_PROTOCOL_KEY 8:1", "has `host` and `to` only");
    }
    check_route("hots = 'a'", "E_UNKNOWN_KEY 8:1", "did you mean `host`?");
}

#[test]
fn hosts_and_targets_are_checked() {
    let check_route = |lines: &str, expected: &str, words: &str| {
        let text = with_pay(&format!("[[service.route]]\n{lines}\n"));
        let text = text.replace("name = 'pay'", "name = 'pay'\nlisten = '*:444'");
        check(&text, expected, words);
    };
    check_route("to = 'pay'", "E_MISSING_KEY 5:1", "has no `host`");
    for address in ["192.0.2.1", "[2001:db8::1]", "*.1"] {
        let lines = format!("to = 'pay'\nhost = ['a', '{address}']");
        check_route(&lines, "E_VALUE 7:8", "names of hosts, not addresses");
    }
    check_route(
        "to = 'pay'\nhost = 'a:443'",
        "E_VALUE 7:8",
        "without its port",
    );
    check_route(
        "host = 'a'\nto = 'pya'",
        "E_UNKNOWN_SERVICE 7:6",
        "did you mean `pay`?",
    );
    check_route(
        "host = 'a'\nto = 'x'",
        "E_UNKNOWN_SERVICE 7:6",
        "`protocol = \"tcp\"`",
    );
    check_route(
        "host = 'a'\nto = 'a'",
        "E_UNKNOWN_SERVICE 7:6",
        "leave `to` out",
    );
    let web = "[[service.route]]\nhost = 'a'\nto = 'pay'\n";
    let http = "name = 'pay'\nprotocol = 'http'\nlisten = '*:80'";
    let web = with_pay(web).replace("name = 'pay'", http);
    check(&web, "E_UNKNOWN_SERVICE 7:6", "`protocol = \"tcp\"`");
}

#[test]
fn a_route_that_never_matches_is_a_warning() {
    let twice = "[[service.route]]\nhost = 'a.pay.example'\nto = 'pay'\n\
                 [[service.route]]\nhost = 'A.pay.example'\n";
    check(
        &with_pay(twice),
        "W_NO_EFFECT 8:1",
        "takes all of its clients",
    );
}

#[test]
fn a_limit_of_the_hello_without_routes_is_a_warning() {
    check(
        &service("hello_timeout_ms = 1000"),
        "W_NO_EFFECT 5:1",
        "without routes",
    );
    check(
        &postgres("hello_timeout_ms = 1000"),
        "E_PROTOCOL_KEY 6:1",
        "`login_timeout_ms`",
    );
    let route = "[[service.route]]\nhost = 'a'\n";
    let words = "`protocol = \"tcp\"` and `\"http\"`";
    check(&postgres(route), "E_PROTOCOL_KEY 6:11", words);
}

//! Tests the settings of HTTP services: routes, sticky sessions, retries and clients.

use evenkeel_config::plan::{
    HashKeyPlan, HttpPlan, Https, MirrorPlan, RoutePlan, RouteTarget, SameSite, SplitPart,
    route_table,
};
use evenkeel_policy::http::compress::{Coding, DEFAULT_TYPES, MediaRange};
use evenkeel_policy::http::rate::RateLimit;
use evenkeel_policy::http::redirect::Redirect;
use evenkeel_policy::http::replay::ReplaySettings;
use evenkeel_policy::http::rewrite::Rewrite;
use evenkeel_policy::http::route::{HostPattern, PathPattern, RouteRequest};

use super::wrong::check;
use super::{load, plan, service};

/// Returns an HTTP service; `lines` begin in line 6.
fn http(lines: &str) -> String {
    service(&format!("protocol = 'http'\n{lines}"))
}

/// Returns an HTTP service and another one, `api`, that only routes reach. `lines` begin in line 6.
fn with_api(lines: &str) -> String {
    let api = "[[service]]\nname = 'api'\nprotocol = 'http'\nservers = ['db3:80']\n";
    format!("{}{api}", http(lines))
}

fn http_plan(text: &str) -> HttpPlan {
    let service = plan(text).services.remove(0);
    service.http().expect("an HTTP service").clone()
}

fn routes(lines: &str) -> Vec<RoutePlan> {
    let text = match lines.contains("to = 'api'") {
        true => with_api(lines),
        false => http(lines),
    };
    http_plan(&text).routes
}

#[test]
fn a_route_reaches_the_plan_with_all_of_its_parts() {
    let all = routes(
        "[[service.route]]\nhost = ['Shop.example', '*.shop.example']\npath = '/api/'\n\
         methods = ['GET', 'HEAD']\nheaders = { X-Version = '2', X-Beta = true }\nto = 'api'\n\
         strip_prefix = '/api'\nset_request = { X-A = '1' }\nset_response = { X-B = '2' }\n\
         remove_request = ['X-Debug']\nallow_from = ['10.0.0.0/8', '192.0.2.1']\nrate = '600/min'\n",
    );
    let [route] = all.as_slice() else {
        panic!("{all:#?}");
    };
    let conditions = &route.conditions;
    let hosts: Vec<String> = conditions
        .hosts
        .iter()
        .map(HostPattern::to_string)
        .collect();
    assert_eq!(hosts, ["shop.example", "*.shop.example"]);
    assert_eq!(conditions.path, PathPattern::Prefix("/api/".to_owned()));
    assert_eq!(conditions.methods, ["GET", "HEAD"]);
    let header = |name: &str| {
        let found = conditions.headers.iter().find(|header| header.name == name);
        found.expect(name).value.as_deref()
    };
    assert_eq!((header("x-version"), header("x-beta")), (Some("2"), None));
    assert_eq!(route.target, RouteTarget::Service("api".to_owned()));
    assert_eq!(route.rewrite, Rewrite::strip("/api"));
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(route.set_request, [field("X-A", "1")]);
    assert_eq!(route.set_response, [field("X-B", "2")]);
    assert_eq!(route.remove_request, ["X-Debug"]);
    assert_eq!(route.allow_from.as_ref().map(Vec::len), Some(2));
    let rate = RateLimit {
        requests: 600,
        period_ms: 60_000,
    };
    assert_eq!(route.rate, Some(rate));
    assert!(route.protects());
}

#[test]
fn the_table_has_the_routes_of_the_file() {
    let routes = routes(
        "[[service.route]]\npath = '/a'\n[[service.route]]\npath = '/a/b'\n\
         allow_from = '10.0.0.1'\n",
    );
    let table = route_table(&routes);
    let request = RouteRequest {
        host: b"h",
        path: b"/a/b/c",
        method: b"GET",
    };
    assert_eq!(table.find(&request, |_| false), Some(1));
    assert!(table.guards(b"h"));
    assert_eq!(routes[0].target, RouteTarget::Own);
    assert!(!routes[0].protects());
}

#[test]
fn a_route_may_redirect_or_respond_with_the_content_of_a_file() {
    let file = tempfile::Builder::new().suffix(".html").tempfile();
    let file = file.expect("a file");
    std::fs::write(file.path(), "<p>Later").expect("written");
    let lines = format!(
        "[[service.route]]\npath = '/old'\nredirect = 'https://shop.example/new'\n\
         [[service.route]]\nrespond = {{ status = 503, file = '{}' }}\n",
        file.path().display()
    );
    let routes = routes(&lines);
    let redirect = RouteTarget::Redirect(Redirect {
        status: 307,
        location: "https://shop.example/new".to_owned(),
        keeps_path: false,
    });
    assert_eq!(routes[0].target, redirect);
    let RouteTarget::Respond(respond) = &routes[1].target else {
        panic!("{routes:#?}");
    };
    let content = respond.content.as_ref().expect("a content");
    assert_eq!((respond.status, content.text.as_str()), (503, "<p>Later"));
    assert_eq!(content.media_type, "text/html; charset=utf-8");
}

#[test]
fn conditions_that_no_request_meets_are_errors() {
    let check_route = |line: &str, expected: &str, words: &str| {
        check(
            &http(&format!("[[service.route]]\n{line}")),
            expected,
            words,
        );
    };
    check_route(
        "host = 'shop.example:80'",
        "E_VALUE 7:8",
        "without its port",
    );
    check_route("host = ['a', 7]", "E_TYPE 7:14", "must be a string");
    check_route("host = []", "E_VALUE 7:8", "is empty");
    check_route("host = ['a', 'A']", "W_NO_EFFECT 7:14", "twice");
    check_route("path = 'api'", "E_VALUE 7:8", "begin it with `/`");
    check_route("path = '/a//b'", "E_VALUE 7:8", "write `/a/b`");
    check_route("methods = ['get']", "E_VALUE 7:12", "write `GET`");
    check_route("methods = 'CONNECT'", "E_VALUE 7:11", "refused");
    check_route("methods = ['A B']", "E_VALUE 7:12", "is not a method");
    check_route(
        "headers = { 'a b' = true }",
        "E_NAME 7:13",
        "is not the name",
    );
    check_route("headers = { a = false }", "E_TYPE 7:17", "or `true`");
    check_route("hots = 'a'", "E_UNKNOWN_KEY 7:1", "did you mean `host`?");
}

#[test]
fn treatments_that_are_impossible_are_errors() {
    let check_route = |lines: &str, expected: &str, words: &str| {
        check(
            &http(&format!("[[service.route]]\n{lines}")),
            expected,
            words,
        );
    };
    check_route("rate = '100'", "E_VALUE 7:8", "`rate = \"100/s\"`");
    check_route("rate = '0/s'", "E_VALUE 7:8", "1 to 1000000");
    check_route("rate = '5/day'", "E_VALUE 7:8", "`min`");
    check_route("allow_from = []", "E_VALUE 7:14", "status = 403");
    check_route("allow_from = ['x']", "E_ADDRESS 7:15", "not a network");
    check_route(
        "strip_prefix = '/a'",
        "E_VALUE 7:16",
        "`path` does not begin",
    );
    check_route(
        "path = '/ab'\nstrip_prefix = '/a'",
        "E_VALUE 8:16",
        "`path` does not begin",
    );
    check_route("replace_prefix = '/a'", "E_MISSING_KEY 7:1", "add `path");
    check_route(
        "path = '/a'\nreplace_prefix = 'b'",
        "E_VALUE 8:18",
        "is not a path",
    );
    check_route(
        "path = '/a'\nstrip_prefix = '/a'\nreplace_prefix = '/b'",
        "E_BOTH 9:1",
        "keep one",
    );
    check_route(
        "set_request = { Host = 'a' }",
        "E_VALUE 7:17",
        "writes it itself",
    );
    check_route(
        "set_response = { Content-Length = '1' }",
        "E_VALUE 7:18",
        "writes it itself",
    );
    check_route(
        "remove_request = 'X-Forwarded-For'",
        "E_VALUE 7:18",
        "itself",
    );
    check_route(
        "set_request = { X = \"a\\r\\nb\" }",
        "E_VALUE 7:21",
        "printable",
    );
    check_route("set_request = { X = 7 }", "E_TYPE 7:21", "a string");
    check_route(
        "set_request = { X = '1', x = '2' }",
        "E_BOTH 7:26",
        "no case",
    );
    check_route(
        "set_response = { X-Real-IP = 'a', 'a:' = 'b' }",
        "E_NAME 7:35",
        "letters",
    );
}

#[test]
fn passwords_with_hashes_of_several_costs_are_reported() {
    let rest = "CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
    let users = |cost: &str| {
        let users = format!("ann = '$2a$05${rest}', bob = '$2a${cost}${rest}'");
        http(&format!(
            "[[service.route]]\nbasic_auth = {{ users = {{ {users} }} }}\n"
        ))
    };
    check(&users("06"), "W_PASSWORD_COST 7:1", "costs from 5 to 6");
    let (_, problems) = load(&users("05"));
    assert!(problems.is_empty(), "{problems:?}");
    let auth = load(&users("06")).0.and_then(|plan| {
        let http = plan.services[0].http().expect("HTTP");
        http.routes[0].basic_auth.clone()
    });
    assert_eq!(auth.expect("users").cost_max, 6);
}

#[test]
fn redirects_are_checked() {
    let check_route = |lines: &str, expected: &str, words: &str| {
        check(
            &http(&format!("[[service.route]]\n{lines}")),
            expected,
            words,
        );
    };
    check_route(
        "redirect = 'shop.example'",
        "E_VALUE 7:12",
        "is not a location",
    );
    check_route(
        "redirect = '//evil.example/'",
        "E_VALUE 7:12",
        "is not a location",
    );
    for location in [
        "/a b",
        "https://",
        "https:///a",
        "http://@a",
        "https://a@b",
        "/\\a",
    ] {
        let line = format!("redirect = '{location}'");
        check_route(&line, "E_VALUE 7:12", "is not a location");
    }
    check_route(
        "redirect = '/a?b'\nkeep_path = true",
        "E_VALUE 7:12",
        "no path can follow",
    );
    check_route(
        "redirect = '/a'\nredirect_status = 303",
        "E_VALUE 8:19",
        "307 and 308 keep the method",
    );
    check_route(
        "redirect = '/a'\nredirect_status = 200",
        "E_RANGE 8:19",
        "301 to 308",
    );
    check_route("keep_path = true", "W_NO_EFFECT 7:1", "without `redirect`");
    check_route(
        "redirect = '/a'\npath = '/b'\nstrip_prefix = '/b'",
        "W_NO_EFFECT 9:1",
        "answers without a server",
    );
}

#[test]
fn targets_are_checked() {
    let check_route = |lines: &str, expected: &str, words: &str| {
        check(
            &http(&format!("[[service.route]]\n{lines}")),
            expected,
            words,
        );
    };
    check_route("respond = {}", "E_MISSING_KEY 7:1", "status = 503");
    check_route("respond = { status = 199 }", "E_RANGE 7:22", "200 to 599");
    check_route(
        "respond = { status = 200, file = 'a.bin' }",
        "E_VALUE 7:34",
        "`html`",
    );
    check_route(
        "respond = { status = 200, file = 'none.html' }",
        "E_FILE 7:34",
        "cannot read",
    );
    check_route(
        "redirect = '/a'\nrespond = { status = 200 }",
        "E_BOTH 8:1",
        "exclude each other",
    );
    check_route(
        "redirect = '/a'\nset_request = { X = '1' }",
        "W_NO_EFFECT 8:1",
        "answers without a server",
    );
    check_route(
        "to = 'ap'",
        "E_UNKNOWN_SERVICE 7:6",
        "there is no service `ap`",
    );
    let own = plan(&http("")).services[0].name.clone();
    let itself = format!("to = '{own}'");
    check_route(&itself, "E_UNKNOWN_SERVICE 7:6", "leave `to` out");
    let typo =
        with_api("[[service.route]]\nto = 'apii'\n[[service.route]]\npath = '/'\nto = 'api'\n");
    check(&typo, "E_UNKNOWN_SERVICE 7:6", "did you mean `api`?");
    let tcp = "[[service]]\nname = 'tcp'\nlisten = '*:9'\nservers = ['db3:80']\n";
    let to_tcp = format!("{}{tcp}", http("[[service.route]]\nto = 'tcp'\n"));
    check(&to_tcp, "E_UNKNOWN_SERVICE 7:6", "protocol = \"http\"");
}

#[test]
fn a_mirror_is_another_http_service_with_servers() {
    let mirror = |value: &str| {
        let text = with_api(&format!("[[service.route]]\nmirror = {value}\n"));
        http_plan(&text).routes.remove(0).mirror.expect("a mirror")
    };
    let named = MirrorPlan {
        service: "api".to_owned(),
        ..MirrorPlan::default()
    };
    assert_eq!((named.percent, named.in_flight), (100, 100));
    assert_eq!(mirror("'api'"), named);
    let full = "{ service = 'api', percent = 5, in_flight = 7, set_request = { X-Copy = '1' }, \
                remove_request = 'Cookie' }";
    let full = mirror(full);
    assert_eq!((full.percent, full.in_flight), (5, 7));
    assert_eq!(full.set_request, [("X-Copy".to_owned(), "1".to_owned())]);
    assert_eq!(full.remove_request, ["Cookie"]);
    let check_api = |line: &str, expected: &str, words: &str| {
        let lines = "[[service.route]]\npath = '/'\nto = 'api'\n[[service.route]]\n";
        check(&with_api(&format!("{lines}{line}\n")), expected, words);
    };
    let own = plan(&http("")).services[0].name.clone();
    let itself = format!("mirror = '{own}'");
    check_api(&itself, "E_UNKNOWN_SERVICE 10:10", "another service");
    check_api(
        "mirror = 'apii'",
        "E_UNKNOWN_SERVICE 10:10",
        "did you mean `api`?",
    );
    check_api("mirror = ['api']", "E_TYPE 10:10", "a name or a table");
    check_api("mirror = {}", "E_MISSING_KEY 10:10", "`service` is missing");
    let percent = "mirror = { service = 'api', percent = 0 }";
    check_api(percent, "E_RANGE 10:39", "1 to 100");
    let host = "mirror = { service = 'api', set_request = { Host = 'a' } }";
    check_api(host, "E_VALUE 10:45", "writes it itself");
    let same = with_api("[[service.route]]\nto = 'api'\nmirror = 'api'\n");
    check(&same, "E_UNKNOWN_SERVICE 8:10", "is no mirror");
    let fixed = "path = '/b'\nredirect = '/a'\nmirror = 'api'";
    check_api(fixed, "W_NO_EFFECT 12:1", "answers without a server");
    let tcp = "[[service]]\nname = 'tcp'\nlisten = '*:9'\nservers = ['db3:80']\n";
    let to_tcp = format!("{}{tcp}", http("[[service.route]]\nmirror = 'tcp'\n"));
    check(&to_tcp, "E_UNKNOWN_SERVICE 7:10", "protocol = \"http\"");
}

#[test]
fn a_service_without_listen_needs_a_route_that_leads_to_it() {
    assert_eq!(
        load(&with_api("[[service.route]]\nto = 'api'\n")).1.len(),
        0
    );
    check(
        &with_api(""),
        "E_MISSING_KEY 6:1",
        "a route with `to = \"api\"`",
    );
    let routes = "[[service.route]]\nrespond = { status = 200 }\n";
    let text = with_api("[[service.route]]\nto = 'api'\n") + routes;
    check(&text, "W_NO_EFFECT 12:1", "without `listen`");
    let invalid = http("").replace("127.0.0.1:3306", "127.0.0.1");
    let (_, problems) = load(&invalid);
    assert_eq!(problems.len(), 1, "{problems:#?}");
}

#[test]
fn a_service_without_servers_needs_routes_with_targets() {
    let without = |lines: &str| {
        format!("[[service]]\nname = 'a'\nlisten = '*:80'\nprotocol = 'http'\n{lines}")
    };
    let route = "[[service.route]]\nrespond = { status = 200 }\n";
    assert_eq!(load(&without(route)).1.len(), 0);
    check(&without(""), "E_NO_SERVERS 1:1", "has no servers");
    check(
        &without("[[service.route]]\npath = '/'\n"),
        "E_MISSING_KEY 5:1",
        "has no target",
    );
}

#[test]
fn a_route_that_never_matches_is_a_warning_with_the_place_of_the_earlier_one() {
    let text = http(
        "[[service.route]]\npath = '/a'\n[[service.route]]\npath = '/a'\nmethods = 'GET'\n\
         [[service.route]]\npath = '/'\n",
    );
    check(&text, "W_NO_EFFECT 8:1", "(the earlier route is in line 6)");
}

#[test]
fn sticky_sessions_have_a_cookie() {
    assert_eq!(http_plan(&http("")).sticky, None);
    let sticky = http_plan(&http("[service.sticky]"))
        .sticky
        .expect("it is on");
    assert_eq!((sticky.cookie.as_str(), sticky.ttl_ms), ("evenkeel", 0));
    let lines = "[service.sticky]\ncookie = 'srv'\nttl_ms = 60000\nsame_site = 'none'";
    let sticky = http_plan(&http(lines)).sticky.expect("it is on");
    assert_eq!((sticky.cookie.as_str(), sticky.ttl_ms), ("srv", 60_000));
    assert_eq!(sticky.same_site, SameSite::None);
    check(
        &http("[service.sticky]\ncookie = 'a b'"),
        "E_NAME 7:10",
        "name of a cookie",
    );
}

#[test]
fn retries_are_those_of_the_listed_kinds() {
    let replay = |lines: &str| http_plan(&http(lines)).retry.replay;
    assert_eq!(replay(""), ReplaySettings::default());
    assert_eq!(replay("retries = 7").retries, 7);
    let some = replay("[service.retry]\non = ['put', 'unsent']");
    let expect = ReplaySettings {
        idempotent: false,
        put: true,
        ..ReplaySettings::default()
    };
    assert_eq!(some, expect);
    let all = replay("[service.retry]\non = ['delete', 'idempotent']");
    assert!(all.delete && all.idempotent && !all.unsent && !all.put);
    let none = replay("[service.retry]\non = []");
    assert!(!none.unsent && !none.idempotent);
    check(
        &http("[service.retry]\non = ['unset']"),
        "E_UNKNOWN_WORD 7:7",
        "did you mean `unsent`?",
    );
    check(
        &http("[service.retry]\non = 1"),
        "E_TYPE 7:6",
        "`idempotent`",
    );
    let retry = http_plan(&http(
        "[service.retry]\nbudget_percent = 5\nbody_hold_bytes = 0",
    ))
    .retry;
    assert_eq!((retry.budget_percent, retry.body_hold_bytes), (5, 0));
}

#[test]
fn clients_are_chosen_by_the_value_of_hash() {
    let hash = |value: &str| {
        let lines = format!("balance = 'source'\n[service.http]\nhash = '{value}'");
        http_plan(&http(&lines)).clients.hash
    };
    assert_eq!(hash("address"), HashKeyPlan::Address);
    assert_eq!(hash("path"), HashKeyPlan::Path);
    assert_eq!(
        hash("header:X-User"),
        HashKeyPlan::Header("x-user".to_owned())
    );
    assert_eq!(
        hash("cookie:Session"),
        HashKeyPlan::Cookie("Session".to_owned())
    );
    for wrong in ["header", "header:", "path:x", "address:1", "cookie:a b"] {
        let lines = format!("balance = 'source'\n[service.http]\nhash = '{wrong}'");
        check(&http(&lines), "E_VALUE 8:8", "`header:NAME`");
    }
    check(
        &http("[service.http]\nhash = 'path'"),
        "W_NO_EFFECT 7:1",
        "balance = \"source\"",
    );
}

#[test]
fn https_needs_a_certificate() {
    let clients = |lines: &str| http_plan(&http(lines)).clients;
    let http_lines = "[service.http]\nhttps = 'redirect'\nhsts_days = 30\n";
    let lines = format!("{}\n{http_lines}", super::documentation::tls());
    let with = clients(&lines);
    assert_eq!((with.https, with.hsts_days), (Https::Redirect, 30));
    check(
        &http("[service.http]\nhttps = 'only'"),
        "E_MISSING_KEY 7:1",
        "[service.tls]",
    );
    check(
        &http("[service.http]\nhsts_days = 1"),
        "E_MISSING_KEY 7:1",
        "[service.tls]",
    );
    assert_eq!(clients("[service.http]\nhttps = 'off'").https, Https::Off);
    let from = clients("[service.http]\nforwarded_from = ['10.0.0.0/8', '::1']").forwarded_from;
    assert_eq!(from.len(), 2);
}

#[test]
fn these_tables_are_for_http_only() {
    for table in ["[service.sticky]", "[service.retry]"] {
        check(
            &service(table),
            "E_PROTOCOL_KEY 5:10",
            "`protocol = \"http\"`",
        );
    }
}

#[test]
fn compression_is_off_until_codings_are_named() {
    let compress = |lines: &str| http_plan(&http(&format!("[service.http]\n{lines}"))).compress;
    assert_eq!(compress("fields_max = 50").settings(), None);
    assert_eq!(compress("compress = []").settings(), None);
    let settings = compress("compress = ['gzip', 'br', 'gzip']")
        .settings()
        .unwrap();
    assert_eq!(settings.codings, [Coding::Gzip, Coding::Brotli]);
    assert_eq!(settings.types.len(), DEFAULT_TYPES.len());
    assert_eq!(settings.bytes_min, 1_024);
    let lines = "compress = 'br'\ncompress_types = ['text/*', '*+xml']\ncompress_bytes_min = 9";
    let settings = compress(lines).settings().unwrap();
    assert_eq!(settings.codings, [Coding::Brotli]);
    let types = ["text/*", "*+xml"].map(MediaRange::parse);
    assert_eq!(settings.types.len(), 2);
    assert!(types.iter().flatten().eq(&settings.types));
    assert_eq!(settings.bytes_min, 9);
}

#[test]
fn mistakes_of_compression_are_found() {
    for (lines, place, words) in [
        (
            "compress = ['gzip', 'brr']",
            "E_UNKNOWN_WORD 7:21",
            "did you mean `br`",
        ),
        ("compress = ['gzip', 5]", "E_TYPE 7:21", "`gzip`"),
        (
            "compress = 'br'\ncompress_types = ['html']",
            "E_VALUE 8:19",
            "text/*",
        ),
        (
            "compress_types = ['text/*']",
            "W_NO_EFFECT 7:1",
            "compress = ",
        ),
        (
            "compress = 'br'\ncompress_bytes_min = 0",
            "E_RANGE 8:22",
            "1",
        ),
    ] {
        check(&http(&format!("[service.http]\n{lines}")), place, words);
    }
}

#[test]
fn a_route_splits_its_requests_between_services() {
    let split = |to: &str| routes(&format!("[[service.route]]\nto = [{to}] # to = 'api'\n"));
    let part = |service: &str, weight| SplitPart {
        service: service.to_owned(),
        weight,
    };
    let routes = split("{ service = 'api', weight = 90 }, 'api'");
    let expect = RouteTarget::Split(vec![part("api", 90), part("api", 1)]);
    assert_eq!(routes[0].target, expect);
    assert!(routes[0].target.services().eq(["api", "api"]));
}

#[test]
fn mistakes_of_a_split_are_found() {
    for (to, place, words) in [
        (
            "[{ service = 'apo', weight = 1 }]",
            "E_UNKNOWN_SERVICE 7:6",
            "did you mean `api`",
        ),
        (
            "[{ service = 'api', weight = 0 }]",
            "E_VALUE 7:6",
            "weight = 9",
        ),
        ("[]", "E_VALUE 7:6", "weight = 9"),
        ("[{ weight = 5 }]", "E_MISSING_KEY 7:7", "service"),
        ("[5]", "E_TYPE 7:7", "service = "),
        (
            "[{ service = 'api', weight = 1001 }]",
            "E_RANGE 7:35",
            "1000",
        ),
    ] {
        let more = "[[service.route]]\npath = '/a'\nto = 'api'\n";
        let text = with_api(&format!("[[service.route]]\nto = {to}\n{more}"));
        check(&text, place, words);
    }
}

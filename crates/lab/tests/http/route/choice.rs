//! Tests of `[[service.route]]`: which requests a route takes, and what it does with them.

use crate::client::{Answer, Client, Ended, get, post};
use crate::origin::Origin;
use crate::peer::{self, Kind, connect_from, named_service};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    the_most_specific_host_then_the_longest_path_decides
    methods_and_fields_are_conditions
    a_route_redirects_or_answers_by_itself
    a_redirect_keeps_path_and_query_and_never_leads_to_another_host
    a_route_with_a_body_to_refuse_keeps_the_connection_in_order
    a_prefix_is_stripped_or_replaced
    fields_are_set_and_removed
    allow_from_cannot_be_bypassed_by_the_spelling_of_a_path
    a_rate_counts_each_client_alone
    a_trusted_proxy_names_the_client_for_every_rule
    a_body_is_limited_by_the_target_or_the_route
    a_route_has_its_own_limit_of_time
}

/// Starts a service `web` with these routes and its own server, and the services of other servers.
fn bed(io: &str, own: &Origin, more: &str, others: &[(&str, &Origin)]) -> Bed {
    let listen = peer::own_address(Kind::V4);
    let more = format!("protocol = \"http\"\n{more}");
    let mut config = named_service("web", &listen, &[own.address()], &more);
    for (name, origin) in others {
        let server = origin.address();
        config.push_str(&format!(
            "[[service]]\nname = {name:?}\nprotocol = \"http\"\nservers = [{server:?}]\n\
             [service.health]\nprobe = \"off\"\n"
        ));
    }
    let balancer = peer::balancer(io, &config);
    Bed { listen, balancer }
}

fn ask(client: &mut Client, method: &str, host: &str, path: &str, fields: &str) -> Answer {
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"
    ));
    client.answer()
}

fn the_most_specific_host_then_the_longest_path_decides(io: &str) {
    let own = Origin::named("own");
    let others = ["a", "b", "c", "d", "e"].map(|name| (name, Origin::named(name)));
    let others: Vec<_> = others
        .iter()
        .map(|(name, origin)| (*name, origin))
        .collect();
    let routes = "\
        [[service.route]]\npath = \"/api/\"\nto = \"a\"\n\
        [[service.route]]\nhost = \"*.shop.example\"\nto = \"b\"\n\
        [[service.route]]\nhost = [\"shop.example\", \"www.shop.example\"]\nto = \"c\"\n\
        [[service.route]]\nhost = \"shop.example\"\npath = \"/api\"\nto = \"d\"\n\
        [[service.route]]\nhost = \"shop.example\"\npath = \"=/api/x\"\nto = \"e\"\n";
    let bed = bed(io, &own, routes, &others);
    let mut client = bed.client();
    for (host, path, name) in [
        ("other.example", "/", "own"),
        ("other.example", "/api", "own"),
        ("other.example", "/api/", "a"),
        ("other.example", "/api/x?y", "a"),
        ("other.example", "/%61pi//x", "a"),
        ("cdn.shop.example", "/api/", "b"),
        ("a.b.shop.example", "/", "b"),
        ("www.shop.example", "/", "c"),
        ("SHOP.example.:8080", "/", "c"),
        ("shop.example", "/apis", "c"),
        ("shop.example", "/api", "d"),
        ("shop.example", "/api/x/", "d"),
        ("shop.example", "/api/x", "e"),
        ("shop.example", "/api/y/../x", "e"),
        ("evilshop.example", "/", "own"),
    ] {
        let answer = ask(&mut client, "GET", host, path, "");
        assert_eq!(answer.text(), name, "{host}{path}");
    }
    // An absolute target replaces Host.
    client.send("GET http://shop.example/api HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    assert_eq!(client.answer().text(), "d");
}

fn methods_and_fields_are_conditions(io: &str) {
    let own = Origin::named("own");
    let (reads, beta, two) = (
        Origin::named("reads"),
        Origin::named("beta"),
        Origin::named("two"),
    );
    let routes = "\
        [[service.route]]\nheaders = { X-Beta = true }\nto = \"beta\"\n\
        [[service.route]]\nheaders = { X-Version = \"2\" }\nto = \"two\"\n\
        [[service.route]]\nmethods = [\"GET\", \"PROPFIND\"]\nto = \"reads\"\n";
    let others = [("reads", &reads), ("beta", &beta), ("two", &two)];
    let bed = bed(io, &own, routes, &others);
    let mut client = bed.client();
    for (method, fields, name) in [
        ("GET", "", "reads"),
        ("PROPFIND", "", "reads"),
        ("DELETE", "", "own"),
        ("get", "", "own"),
        ("DELETE", "x-beta:\r\n", "beta"),
        ("GET", "X-Version: 2\r\n", "two"),
        ("GET", "X-Version: 1\r\nX-Version: 2\r\n", "two"),
        ("GET", "X-Version: 22\r\n", "reads"),
        ("GET", "X-Beta: 1\r\nX-Version: 2\r\n", "beta"),
    ] {
        let answer = ask(&mut client, method, "h", "/", fields);
        assert_eq!(answer.text(), name, "{method} {fields}");
    }
}

fn a_route_redirects_or_answers_by_itself(io: &str) {
    let own = Origin::named("own");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("maintenance.html");
    std::fs::write(&page, "<h1>Back soon</h1>").unwrap();
    let routes = format!(
        "[[service.route]]\npath = \"/old/\"\nredirect = \"https://shop.example/new\"\n\
         [[service.route]]\npath = \"/down\"\nset_response = {{ X-Why = \"work\" }}\n\
         respond = {{ status = 503, file = {page:?} }}\n\
         [[service.route]]\npath = \"/none\"\nrespond = {{ status = 204 }}\n"
    );
    let bed = bed(io, &own, &routes, &[]);
    let mut client = bed.client();
    let moved = client.get("/old/x?y");
    assert_eq!(moved.status, 307);
    assert_eq!(
        moved.field("Location").as_deref(),
        Some("https://shop.example/new")
    );
    let down = client.get("/down/x");
    assert_eq!((down.status, &*down.text()), (503, "<h1>Back soon</h1>"));
    let media_type = down.field("Content-Type");
    assert_eq!(media_type.as_deref(), Some("text/html; charset=utf-8"));
    assert_eq!(down.field("X-Why").as_deref(), Some("work"));
    client.send("HEAD /down HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = client.answer_to_head();
    assert_eq!(head.field("Content-Length").as_deref(), Some("18"));
    assert_eq!(client.get("/none").status, 204);
    assert_eq!(client.get("/").text(), "own");
    assert_eq!(own.paths(), ["/"], "no server has seen the others");
}

/// Browsers read `//evil` and `/\evil` as another host.
fn a_redirect_keeps_path_and_query_and_never_leads_to_another_host(io: &str) {
    let own = Origin::named("own");
    let routes = "[[service.route]]\nhost = \"old.example\"\nredirect = \"https://new.example\"\n\
        redirect_status = 301\nkeep_path = true\n\
        [[service.route]]\npath = \"/moved\"\nstrip_prefix = \"/moved\"\nredirect = \"/\"\n\
        redirect_status = 302\nkeep_path = true\n";
    let bed = bed(io, &own, routes, &[]);
    let mut client = bed.client();
    for (host, path, status, location) in [
        (
            "old.example",
            "/a%20b/?c=/d&e",
            301,
            "https://new.example/a%20b/?c=/d&e",
        ),
        ("old.example", "/", 301, "https://new.example/"),
        (
            "old.example",
            "//evil.example/",
            301,
            "https://new.example/evil.example/",
        ),
        (
            "old.example",
            "/@evil.example",
            301,
            "https://new.example/@evil.example",
        ),
        (
            "old.example",
            "/a%0d%0aSet-Cookie:x",
            301,
            "https://new.example/a%0d%0aSet-Cookie:x",
        ),
        ("h", "/moved/a?b", 302, "/a?b"),
        ("h", "/moved", 302, "/"),
        ("h", "/moved//evil.example", 302, "/evil.example"),
        ("h", "/moved/\\evil.example", 302, "/evil.example"),
        ("h", "/moved/x/%2e%2e//evil.example", 302, "/evil.example"),
    ] {
        let answer = ask(&mut client, "GET", host, path, "");
        let found = answer.field("Location");
        assert_eq!(
            (answer.status, found.as_deref()),
            (status, Some(location)),
            "{path}"
        );
    }
    let whole = ask(&mut client, "OPTIONS", "old.example", "*", "");
    assert_eq!(
        whole.field("Location").as_deref(),
        Some("https://new.example/")
    );
    for break_ in ["\r\n", "\n", "\r"] {
        let mut client = bed.client();
        client.send(format!(
            "GET /a{break_}Set-Cookie:x HTTP/1.1\r\nHost: old.example\r\n\r\n"
        ));
        assert_eq!(client.answer().status, 400, "{break_:?}");
    }
    assert_eq!(own.paths().len(), 0, "no server has seen them");
}

/// The body of a request that no server gets must not be read as the next request.
fn a_route_with_a_body_to_refuse_keeps_the_connection_in_order(io: &str) {
    let own = Origin::named("own");
    let routes = "[[service.route]]\npath = \"/no\"\nrespond = { status = 403 }\n";
    let bed = bed(io, &own, routes, &[]);
    let mut client = bed.client();
    let inner = get("/smuggled");
    client.send(post("/no", &inner));
    let answer = client.answer();
    assert_eq!(answer.status, 403);
    assert_eq!(answer.field("Connection").as_deref(), Some("close"));
    assert_eq!(client.end(), Ended::Clean);
    let mut client = bed.client();
    client.send(get("/no") + &get("/after"));
    assert_eq!(client.answer().status, 403);
    assert_eq!(client.answer().text(), "own");
    assert_eq!(own.paths(), ["/after"]);
}

fn a_prefix_is_stripped_or_replaced(io: &str) {
    let own = Origin::echo();
    let routes = "\
        [[service.route]]\npath = \"/api\"\nstrip_prefix = \"/api\"\n\
        [[service.route]]\npath = \"/v1/\"\nreplace_prefix = \"/v2/\"\n";
    let bed = bed(io, &own, routes, &[]);
    let mut client = bed.client();
    for (path, sent) in [
        ("/api", "/"),
        ("/api/x%20y?q=/api", "/x%20y?q=/api"),
        ("/apis", "/apis"),
        ("/v1/x?y", "/v2/x?y"),
        ("/v1", "/v1"),
        ("/api//evil.example/", "/evil.example/"),
    ] {
        assert_eq!(client.get(path).text(), sent, "{path}");
    }
}

fn fields_are_set_and_removed(io: &str) {
    let own = Origin::new(|_| {
        let fields = "Content-Length: 0\r\nServer: secret\r\nX-Kept: 1\r\n";
        Some(format!("HTTP/1.1 200 OK\r\n{fields}\r\n"))
    });
    let routes = "[[service.route]]\n\
        set_request = { X-Env = \"prod\", Accept = \"text/html\" }\n\
        remove_request = [\"X-Debug\", \"Cookie\"]\n\
        set_response = { Server = \"web\", X-New = \"2\" }\n";
    let bed = bed(io, &own, routes, &[]);
    let mut client = bed.client();
    let fields = "x-env: forged\r\nX-Env: again\r\nAccept: a\r\nx-debug: 1\r\nCookie: a=b\r\n\
                  X-Other: 3\r\nConnection: X-Env\r\n";
    let answer = ask(&mut client, "GET", "h", "/", fields);
    for (name, value) in [("Server", "web"), ("X-New", "2"), ("X-Kept", "1")] {
        assert_eq!(answer.field(name).as_deref(), Some(value), "{name}");
    }
    let seen = own.only();
    for (name, value) in [
        ("X-Env", Some("prod")),
        ("Accept", Some("text/html")),
        ("X-Debug", None),
        ("Cookie", None),
        ("X-Other", Some("3")),
    ] {
        assert_eq!(seen.field(name).as_deref(), value, "{name}");
    }
}

fn allow_from_cannot_be_bypassed_by_the_spelling_of_a_path(io: &str) {
    let own = Origin::named("own");
    let routes = "\
        [[service.route]]\nhost = \"shop.example\"\npath = \"/admin\"\n\
        allow_from = [\"127.0.0.9\", \"10.0.0.0/8\"]\n";
    let bed = bed(io, &own, routes, &[]);
    let mut stranger = bed.client();
    for (path, status) in [
        ("/admin", 403),
        ("/admin/x", 403),
        ("/%61dmin", 403),
        ("//admin", 403),
        ("/x/../admin", 400),
        ("/x/%2e%2e/admin", 400),
        ("/admin/../x", 400),
        ("/x%2fadmin", 400),
        ("/x/..%2fadmin", 400),
        ("/x\\..\\admin", 400),
        ("/x/..;/admin", 400),
        ("/x%00/../admin", 400),
        ("/%2561dmin", 400),
        ("/x", 200),
    ] {
        let answer = ask(&mut stranger, "GET", "shop.example", path, "");
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    // Nothing to protect on another host.
    let answer = ask(&mut stranger, "GET", "other.example", "/x%2fadmin", "");
    assert_eq!(answer.status, 200);
    let mut known = Client::of(connect_from([127, 0, 0, 9], &bed.listen));
    let answer = ask(&mut known, "GET", "shop.example", "/admin", "");
    assert_eq!(answer.status, 200);
}

fn a_rate_counts_each_client_alone(io: &str) {
    let own = Origin::named("own");
    let routes = "[[service.route]]\npath = \"/login\"\nrate = \"3/h\"\n";
    let bed = bed(io, &own, routes, &[]);
    let (mut first, mut again) = (bed.client(), bed.client());
    assert_eq!(first.get("/login").status, 200);
    assert_eq!(again.get("/login").status, 200);
    assert_eq!(first.get("/login").status, 200);
    let refused = again.get("/login");
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.field("Retry-After").unwrap().parse().unwrap();
    assert!((1_100..=1_200).contains(&wait), "{wait}");
    assert_eq!(again.get("/other").status, 200, "the connection stays");
    let mut other = Client::of(connect_from([127, 0, 0, 2], &bed.listen));
    assert_eq!(other.get("/login").status, 200);
    assert_eq!(own.paths().len(), 5);
}

fn a_trusted_proxy_names_the_client_for_every_rule(io: &str) {
    let own = Origin::named("own");
    let routes = "[service.http]\nforwarded_from = [\"127.0.0.1\", \"10.0.0.0/8\"]\n\
        [[service.route]]\npath = \"/admin\"\nallow_from = [\"198.51.100.7\"]\n\
        [[service.route]]\npath = \"/login\"\nrate = \"1/h\"\n";
    let bed = bed(io, &own, routes, &[]);
    let mut proxy = bed.client();
    for (fields, status) in [
        ("", 403),
        ("X-Forwarded-For: 198.51.100.7\r\n", 200),
        ("X-Forwarded-For: 6.6.6.6, 198.51.100.7, 10.1.1.1\r\n", 200),
        (
            "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-For: 6.6.6.6\r\n",
            403,
        ),
        ("X-Forwarded-For: 198.51.100.7, nonsense\r\n", 403),
        ("Forwarded: for=198.51.100.7;proto=https\r\n", 200),
        (
            "Forwarded: for=\"198.51.100.7:99\"\r\nX-Forwarded-For: 6.6.6.6\r\n",
            200,
        ),
        (
            "Forwarded: for=unknown\r\nX-Forwarded-For: 198.51.100.7\r\n",
            403,
        ),
    ] {
        let answer = ask(&mut proxy, "GET", "h", "/admin", fields);
        assert_eq!(answer.status, status, "{fields}");
    }
    // From a stranger, the same says nothing.
    let mut stranger = Client::of(connect_from([127, 0, 0, 2], &bed.listen));
    let fields = "X-Forwarded-For: 198.51.100.7\r\n";
    assert_eq!(ask(&mut stranger, "GET", "h", "/admin", fields).status, 403);
    let login = |proxy: &mut Client, of: &str| {
        let fields = format!("X-Forwarded-For: {of}\r\n");
        ask(proxy, "GET", "h", "/login", &fields).status
    };
    assert_eq!(login(&mut proxy, "203.0.113.1"), 200);
    assert_eq!(login(&mut proxy, "203.0.113.1"), 429);
    assert_eq!(login(&mut proxy, "2001:db8::1"), 200);
    assert_eq!(
        login(&mut proxy, "2001:db8::2"),
        429,
        "one network of 64 bits"
    );
    assert_eq!(login(&mut proxy, "203.0.113.2"), 200);
}

/// The framing of a body changes nothing in its limit.
fn a_body_is_limited_by_the_target_or_the_route(io: &str) {
    let (own, files) = (Origin::named("own"), Origin::named("files"));
    let listen = peer::own_address(Kind::V4);
    let more = "protocol = \"http\"\n[service.http]\nbody_bytes_max = 10\n\
        [[service.route]]\npath = \"/up\"\nto = \"files\"\n\
        [[service.route]]\npath = \"/big\"\nto = \"files\"\nbody_bytes_max = 3000\n\
        [[service.route]]\npath = \"/any\"\nbody_bytes_max = 0\n\
        [[service.route]]\npath = \"/moved\"\nredirect = \"/up\"\n";
    let server = files.address();
    let config = named_service("web", &listen, &[own.address()], more)
        + &format!(
            "[[service]]\nname = \"files\"\nprotocol = \"http\"\nservers = [{server:?}]\n\
             [service.http]\nbody_bytes_max = 100\n[service.health]\nprobe = \"off\"\n"
        );
    let balancer = peer::balancer(io, &config);
    let bed = Bed { listen, balancer };
    let of_service = "([service.http] body_bytes_max)";
    let of_route = "([[service.route]] body_bytes_max)";
    for (path, fits, refused) in [
        ("/", 10, Some((11, of_service))),
        ("/up", 100, Some((101, of_service))),
        ("/big", 3_000, Some((3_001, of_route))),
        ("/any", 1_000_000, None),
    ] {
        for is_chunked in [false, true] {
            let request = |length: usize| {
                let body = "x".repeat(length);
                match is_chunked {
                    false => post(path, &body),
                    true => format!(
                        "POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
                         {length:x}\r\n{body}\r\n0\r\n\r\n"
                    ),
                }
            };
            let mut client = bed.client();
            client.send(request(fits));
            assert_eq!(client.answer().status, 200, "{path} {is_chunked}");
            let Some((length, key)) = refused else {
                continue;
            };
            client.send(request(length));
            let answer = client.answer();
            assert_eq!(answer.status, 413, "{path} {is_chunked}");
            assert!(answer.text().contains(key), "{path}: {}", answer.text());
        }
    }
    // No server would get the body.
    let mut client = bed.client();
    client.send(post("/moved", &"x".repeat(5_000)));
    assert_eq!(client.answer().status, 307);
}

fn a_route_has_its_own_limit_of_time(io: &str) {
    let (_hold, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let own = Origin::new(move |_| {
        // Until the end of the test.
        let _ = gate.lock().unwrap().recv();
        None
    });
    let routes = "[service.times]\nrequest_ms = 600000\n\
        [[service.route]]\npath = \"/quick\"\nrequest_ms = 700\n";
    let bed = bed(io, &own, routes, &[]);
    let answer = bed.client().get("/quick");
    assert_eq!(answer.status, 504);
    assert!(
        answer.text().contains("([[service.route]] request_ms)"),
        "{}",
        answer.text()
    );
}

//! Tests of own error pages, of ids of requests, and of names of routes.

use crate::client::{Answer, Client, get};
use crate::origin::Origin;
use crate::peer::{connect_from, until};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    errors_of_evenkeel_have_the_pages_of_the_service
    errors_of_servers_pass_unchanged
    a_request_gets_an_id_unless_a_trusted_proxy_sent_one
    ids_of_all_workers_are_different
    without_the_key_the_id_of_the_client_passes
    traceparent_passes_unchanged
    routes_are_counted_by_their_names
    counts_of_routes_survive_an_upgrade
}

fn ask(client: &mut Client, path: &str, fields: &str) -> Answer {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    client.answer()
}

fn errors_of_evenkeel_have_the_pages_of_the_service(io: &str) {
    let origin = Origin::echo();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (down, other) = (
        file("down.html", "<h1>down</h1>"),
        file("other.json", "{\"error\":5}"),
    );
    let more = format!(
        "[service.http]\nerror_pages = {{ \"503\" = {down:?}, \"5xx\" = {other:?}, \
         \"403\" = {down:?} }}\n\
         [[service.route]]\npath = \"/admin\"\nallow_from = [\"10.0.0.0/8\"]\n"
    );
    let bed = Bed::new(io, &[&origin], &more);
    let mut client = bed.client();
    let refused = client.get("/admin");
    assert_eq!((refused.status, &*refused.text()), (403, "<h1>down</h1>"));
    let media_type = refused.field("Content-Type");
    assert_eq!(media_type.as_deref(), Some("text/html; charset=utf-8"));
    assert!(refused.field("Proxy-Status").is_some());
    client.send("HEAD /admin HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = client.answer_to_head();
    assert_eq!(head.field("Content-Length").as_deref(), Some("13"));
    // An error of the protocol, without a page of its own.
    let mut broken = bed.client();
    broken.send("GET / HTTP/1.1\r\n\r\n");
    let answer = broken.answer();
    assert_eq!(answer.status, 400);
    assert!(
        answer.text().starts_with("400 Bad Request"),
        "{}",
        answer.text()
    );
    broken = bed.client();
    broken.send("CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n");
    let answer = broken.answer();
    assert_eq!((answer.status, &*answer.text()), (501, "{\"error\":5}"));
    let media_type = answer.field("Content-Type");
    assert_eq!(media_type.as_deref(), Some("application/json"));
    // A reload reads the file again.
    file("down.html", "<h1>changed</h1>");
    bed.balancer.reload(&bed.balancer.config()).unwrap();
    until("the changed page", || {
        client.get("/admin").text() == "<h1>changed</h1>"
    });
}

fn errors_of_servers_pass_unchanged(io: &str) {
    let origin =
        Origin::new(|_| Some("HTTP/1.1 503 Busy\r\nContent-Length: 3\r\n\r\nown".to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("down.txt");
    std::fs::write(&page, "page").unwrap();
    let more = format!("[service.http]\nerror_pages = {{ \"5xx\" = {page:?} }}\n");
    let bed = Bed::new(io, &[&origin], &more);
    assert_eq!(bed.client().get("/").text(), "own");
}

fn a_request_gets_an_id_unless_a_trusted_proxy_sent_one(io: &str) {
    let origin = Origin::echo();
    let more = "[service.http]\nrequest_id = \"on\"\naccess_log = \"json\"\n\
                forwarded_from = [\"127.0.0.2\"]\n";
    let bed = Bed::new(io, &[&origin], more);
    let mut stranger = bed.client();
    assert_eq!(stranger.get("/").status, 200);
    let forged = "X-Request-Id: forged\r\nx-request-id: again\r\n";
    assert_eq!(ask(&mut stranger, "/", forged).status, 200);
    let mut proxy = Client::of(connect_from([127, 0, 0, 2], &bed.listen));
    let long = format!("X-Request-ID: {}\r\n", "x".repeat(129));
    for fields in ["X-Request-ID: r-7\r\n", "", &long, "X-Request-ID: a b\r\n"] {
        assert_eq!(ask(&mut proxy, "/", fields).status, 200);
    }
    let ids: Vec<String> = origin
        .seen()
        .iter()
        .map(|seen| seen.field("X-Request-ID").unwrap())
        .collect();
    assert_eq!(ids[2], "r-7");
    let made: std::collections::BTreeSet<_> = ids.iter().filter(|id| **id != "r-7").collect();
    assert_eq!(made.len(), 5, "{ids:?}");
    for id in &made {
        let is_digit = |c: char| c.is_ascii_hexdigit() && !c.is_uppercase();
        assert!(id.len() == 32 && id.chars().all(is_digit), "{id}");
    }
    until("the ids in the log", || {
        let log = bed.balancer.log();
        ids.iter()
            .all(|id| log.contains(&format!("\"request_id\":\"{id}\"")))
    });
    assert!(!bed.balancer.log().contains("forged"));
}

/// Clients are distributed over the workers.
fn ids_of_all_workers_are_different(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "[service.http]\nrequest_id = \"on\"\n");
    let mut clients: Vec<Client> = (0..16).map(|_| bed.client()).collect();
    for _ in 0..4 {
        for client in &mut clients {
            assert_eq!(client.get("/").status, 200);
        }
    }
    let ids: std::collections::BTreeSet<_> = origin
        .seen()
        .iter()
        .map(|seen| seen.field("X-Request-ID").unwrap())
        .collect();
    assert_eq!(ids.len(), 64);
}

fn without_the_key_the_id_of_the_client_passes(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    ask(&mut client, "/", "X-Request-ID: mine\r\n");
    client.send(get("/"));
    client.answer();
    let ids = origin.seen();
    let ids: Vec<_> = ids.iter().map(|seen| seen.field("X-Request-ID")).collect();
    assert_eq!(ids, [Some("mine".to_owned()), None]);
}

fn traceparent_passes_unchanged(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "[service.http]\nrequest_id = \"on\"\n");
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let state = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";
    let fields = format!("traceparent: {parent}\r\ntracestate: {state}\r\n");
    assert_eq!(ask(&mut bed.client(), "/", &fields).status, 200);
    let seen = origin.only();
    assert_eq!(seen.field("traceparent").as_deref(), Some(parent));
    assert_eq!(seen.field("tracestate").as_deref(), Some(state));
}

/// Requests that a route answers itself, or refuses, count as well.
fn routes_are_counted_by_their_names(io: &str) {
    let origin = Origin::echo();
    let more = "[service.http]\naccess_log = \"json\"\n\
        [[service.route]]\nname = \"login\"\npath = \"/login\"\nrate = \"2/h\"\n\
        [[service.route]]\npath = \"/old\"\nredirect = \"/new\"\n\
        [[service.route]]\nname = \"login\"\npath = \"/signin\"\n";
    let bed = Bed::new(io, &[&origin], more);
    let mut client = bed.client();
    let paths = ["/login", "/login", "/login", "/signin", "/old/x", "/"];
    let statuses = paths.map(|path| client.get(path).status);
    assert_eq!(statuses, [200, 200, 429, 200, 307, 200]);
    let counts = || {
        let routes = bed.status()["http"]["routes"].clone();
        let routes = routes.as_array().unwrap().clone();
        let of = |route: &serde_json::Value| {
            let name = route["route"].as_str().unwrap().to_owned();
            let total = route["requests_total"].as_u64().unwrap();
            assert_eq!(route["request_us"]["count"].as_u64(), Some(total));
            (name, total)
        };
        routes.iter().map(of).collect::<Vec<_>>()
    };
    let expect = [("login".to_owned(), 4), ("/old".to_owned(), 1)];
    until("the counts", || counts() == expect);
    until("the names in the log", || {
        let log = bed.balancer.log();
        let count = |name: &str| log.matches(&format!("\"route\":{name}")).count();
        [count("\"login\""), count("\"/old\""), count("null")] == [4, 1, 1]
    });
    // A reload keeps the counts of the names that stay.
    let config = bed.balancer.config().replace("/old", "/older");
    bed.balancer.reload(&config).unwrap();
    let expect = [("login".to_owned(), 4), ("/older".to_owned(), 0)];
    until("the counts after the reload", || counts() == expect);
}

/// Also those of a request that the old process completes after the upgrade.
fn counts_of_routes_survive_an_upgrade(io: &str) {
    let origin = Origin::echo();
    let more = "[[service.route]]\nname = \"login\"\npath = \"/login\"\n\
        [[service.route]]\npath = \"/old\"\nredirect = \"/new\"\n";
    let bed = Bed::new(io, &[&origin], more);
    let mut client = bed.client();
    for path in ["/login", "/login", "/old", "/"] {
        client.get(path);
    }
    client.send("POST /login HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na");
    bed.balancer.upgrade(&[]).unwrap();
    assert_eq!(bed.client().get("/login").status, 200);
    client.send("b");
    assert_eq!(client.answer().status, 200);
    drop(client);
    let counts = |index: usize| {
        let route = bed.status()["http"]["routes"][index].clone();
        let count = |value: &serde_json::Value| value.as_u64().unwrap();
        let classes = route["responses"].as_array().unwrap().clone();
        let classes: Vec<u64> = classes.iter().map(|class| count(&class["count"])).collect();
        (classes, count(&route["request_us"]["count"]))
    };
    until("the counts of both processes", || {
        counts(0) == (vec![0, 4, 0, 0, 0], 4) && counts(1) == (vec![0, 0, 1, 0, 0], 1)
    });
}

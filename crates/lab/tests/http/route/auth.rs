//! Tests of `basic_auth`: who may use a route, and what a password costs others.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use evenkeel_lab::Balancer;

use crate::client::{Answer, Client, get};
use crate::origin::Origin;
use crate::peer::{connect_from, until};
use crate::{Bed, on_both_drivers, service};

on_both_drivers! {
    a_route_asks_for_a_password_and_keeps_it_from_servers
    a_request_with_a_body_is_kept_while_its_password_is_verified
    users_come_from_a_file_that_only_the_owner_reads
    wrong_passwords_are_limited_by_address
    a_password_that_takes_long_delays_no_other_client
    a_changed_password_counts_from_the_reload_on
    the_log_names_the_user
}

/// "U*U" with cost 5, of the test vectors of crypt_blowfish.
const HASH: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

/// "U*" with cost 5.
const OTHER: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.N0wO4z3EELuk/ycIifDScNe.mijJ.Sa";

/// A hash of an unknown password, of cost 13.
const SLOW: &str = "$2y$13$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

// Base64 of `ann:U*U`, `ann:U*`, `ann:wrong`, `bob:U*U` and `slow:x`.
const RIGHT: &str = "Authorization: Basic YW5uOlUqVQ==\r\n";
const SHORT: &str = "Authorization: Basic YW5uOlUq\r\n";
const WRONG: &str = "Authorization: Basic YW5uOndyb25n\r\n";
const UNKNOWN: &str = "Authorization: Basic Ym9iOlUqVQ==\r\n";
const OF_SLOW: &str = "Authorization: Basic c2xvdzp4\r\n";

fn route(hash: &str) -> String {
    format!(
        "[[service.route]]\npath = \"/admin\"\n\
         basic_auth = {{ realm = \"Work\", users = {{ ann = \"{hash}\", slow = \"{SLOW}\" }} }}\n"
    )
}

fn ask(client: &mut Client, path: &str, fields: &str) -> Answer {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
    client.answer()
}

fn a_route_asks_for_a_password_and_keeps_it_from_servers(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], &route(HASH));
    let mut client = bed.client();
    let bearer = "Authorization: Bearer x\r\n";
    let twice = RIGHT.repeat(2);
    for fields in ["", WRONG, UNKNOWN, bearer, &twice, SHORT] {
        let answer = ask(&mut client, "/admin", fields);
        assert_eq!(answer.status, 401, "{fields}");
        let challenge = answer.field("WWW-Authenticate");
        assert_eq!(
            challenge.as_deref(),
            Some("Basic realm=\"Work\", charset=\"UTF-8\"")
        );
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    for _ in 0..3 {
        assert_eq!(ask(&mut client, "/admin/x", RIGHT).text(), "/admin/x");
    }
    let answer = ask(&mut client, "/open", bearer);
    assert_eq!(answer.text(), "/open", "the same connection");
    // A path that servers may read as one of the route.
    assert_eq!(ask(&mut client, "/x/..%2fadmin", "").status, 400);
    for seen in origin.seen() {
        let expect = (seen.path() == "/open").then_some("Bearer x");
        assert_eq!(seen.field("Authorization").as_deref(), expect);
    }
}

fn a_request_with_a_body_is_kept_while_its_password_is_verified(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], &route(HASH));
    let body = "x".repeat(200_000);
    let post = |fields: &str| {
        let length = body.len();
        format!("POST /admin HTTP/1.1\r\nHost: h\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
    };
    let mut client = bed.client();
    client.send(post(RIGHT) + &get("/after"));
    assert_eq!(client.answer().text(), "/admin");
    assert_eq!(client.answer().text(), "/after");
    assert_eq!(origin.seen()[0].body.len(), body.len());
    drop(client);
    // The body of a refused request is not read as a request.
    let mut client = bed.client();
    client.send(post(WRONG));
    assert_eq!(client.answer().status, 401);
    client.end_is_any();
    drop(client);
    // Requests in advance wait for the verification, in their order.
    let mut client = bed.client();
    let wrong = format!("GET /admin HTTP/1.1\r\nHost: h\r\n{WRONG}\r\n");
    client.send(wrong + &get("/next"));
    assert_eq!(client.answer().status, 401);
    assert_eq!(client.answer().text(), "/next");
    drop(client);
    // A client that leaves meanwhile.
    let client = bed.client();
    client.send(format!("GET /admin HTTP/1.1\r\nHost: h\r\n{OF_SLOW}\r\n"));
    drop(client);
    bed.until_idle();
}

fn users_come_from_a_file_that_only_the_owner_reads(io: &str) {
    let origin = Origin::echo();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    std::fs::write(&file, format!("# users\n\nann:{HASH}\n")).unwrap();
    let set_mode = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, mode).unwrap();
    };
    set_mode(0o600);
    let route =
        format!("[[service.route]]\npath = \"/admin\"\nbasic_auth = {{ users_file = {file:?} }}\n");
    let bed = Bed::new(io, &[&origin], &route);
    assert_eq!(ask(&mut bed.client(), "/admin", RIGHT).status, 200);
    assert_eq!(ask(&mut bed.client(), "/admin", WRONG).status, 401);
    let config = service(&bed.listen, &[origin.address()], &route);
    drop(bed);
    set_mode(0o644);
    let refused = Balancer::start(&config).err().unwrap();
    assert!(
        format!("{refused:#}").contains("E_SECRET_READABLE"),
        "{refused:#}"
    );
    set_mode(0o600);
    std::fs::write(&file, "ann:$apr1$x$y\n").unwrap();
    let refused = format!("{:#}", Balancer::start(&config).err().unwrap());
    assert!(refused.contains("line 1 of"), "{refused}");
    assert!(
        refused.contains("MD5") && !refused.contains("$x$y"),
        "{refused}"
    );
}

fn wrong_passwords_are_limited_by_address(io: &str) {
    let origin = Origin::echo();
    let quick = route(HASH).replace(SLOW, OTHER);
    let bed = Bed::new(io, &[&origin], &quick);
    let mut guesser = bed.client();
    let statuses: Vec<u16> = (0..60)
        .map(|_| ask(&mut guesser, "/admin", UNKNOWN).status)
        .collect();
    assert_eq!(statuses[..20], [401; 20], "{statuses:?}");
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert!(refused >= 20, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 401 | 429)));
    // Another address is not concerned, and right passwords count for nothing.
    let mut other = Client::of(connect_from([127, 0, 0, 2], &bed.listen));
    for _ in 0..60 {
        assert_eq!(ask(&mut other, "/admin", RIGHT).status, 200);
    }
}

fn a_password_that_takes_long_delays_no_other_client(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], &route(HASH));
    let mut others: Vec<Client> = (0..8).map(|_| bed.client()).collect();
    for other in &mut others {
        assert_eq!(ask(other, "/open", "").status, 200);
    }
    let mut slow: Vec<Client> = (0..4).map(|_| bed.client()).collect();
    let started = Instant::now();
    for client in &slow {
        client.send(format!("GET /admin HTTP/1.1\r\nHost: h\r\n{OF_SLOW}\r\n"));
    }
    let mut longest = Duration::ZERO;
    for round in 0..40 {
        let before = Instant::now();
        assert_eq!(ask(&mut others[round % 8], "/open", "").status, 200);
        longest = longest.max(before.elapsed());
    }
    let others_took = started.elapsed();
    for client in &mut slow {
        assert_eq!(client.answer().status, 401);
    }
    let slow_took = started.elapsed();
    eprintln!("longest {longest:?}, {others_took:?} of {slow_took:?}");
    assert!(
        others_took < slow_took / 2,
        "{others_took:?} of {slow_took:?}"
    );
}

fn a_changed_password_counts_from_the_reload_on(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], &route(HASH));
    let mut client = bed.client();
    assert_eq!(ask(&mut client, "/admin", RIGHT).status, 200);
    assert_eq!(ask(&mut client, "/admin", SHORT).status, 401);
    let config = bed.balancer.config();
    assert!(config.contains(HASH));
    let config = config.replace(HASH, OTHER);
    bed.balancer.reload(&config).unwrap();
    assert_eq!(ask(&mut client, "/admin", RIGHT).status, 401);
    assert_eq!(ask(&mut client, "/admin", SHORT).status, 200);
}

fn the_log_names_the_user(io: &str) {
    let origin = Origin::echo();
    let more = "[service.http]\naccess_log = \"json\"\n".to_owned() + &route(HASH);
    let bed = Bed::new(io, &[&origin], &more);
    let mut client = bed.client();
    assert_eq!(ask(&mut client, "/admin", RIGHT).status, 200);
    assert_eq!(ask(&mut client, "/admin", UNKNOWN).status, 401);
    assert_eq!(ask(&mut client, "/admin", "").status, 401);
    assert_eq!(client.get("/open").status, 200);
    let mut users = Vec::new();
    until("four lines of requests", || {
        let log = bed.balancer.log();
        let lines = log.lines().filter(|line| line.contains("\"request\""));
        let lines = lines.map(|line| serde_json::from_str(line).unwrap());
        users = lines
            .map(|line: serde_json::Value| {
                let text = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
                (text("user"), text("reason"))
            })
            .collect();
        users.len() == 4
    });
    let names: Vec<_> = users.iter().map(|(user, _)| &**user).collect();
    assert_eq!(names, ["ann", "bob", "-", "-"]);
    assert!(users[1].1.contains("password is wrong"), "{users:?}");
    let log = bed.balancer.log();
    assert!(!log.contains("YW5u") && !log.contains("U*U"));
    assert_eq!(client.get("/end").status, 200);
    drop(client);
    bed.until_idle();
}

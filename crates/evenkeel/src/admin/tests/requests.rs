//! Tests responses, commands and refusals.

use super::world::{Answer, World, raw};
use crate::admin::sample;
use crate::status::{
    Command, Connections, DigestStatus, KillWhich, ServiceState, Status, TimelineEvent,
};

const JSON: &str = "content-type: application/json";
const TOKEN: &str = "authorization: Bearer s3cret";

/// Checks that a request was refused with a code and a message, and that no command was run.
fn check_refused(world: &World, answer: &Answer, code: u16, word: &str) {
    assert_eq!(answer.code, code, "{}", answer.body);
    let reply = answer.reply();
    assert!(
        !reply.ok && reply.message.contains(word),
        "{}",
        reply.message
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(world.commands().is_empty(), "it was obeyed all the same");
}

#[tokio::test]
async fn the_status_can_be_read_on_loopback_without_a_token() {
    let world = World::start(Some("s3cret")).await;
    let answer = world.tcp("GET /api/v1/status", &[], "").await;
    assert_eq!(answer.code, 200);
    let status: Status = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(status, sample::status());
    assert!(!answer.body.contains("s3cret"));
}

#[tokio::test]
async fn a_query_selects_services_and_a_wrong_one_is_refused() {
    let world = World::start(None).await;
    for path in ["/api/v1/status", "/metrics"] {
        let ask = async |query: &str| world.tcp(&format!("GET {path}?{query}"), &[], "").await;
        let answer = ask("service=orders&servers=all").await;
        assert_eq!(answer.code, 200, "{path}");
        assert!(answer.body.contains("orders") && !answer.body.contains("web1"));
        check_refused(&world, &ask("service=nothing").await, 404, "nothing");
        for wrong in ["servers=some", "sevice=orders"] {
            check_refused(
                &world,
                &ask(wrong).await,
                400,
                "`servers` (default, all or none)",
            );
        }
    }
}

#[tokio::test]
async fn the_page_and_its_files_are_fenced_in() {
    let world = World::start(None).await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/style.css", "text/css"),
    ] {
        let answer = world.tcp(&format!("GET {path}"), &[], "").await;
        assert_eq!(answer.code, 200, "{path}");
        assert!(
            answer.header("content-type").unwrap().starts_with(kind),
            "{path}"
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("script-src 'self';") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"));
    }
}

#[tokio::test]
async fn metrics_are_served_as_openmetrics() {
    let world = World::start(None).await;
    let answer = world.tcp("GET /metrics", &[], "").await;
    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    assert!(answer.body.ends_with("# EOF\n"));
}

#[tokio::test]
async fn events_are_those_after_the_one_that_is_named() {
    let world = World::start(None).await;
    for (query, expect) in [("", 1), ("?after=2", 1), ("?after=3", 0)] {
        let answer = world
            .tcp(&format!("GET /api/v1/events{query}"), &[], "")
            .await;
        let events: Vec<TimelineEvent> = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(events.len(), expect, "{query}");
    }
    let answer = world.tcp("GET /api/v1/events?after=x", &[], "").await;
    check_refused(&world, &answer, 400, "?after=ID");
}

#[tokio::test]
async fn a_primary_is_named_and_the_name_taken_back() {
    let world = World::start(Some("s3cret")).await;
    let path = "POST /api/v1/servers/orders%2Fdb1/primary";
    for (body, clear) in [("", false), ("{\"clear\":true}", true)] {
        assert_eq!(world.tcp(path, &[JSON, TOKEN], body).await.code, 200);
        let server = "orders/db1".to_owned();
        assert_eq!(
            world.commands().last(),
            Some(&Command::Primary { server, clear })
        );
    }
}

#[tokio::test]
async fn health_is_that_of_the_best_service() {
    let world = World::start(None).await;
    assert_eq!(world.tcp("GET /healthz", &[], "").await.code, 200);

    let mut status = sample::status();
    for service in &mut status.services {
        service.state = ServiceState::Down;
    }
    let world = World::with(None, status).await;
    let answer = world.tcp("GET /healthz", &[], "").await;
    assert_eq!(answer.code, 503);
    assert!(!answer.reply().ok);
}

#[tokio::test]
async fn a_browser_on_another_site_cannot_post() {
    let world = World::start(Some("s3cret")).await;
    let evil = "origin: http://evil.example";
    let answer = world
        .tcp("POST /api/v1/reload", &[JSON, TOKEN, evil], "{}")
        .await;
    check_refused(&world, &answer, 403, "evil.example");
}

#[tokio::test]
async fn a_name_that_was_rebound_to_this_machine_is_refused() {
    let world = World::start(Some("s3cret")).await;
    for request in ["GET /api/v1/status", "POST /api/v1/reload", "GET /"] {
        let text = raw(request, &["host: evil.example", JSON, TOKEN], "");
        check_refused(&world, &world.tcp_raw(&text).await, 403, "allowed_hosts");
    }
    let text = raw(
        "GET http://evil.example/api/v1/status",
        &["host: localhost"],
        "",
    );
    check_refused(&world, &world.tcp_raw(&text).await, 403, "evil.example");
    let text = raw("GET /", &["host: localhost", "host: evil.example"], "");
    check_refused(&world, &world.tcp_raw(&text).await, 403, "duplicated");
    let text = raw("GET /", &[], "");
    check_refused(&world, &world.tcp_raw(&text).await, 403, "Host");
}

#[tokio::test]
async fn listed_names_are_let_in() {
    let world = World::start(None).await;
    for host in [
        "host: lb.example.org",
        "host: LOCALHOST:9000",
        "host: [::1]:9000",
    ] {
        assert_eq!(
            world
                .tcp_raw(&raw("GET /api/v1/status", &[host], ""))
                .await
                .code,
            200
        );
    }
}

#[tokio::test]
async fn a_change_over_tcp_needs_the_token() {
    let world = World::start(Some("s3cret")).await;
    let answer = world.tcp("POST /api/v1/reload", &[JSON], "").await;
    check_refused(&world, &answer, 401, "token");
    assert!(answer.header("www-authenticate").is_some());
    for wrong in [
        "Bearer s3cre",
        "Bearer s3cret!",
        "Bearer",
        "Bearer ",
        "Basic s3cret",
        "s3cret",
    ] {
        let header = format!("authorization: {wrong}");
        let answer = world.tcp("POST /api/v1/reload", &[JSON, &header], "").await;
        check_refused(&world, &answer, 401, "token");
    }
    assert_eq!(
        world
            .tcp("POST /api/v1/reload", &[JSON, TOKEN], "")
            .await
            .code,
        200
    );
    assert_eq!(world.commands(), [Command::Reload]);
}

#[tokio::test]
async fn without_a_configured_token_no_change_over_tcp_works() {
    for token in [None, Some("")] {
        let world = World::start(token).await;
        for header in [
            "authorization: Bearer ",
            "authorization: Bearer x",
            "x-nothing: 1",
        ] {
            let answer = world.tcp("POST /api/v1/reload", &[JSON, header], "").await;
            check_refused(&world, &answer, 403, "none is configured");
        }
    }
}

#[tokio::test]
async fn a_reader_behind_a_proxy_needs_the_token() {
    let world = World::start(Some("s3cret")).await;
    let far = "x-forwarded-for: 203.0.113.9";
    let answer = world.tcp("GET /api/v1/status", &[far], "").await;
    check_refused(&world, &answer, 401, "remote access");
    assert_eq!(
        world
            .tcp("GET /api/v1/status", &[far, TOKEN], "")
            .await
            .code,
        200
    );
}

#[tokio::test]
async fn a_form_cannot_post() {
    let world = World::start(Some("s3cret")).await;
    for kind in [
        "content-type: text/plain",
        "content-type: application/jsonp",
        "x-none: 1",
    ] {
        let answer = world.tcp("POST /api/v1/reload", &[TOKEN, kind], "{}").await;
        check_refused(&world, &answer, 415, "application/json");
        let answer = world
            .unix("POST /api/v1/reload", &["host: x", kind], "{}")
            .await;
        check_refused(&world, &answer, 415, "application/json");
    }
}

#[tokio::test]
async fn wrong_paths_methods_and_bodies_are_explained() {
    let world = World::start(Some("s3cret")).await;
    let check = async |request: &str, body: &str, code: u16, word: &str| {
        let answer = world.tcp(request, &[JSON, TOKEN], body).await;
        check_refused(&world, &answer, code, word);
    };
    check("GET /nowhere", "", 404, "not found").await;
    check("POST /api/v1/servers/db1", "", 404, "not found").await;
    check("GET /api/v1/reload", "", 405, "POST").await;
    check("POST /api/v1/status", "", 405, "GET").await;
    check("DELETE /api/v1/status", "", 405, "GET").await;
    check("POST /api/v1/servers/db1/weight", "", 400, "weight").await;
    check(
        "POST /api/v1/servers/db1/weight",
        "{\"weight\":-1}",
        400,
        "-1",
    )
    .await;
    check(
        "POST /api/v1/servers/db1/weight",
        "{\"weight\":257}",
        400,
        "256",
    )
    .await;
    check(
        "POST /api/v1/servers/db1/drain",
        "{\"limit\":1}",
        400,
        "limit_ms",
    )
    .await;
    check(
        "POST /api/v1/servers/db1/drain",
        &"x".repeat(20_000),
        413,
        "16384",
    )
    .await;
}

#[tokio::test]
async fn the_unix_socket_may_change_things() {
    let world = World::start(None).await;
    let headers = ["host: evenkeel", JSON];
    for (request, body) in [
        ("POST /api/v1/reload", ""),
        ("POST /api/v1/servers/db1/drain", "{\"limit_ms\":500}"),
        ("POST /api/v1/servers/orders%2Fdb2:3306/drain", "{}"),
        ("POST /api/v1/servers/%5Bfd00::1%5D:6379/undrain", ""),
        (
            "POST /api/v1/servers/unix:%2Frun%2Fdb.sock/weight",
            "{\"weight\":256}",
        ),
    ] {
        let answer = world.unix(request, &headers, body).await;
        assert_eq!(answer.code, 200, "{request}: {}", answer.body);
        assert!(answer.reply().ok);
    }
    let drain = |server: &str, limit_ms| Command::Drain {
        server: server.into(),
        limit_ms,
    };
    let expected = [
        Command::Reload,
        drain("db1", Some(500)),
        drain("orders/db2:3306", None),
        Command::Undrain {
            server: "[fd00::1]:6379".into(),
        },
        Command::Weight {
            server: "unix:/run/db.sock".into(),
            weight: 256,
        },
    ];
    assert_eq!(world.commands(), expected);
}

#[tokio::test]
async fn a_certificate_is_revoked_for_a_known_reason() {
    let world = World::start(None).await;
    let request = "POST /api/v1/certificates/shop.example/revoke";
    for (body, code, expected) in [
        ("", 200, "shop.example, unspecified, true"),
        (
            "{\"reason\":\"superseded\",\"order\":false}",
            200,
            "superseded, false",
        ),
        ("{\"reason\":\"boredom\"}", 400, "unknown variant"),
    ] {
        let answer = world.unix(request, &["host: evenkeel", JSON], body).await;
        assert_eq!(answer.code, code, "{}", answer.body);
        assert!(answer.body.contains(expected), "{}", answer.body);
    }
}

#[tokio::test]
async fn services_are_paused_and_their_clients_shown_and_killed() {
    let world = World::start(None).await;
    let headers = ["host: evenkeel", JSON];
    let post = async |path: &str, body: &str| {
        let request = format!("POST /api/v1/services/{path}");
        world.unix(&request, &headers, body).await
    };
    let clients = world.unix("GET /api/v1/services/orders/clients", &headers, "");
    let clients: Connections = serde_json::from_str(&clients.await.body).unwrap();
    assert_eq!(clients, sample::connections());
    let digests = world.unix("GET /api/v1/services/orders/digests", &headers, "");
    let digests: Vec<DigestStatus> = serde_json::from_str(&digests.await.body).unwrap();
    assert_eq!(digests, sample::digests());

    assert_eq!(post("orders/pause", "").await.code, 200);
    // A connection is in use there: the pause is undone.
    let body = "{\"database\":\"shop\",\"limit_ms\":1}";
    let answer = post("other/pause", body).await;
    assert_eq!(answer.code, 422);
    assert!(answer.reply().message.contains("pause was cancelled"));
    assert_eq!(post("orders/kill", "{\"client\":7}").await.code, 200);
    assert_eq!(post("orders/reconnect", "{}").await.code, 200);
    for wrong in [
        "{}",
        "{\"client\":7,\"server_pid\":8}",
        "{\"client\":\"7\"}",
    ] {
        assert_eq!(post("orders/kill", wrong).await.code, 400, "{wrong}");
    }
    assert_eq!(post("orders/pause", "{\"limit_ms\":50001}").await.code, 400);

    let named = |name: &str| name.to_owned();
    let expected = [
        Command::Pause {
            service: named("orders"),
            database: None,
        },
        Command::Pause {
            service: named("other"),
            database: Some(named("shop")),
        },
        Command::Resume {
            service: named("other"),
            database: Some(named("shop")),
        },
        Command::Kill {
            service: named("orders"),
            which: KillWhich::Client(7),
        },
        Command::Reconnect {
            service: named("orders"),
            database: None,
        },
    ];
    assert_eq!(world.commands(), expected);
}

#[tokio::test]
async fn a_command_that_is_not_obeyed_is_a_422_with_the_reason() {
    let world = World::start(None).await;
    let headers = ["host: evenkeel", JSON];
    let answer = world
        .unix("POST /api/v1/servers/nobody/undrain", &headers, "")
        .await;
    assert_eq!(answer.code, 422);
    assert!(answer.reply().message.contains("nobody"));
}

#[test]
fn the_document_lists_every_field_of_the_status() {
    fn names(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                found.push(name.clone());
                names(value, found);
            }),
            serde_json::Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            _ => {}
        }
    }
    let mut status = sample::status();
    status.config.problems.push(Default::default());
    let mut found = Vec::new();
    names(&serde_json::to_value(status).unwrap(), &mut found);
    let document = include_str!("../../../../../docs/api.md");
    let words: Vec<&str> = document
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .collect();
    for name in found {
        assert!(
            words.contains(&&*name),
            "docs/api.md does not mention {name}"
        );
    }
}

//! Tests of TLS towards clients: tickets, client certificates by host, and renewed certificates.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::certificates::Certificates;
use crate::origin::Origin;
use crate::peer::{self, Kind, until};
use crate::{Bed, on_both_drivers, service};

on_both_drivers! {
    a_ticket_resumes_after_a_reload_and_an_upgrade
    a_host_that_demands_a_certificate_needs_its_own_connection
    a_renewed_certificate_is_used_and_cuts_no_client
    own_answers_over_tls_say_that_tls_is_used_only
    requests_without_tls_are_redirected_to_the_same_url
}

fn tls(certificates: &Certificates, more: &str) -> String {
    format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\n{more}",
        certificates.at("server.crt"),
        certificates.at("server.key")
    )
}

/// Sends a request with `openssl`, and returns what it prints.
fn openssl(listen: &str, options: &[&str]) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-ign_eof", "-servername", "localhost"])
        .args(["-connect", listen])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    child.stdin.take().unwrap().write_all(request).unwrap();
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stdout).into_owned()
}

fn a_ticket_resumes_after_a_reload_and_an_upgrade(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let origin = Origin::named("web");
    let listen = peer::own_address(Kind::V4);
    let config = |client_ca: bool, rest: &str| {
        let ca = format!("client_ca = {:?}\n", certificates.at("ca.crt"));
        let more = tls(&certificates, if client_ca { &ca } else { "" });
        let engine = format!("[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = 1000\n");
        format!(
            "{engine}{}",
            service(&listen, &[origin.address()], &format!("{more}{rest}"))
        )
    };
    let balancer = evenkeel_lab::Balancer::start(&config(false, "")).unwrap();
    for version in ["-tls1_3", "-tls1_2"] {
        let file = certificates.at("session.pem");
        let first = openssl(&listen, &[version, "-sess_out", &file]);
        assert!(
            first.contains("New, TLS") && first.contains("200 OK"),
            "{first}"
        );
        let resumes = |what: &str| {
            let again = openssl(&listen, &[version, "-sess_in", &file]);
            assert!(again.contains("200 OK"), "{what}: {again}");
            again.contains("Reused, TLS")
        };
        // Each worker accepts some of them.
        for _ in 0..8 {
            assert!(resumes("the same process"));
        }
        let other = config(false, "[service.http]\nhsts_days = 1\n");
        balancer.reload(&other).unwrap();
        assert!(resumes("after a reload"), "{version}: after a reload");
        balancer.upgrade(&[]).unwrap();
        assert!(resumes("after an upgrade"), "{version}: after an upgrade");
        until("the end of the old process", || balancer.pids().len() == 1);
        let keys = [certificates.at("client.crt"), certificates.at("client.key")];
        balancer.reload(&config(true, "")).unwrap();
        let refused = openssl(&listen, &[version, "-sess_in", &file]);
        assert!(!refused.contains("200 OK"), "no certificate: {refused}");
        let certified = [version, "-cert", &keys[0], "-key", &keys[1]];
        let accepted = openssl(&listen, &[&certified[..], &["-sess_in", &file]].concat());
        assert!(
            accepted.contains("New, TLS") && accepted.contains("200 OK"),
            "{accepted}"
        );
        openssl(&listen, &[&certified[..], &["-sess_out", &file]].concat());
        assert!(
            resumes("a session with a certificate"),
            "{version}: certificate"
        );
        balancer.reload(&config(false, "")).unwrap();
        assert!(!resumes("without client_ca"), "{version}: policy changed");
    }
}

/// Returns the status of a response, or `000` if there is none.
fn curl(port: &str, url: &str, options: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-sk", "-o", "/dev/null", "-w", "%{http_code} "]);
    for name in ["shop.example", "partner.example"] {
        command.args(["--resolve", &format!("{name}:{port}:127.0.0.1")]);
    }
    let output = command.args(options).arg(url).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn a_host_that_demands_a_certificate_needs_its_own_connection(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    certificates.add_server("partner", "partner.example");
    let more = format!(
        "certificates = [{{ certificate = {:?}, key = {:?}, client_ca = {:?} }}]\n",
        certificates.at("partner.crt"),
        certificates.at("partner.key"),
        certificates.at("ca.crt")
    );
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], &tls(&certificates, &more));
    let port = bed.listen.rsplit(':').next().unwrap();
    let keys = [certificates.at("client.crt"), certificates.at("client.key")];
    let certified = ["--cert", &keys[0], "--key", &keys[1]];
    let at = |host: &str| format!("https://{host}:{port}/");
    let asks = |host: &str, options: &[&str]| curl(port, &at(host), options);
    assert_eq!(asks("shop.example", &[]), "200");
    assert_eq!(asks("partner.example", &[]), "000", "no certificate");
    assert_eq!(asks("partner.example", &certified), "200");
    // A Host of another policy than that of the name in the handshake.
    for host in ["partner.example", "PARTNER.example.", "partner.example:81"] {
        let field = format!("Host: {host}");
        assert_eq!(asks("shop.example", &["-H", &field]), "421", "{host}");
        let with = [&certified[..], &["-H", &field]].concat();
        assert_eq!(
            asks("shop.example", &with),
            "421",
            "{host}: not asked for one"
        );
        let plain = format!("http://shop.example:{port}/");
        assert_eq!(curl(port, &plain, &["-H", &field]), "403", "{host}: no TLS");
    }
    let other = [&certified[..], &["-H", "Host: shop.example"]].concat();
    assert_eq!(asks("partner.example", &other), "200", "no demand");
    let without_name = ["-H", "Host: partner.example"];
    assert_eq!(
        asks("127.0.0.1", &without_name),
        "421",
        "no name in the handshake"
    );
    let hosts: Vec<_> = origin
        .seen()
        .iter()
        .map(|seen| seen.field("Host"))
        .collect();
    assert_eq!(hosts.len(), 3, "{hosts:?}");
}

fn a_renewed_certificate_is_used_and_cuts_no_client(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let origin = Origin::named("web");
    let bed = Bed::new(io, &[&origin], &tls(&certificates, ""));
    let mut child = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &bed.listen])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut asks = || {
        input
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut line = String::new();
        while line.trim() != "" || line.is_empty() {
            line.clear();
            assert_ne!(
                output.read_line(&mut line).unwrap(),
                0,
                "the connection ended"
            );
        }
        let mut body = [0; 3];
        std::io::Read::read_exact(&mut output, &mut body).unwrap();
        assert_eq!(&body, b"web");
    };
    asks();
    let serves = |name: &str| {
        let printed = openssl(&bed.listen, &["-showcerts"]);
        let text = std::fs::read_to_string(certificates.at(name)).unwrap();
        printed.contains(text.lines().nth(3).unwrap())
    };
    assert!(serves("server.crt"));
    certificates.add_server("renewed", "localhost");
    for end in ["crt", "key"] {
        let [from, to] =
            ["renewed", "server"].map(|name| certificates.at(&format!("{name}.{end}")));
        std::fs::copy(from, to).unwrap();
    }
    bed.balancer.reload(&bed.balancer.config()).unwrap();
    for _ in 0..4 {
        assert!(serves("renewed.crt"));
        asks();
    }
    drop(input);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn own_answers_over_tls_say_that_tls_is_used_only(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let more = "[service.http]\nhsts_days = 2\n[[service.route]]\npath = \"/\"\n\
                respond = { status = 200 }\n";
    let bed = Bed::of(io, &[], &tls(&certificates, more));
    let answer = openssl(&bed.listen, &[]);
    assert!(
        answer.contains("Strict-Transport-Security: max-age=172800"),
        "{answer}"
    );
    // RFC 6797 §7.2: not in responses without TLS.
    let mut plain = bed.client();
    let answer = plain.get("/");
    assert_eq!(
        (answer.status, answer.field("Strict-Transport-Security")),
        (200, None)
    );
}

/// The access log names the key, not a route.
fn requests_without_tls_are_redirected_to_the_same_url(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let more = "[service.http]\nhttps = \"redirect\"\naccess_log = \"json\"\n\
                [[service.route]]\npath = \"/old\"\nredirect = \"/new\"\n";
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], &tls(&certificates, more));
    let mut client = bed.client();
    for (request, host, location) in [
        ("GET /a?b=c", "shop.example", "https://shop.example/a?b=c"),
        ("GET /old", "shop.example:80", "https://shop.example/old"),
        (
            "GET //x.example/",
            "shop.example:81",
            "https://shop.example:81//x.example/",
        ),
        ("OPTIONS *", "shop.example", "https://shop.example/"),
    ] {
        client.send(format!("{request} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let answer = client.answer();
        assert_eq!(answer.status, 308);
        assert_eq!(answer.field("Location").as_deref(), Some(location));
    }
    let asked = openssl(&bed.listen, &[]);
    assert!(asked.contains("200 OK"), "{asked}");
    let reason = "\"reason\":\"the request came without TLS ([service.http] https)\"";
    until("the reason in the log", || {
        let log = bed.balancer.log();
        log.matches(reason).count() == 4 && !log.contains("by the route")
    });
}

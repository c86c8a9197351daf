//! Tests the HTTP and TCP probes against a real nginx.

use std::{path::Path, process::Command, time::Duration};

use evenkeel_monitor::probe::{
    Authorities, HttpProbe, Observation, Outcome, Probe, Target, TcpProbe, Tls,
};

use crate::asking::{ask, assert_failed, assert_passed, certificates, target};
use crate::rig::{PATIENCE, Server, free_port, program};

pub(crate) fn start(tls_port: u16) -> Server {
    let server = Server::start(libc::SIGKILL, |dir, port| command(dir, port, tls_port));
    server.until("nginx listens", || {
        ask(
            Probe::Tcp(TcpProbe),
            None,
            Tls::Off,
            &target(&server),
            PATIENCE,
        )
        .outcome
            == Outcome::Passed
    });
    server
}

fn command(dir: &Path, port: u16, tls_port: u16) -> Command {
    let (authority, certificate, key) = certificates();
    for (name, text) in [
        ("ca.pem", authority),
        ("cert.pem", certificate),
        ("key.pem", key),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    std::fs::write(dir.join("big"), vec![b'x'; 200_000]).unwrap();
    let config = CONFIG
        .replace("TLS_PORT", &tls_port.to_string())
        .replace("PORT", &port.to_string())
        .replace("DIR", &dir.display().to_string());
    std::fs::write(dir.join("nginx.conf"), config).unwrap();
    let mut command = Command::new(program("nginx", &[], "nginx-light"));
    command
        .arg("-e")
        .arg("stderr")
        .arg("-p")
        .arg(dir)
        .arg("-c")
        .arg(dir.join("nginx.conf"));
    command
}

const CONFIG: &str = r#"
daemon off; master_process off; pid DIR/pid; error_log stderr info;
events {}
http {
  log_format seen '$status host=$http_host agent=$http_user_agent connection=$http_connection';
  access_log DIR/access seen;
  client_body_temp_path DIR/t1; proxy_temp_path DIR/t2; fastcgi_temp_path DIR/t3;
  uwsgi_temp_path DIR/t4; scgi_temp_path DIR/t5;
  server {
    listen 127.0.0.1:PORT; listen unix:DIR/sock;
    listen 127.0.0.1:TLS_PORT ssl; ssl_certificate DIR/cert.pem; ssl_certificate_key DIR/key.pem;
    root DIR;
    location = /ok { return 200 "all is well"; }
    location = /moved { return 301 /ok; }
    location = /down { return 503; }
  }
}
"#;

fn get(path: &str) -> Probe {
    Probe::Http(HttpProbe {
        path: path.to_owned(),
        host: None,
        status: Vec::new(),
        body: None,
    })
}

fn with_body(path: &str, text: &str) -> Probe {
    let body = Some(text.to_owned());
    Probe::Http(HttpProbe {
        path: path.to_owned(),
        host: None,
        status: Vec::new(),
        body,
    })
}

#[test]
fn status_body_and_host_are_asked_and_judged() {
    let tls_port = free_port();
    let server = start(tls_port);
    let ask_it = |probe| ask(probe, None, Tls::Off, &target(&server), PATIENCE);
    assert_passed(&ask_it(get("/ok")));
    assert_passed(&ask_it(get("/moved")));
    assert_failed(
        &ask_it(get("/down")),
        "status 503 Service Unavailable, expected 200-399",
    );
    assert_passed(&ask_it(with_body("/ok", "is well")));
    let missing = ask_it(with_body("/ok", "is ill"));
    assert_failed(
        &missing,
        "\"is ill\" not found in the first 11 bytes of the body",
    );
    assert_passed(&ask_it(get("/big")));
    assert_failed(&ask_it(with_body("/big", "y")), "in the first 65536 bytes");
    let path = "/ok?deep=1".to_owned();
    let host = Some("shop.test".to_owned());
    assert_passed(&ask_it(Probe::Http(HttpProbe {
        path,
        host,
        status: vec![200..=200],
        body: None,
    })));
    let only = Probe::Http(HttpProbe {
        path: "/moved".to_owned(),
        host: None,
        status: vec![200..=204, 418..=418],
        body: None,
    });
    assert_failed(
        &ask_it(only),
        "status 301 Moved Permanently, expected 200-204, 418",
    );
    let seen = "200 host=shop.test agent=evenkeel-probe connection=close";
    server.until("nginx saw our headers", || {
        std::fs::read_to_string(server.path("access"))
            .unwrap()
            .contains(seen)
    });
}

#[test]
fn a_unix_socket_tls_a_frozen_and_a_killed_server_are_asked() {
    let tls_port = free_port();
    let server = start(tls_port);
    let unix = Target::unix(server.path("sock"));
    assert_passed(&ask(get("/ok"), None, Tls::Off, &unix, PATIENCE));
    assert_passed(&ask(Probe::Tcp(TcpProbe), None, Tls::Off, &unix, PATIENCE));
    let tls = |tls| -> Observation {
        let target = Target::tcp(([127, 0, 0, 1], tls_port).into());
        ask(with_body("/ok", "well"), None, tls, &target, PATIENCE)
    };
    let ca = Some(Authorities::from_pem(&std::fs::read(server.path("ca.pem")).unwrap()).unwrap());
    assert_passed(&tls(Tls::Encrypt(None)));
    assert_passed(&tls(Tls::Verify {
        ca,
        fingerprints: Vec::new(),
        server_name: "db.test".to_owned(),
        identity: None,
    }));
    let public = Tls::Verify {
        ca: None,
        fingerprints: Vec::new(),
        server_name: "db.test".to_owned(),
        identity: None,
    };
    assert_failed(&tls(public.clone()), "server certificate is not trusted");
    let tcp = |tls, port| {
        let target = Target::tcp(([127, 0, 0, 1], port).into());
        ask(Probe::Tcp(TcpProbe), None, tls, &target, PATIENCE)
    };
    assert_passed(&tcp(Tls::Encrypt(None), tls_port));
    assert_failed(&tcp(public, tls_port), "server certificate is not trusted");
    let plain = tcp(Tls::Encrypt(None), server.port);
    assert_failed(&plain, "the server's response is not TLS");
    server.signal(libc::SIGSTOP);
    let limit = Duration::from_millis(500);
    let frozen = ask(get("/ok"), None, Tls::Off, &target(&server), limit);
    assert_failed(
        &frozen,
        "timed out after 500 ms while waiting for the HTTP response",
    );
    server.kill();
    for probe in [get("/ok"), Probe::Tcp(TcpProbe)] {
        assert_failed(
            &ask(probe, None, Tls::Off, &target(&server), PATIENCE),
            "connection refused",
        );
    }
    assert!(!server.log().contains("eset by peer"), "{}", server.log());
}

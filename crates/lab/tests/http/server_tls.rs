//! Tests of TLS towards servers that fails: what the log, the access log and the client learn.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use evenkeel_lab::free_port;

use crate::certificates::Certificates;
use crate::peer::until;
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_certificate_that_is_not_accepted_is_logged_once_with_its_cause
    a_server_without_tls_is_logged_once_with_its_cause
}

/// A web server of OpenSSL.
struct Server {
    address: String,
    process: Child,
}

impl Server {
    fn start(certificates: &Certificates, name: &str) -> Server {
        let address = format!("127.0.0.1:{}", free_port());
        let process = Command::new("openssl")
            .args(["s_server", "-www", "-quiet", "-accept", &address])
            .args(["-cert", &certificates.at(&format!("{name}.crt"))])
            .args(["-key", &certificates.at(&format!("{name}.key"))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the server", || TcpStream::connect(&address).is_ok());
        Server { address, process }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn verified(certificates: &Certificates) -> String {
    format!(
        "[service.health]\nprobe = \"tcp\"\n[service.http]\naccess_log = \"json\"\n\
         [service.server_tls]\nmode = \"verify\"\nca = {:?}\n",
        certificates.at("ca.crt")
    )
}

/// Sends three requests, and asserts that the cause is logged once, in each line of the access log,
/// and of its type only towards the client.
#[track_caller]
fn check(bed: &Bed, server: &str, error: &str, cause: &str) {
    let mut client = bed.client();
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!(answer.status, 502, "{cause}: {}", answer.text());
        let proxy_status = answer.field("Proxy-Status").unwrap();
        let text = format!("{proxy_status} {}", answer.text());
        assert!(proxy_status.contains(&format!("error={error};")), "{text}");
        assert!(
            !text.contains(server) && !text.contains("[service"),
            "{text}"
        );
    }
    let cause = format!("server {server}: TLS: {cause}");
    until(&cause, || {
        let log = bed.balancer.log();
        let with_cause = || log.lines().filter(|line| line.contains(&cause));
        let (requests, others): (Vec<_>, Vec<_>) =
            with_cause().partition(|line| line.contains("\"end\":\"answered\""));
        assert!(others.len() <= 1, "{others:?}");
        requests.len() == 3 && others.len() == 1 && others[0].contains("WARN")
    });
}

fn a_certificate_that_is_not_accepted_is_logged_once_with_its_cause(io: &str) {
    let (Some(certificates), Some(others)) = (Certificates::make(), Certificates::make()) else {
        return;
    };
    certificates.add_server("other", "other.example");
    certificates.add_expired();
    for (of, name, cause) in [
        (&certificates, "other", "is not valid for this name"),
        (&certificates, "expired", "has expired"),
        (&others, "server", "is not trusted"),
    ] {
        let server = Server::start(of, name);
        let bed = Bed::of(io, &[&server.address], &verified(&certificates));
        let cause = format!("server certificate {cause}");
        check(&bed, &server.address, "tls_certificate_error", &cause);
    }
    let server = Server::start(&certificates, "server");
    let bed = Bed::of(io, &[&server.address], &verified(&certificates));
    assert_eq!(bed.client().get("/").status, 200);
    assert!(!bed.balancer.log().contains("TLS: "));
}

fn a_server_without_tls_is_logged_once_with_its_cause(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let (silent_address, plain_address) = (address(&silent), address(&plain));
    std::thread::spawn(move || {
        for client in plain.incoming() {
            let mut client = client.unwrap();
            // A probe sends nothing.
            if let Ok(1..) = client.read(&mut [0; 4096]) {
                let refusal = b"HTTP/1.1 400 Bad Request\r\n\r\n";
                client.write_all(refusal).unwrap();
                let _ = client.read_to_end(&mut Vec::new());
            }
        }
    });
    let config = format!("connect_timeout_ms = 500\n{}", verified(&certificates));
    for (server, cause) in [
        (&plain_address, "the server's response is not TLS"),
        (&silent_address, "no handshake within 500 ms"),
    ] {
        let bed = Bed::of(io, &[server], &config);
        check(&bed, server, "tls_protocol_error", cause);
    }
}

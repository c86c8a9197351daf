//! Tests with nginx over TLS, which agrees to HTTP/2 or does not.

use std::process::{Child, Command, Stdio};

use evenkeel_lab::{Balancer, free_port};

use crate::certificates::Certificates;
use crate::client::Client;
use crate::peer::{self, Kind, until};
use crate::{frames::Http2, on_both_drivers};

on_both_drivers! {
    the_protocol_is_what_the_server_agrees_to
    a_server_that_changes_its_protocol_is_followed
}

/// nginx, which answers with the protocol of the request.
struct Nginx {
    directory: tempfile::TempDir,
    address: String,
    process: Child,
}

impl Nginx {
    fn start(certificates: &Certificates, options: &str) -> Option<Nginx> {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let nginx = ["/usr/sbin/nginx", "/usr/bin/nginx"];
        let Some(nginx) = nginx
            .iter()
            .find(|path| std::path::Path::new(path).is_file())
        else {
            println!("skipped: nginx is not installed");
            return None;
        };
        write_config(&directory, &address, certificates, options);
        let process = Command::new(nginx)
            .arg("-p")
            .arg(directory.path())
            .args(["-c", "nginx.conf", "-e", "stderr"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("nginx", || std::net::TcpStream::connect(&address).is_ok());
        Some(Nginx {
            directory,
            address,
            process,
        })
    }

    fn reload(&self, certificates: &Certificates, options: &str) {
        write_config(&self.directory, &self.address, certificates, options);
        let pid = self.process.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-HUP", &pid])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.process.wait();
    }
}

fn write_config(
    directory: &tempfile::TempDir,
    address: &str,
    certificates: &Certificates,
    options: &str,
) {
    let [certificate, key] = ["server.crt", "server.key"].map(|name| certificates.at(name));
    let config = format!(
        "daemon off;\npid nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\nclient_body_temp_path \
         b;\nproxy_temp_path p;\nfastcgi_temp_path f;\nuwsgi_temp_path u;\nscgi_temp_path \
         s;\nserver {{ listen {address} ssl {options}; ssl_certificate {certificate}; \
         ssl_certificate_key {key}; location / {{ return 200 \"$server_protocol $http_upgrade\"; \
         }} }}\n}}\n"
    );
    std::fs::write(directory.path().join("nginx.conf"), config).unwrap();
}

fn balancer(
    io: &str,
    certificates: &Certificates,
    server: &str,
    http2: &str,
) -> (String, Balancer) {
    let listen = peer::own_address(Kind::V4);
    let more = format!(
        "protocol = \"http\"\n[service.http]\nhttp2 = \"all\"\nserver_http2 = {http2:?}\n\
         [service.server_tls]\nmode = \"verify\"\nca = {:?}\n[service.pool]\nidle_ms = 200\n",
        certificates.at("ca.crt")
    );
    let balancer = peer::balancer(io, &peer::service(&listen, &[server], &more));
    (listen, balancer)
}

fn the_protocol_is_what_the_server_agrees_to(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    for (options, http2, expected) in [
        ("http2", "tls", "HTTP/2.0 "),
        ("http2", "all", "HTTP/2.0 "),
        ("http2", "off", "HTTP/1.1 "),
        ("", "tls", "HTTP/1.1 "),
        ("", "all", "HTTP/1.1 "),
    ] {
        let Some(nginx) = Nginx::start(&certificates, options) else {
            return;
        };
        let (listen, _balancer) = balancer(io, &certificates, &nginx.address, http2);
        let mut clients: Vec<Http2> = (0..4).map(|_| Http2::connect(&listen)).collect();
        for client in &mut clients {
            let streams: Vec<u32> = (0..20).map(|_| client.open("POST", "/", &[])).collect();
            for stream in &streams {
                client.send(crate::frames::data(*stream, "body", true));
            }
            for stream in streams {
                let response = client.response(stream);
                assert_eq!(response.text(), expected, "{options} {http2}: {response:?}");
            }
        }
        // A change of the protocol needs HTTP/1.1.
        let mut client = Client::connect(&listen);
        client.send(
            "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        );
        assert_eq!(
            client.answer().text(),
            "HTTP/1.1 websocket",
            "{options} {http2}"
        );
    }
}

fn a_server_that_changes_its_protocol_is_followed(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let Some(nginx) = Nginx::start(&certificates, "") else {
        return;
    };
    let (listen, _balancer) = balancer(io, &certificates, &nginx.address, "tls");
    let mut client = Http2::connect(&listen);
    let mut speaks = |expected: &str| {
        until(expected, || {
            let response = client.ask("GET", "/", &[]);
            assert_eq!(response.status(), 200, "{response:?}");
            std::thread::sleep(std::time::Duration::from_millis(50));
            response.text() == expected
        });
    };
    speaks("HTTP/1.1 ");
    nginx.reload(&certificates, "http2");
    speaks("HTTP/2.0 ");
    nginx.reload(&certificates, "");
    speaks("HTTP/1.1 ");
}

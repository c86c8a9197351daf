//! Tests of WebSockets over HTTP/2 with programs of others: clients of Node, and its servers of
//! HTTP/1.1 and HTTP/2.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use evenkeel_lab::free_port;

use crate::certificates::Certificates;
use crate::clients::{command, run};
use crate::on_both_drivers;
use crate::peer::{self, Kind, until};

on_both_drivers! {
    node_has_large_messages_echoed_by_servers_of_each_version
}

/// Memory in kilobytes by which the balancer may grow with WebSockets of 10 MB.
const GROWN_KB_MAX: u64 = 40_000;

/// A server, which ends with the test.
struct Server {
    address: String,
    process: Child,
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/http2")
        .join(name)
}

impl Server {
    /// Starts a server; `None`: Node is missing.
    fn start(certificates: &Certificates, version: &str, connect: &str) -> Option<Server> {
        let port = free_port();
        let mut node: Command = command("node")?;
        node.arg(source("socket-server.mjs"))
            .args([&port.to_string(), version, connect])
            .arg(certificates.at("server.key"))
            .arg(certificates.at("server.crt"))
            .stdin(Stdio::null());
        let process = node.spawn().unwrap();
        let address = format!("127.0.0.1:{port}");
        until("the server", || TcpStream::connect(&address).is_ok());
        Some(Server { address, process })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn node_has_large_messages_echoed_by_servers_of_each_version(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    // Version and offer of the server, key of the service, and the version of the WebSocket.
    let rows = [
        ("1", "", "off", "1.1"),
        ("2", "connect", "all", "2"),
        ("tls", "connect", "tls", "2"),
        ("tls", "", "tls", "1.1"),
        ("tls", "connect", "off", "1.1"),
    ];
    for (version, connect, http2, via) in rows {
        let Some(server) = Server::start(&certificates, version, connect) else {
            return;
        };
        let mut more = format!(
            "protocol = \"http\"\n[service.http]\nhttp2 = \"all\"\nserver_http2 = {http2:?}\n{}",
            crate::tls(&certificates)
        );
        if version == "tls" {
            let ca = certificates.at("ca.crt");
            more += &format!("[service.server_tls]\nmode = \"verify\"\nca = {ca:?}\n");
        }
        let listen = peer::own_address(Kind::V4);
        let service = peer::service(&listen, &[&server.address], &more);
        let balancer = peer::balancer(io, &service);
        let before_kb = balancer.memory_kb();
        for scheme in ["http", "https"] {
            let mut node = command("node").unwrap();
            node.arg(source("socket-client.mjs"))
                .arg(format!("{scheme}://{listen}"))
                .args([&certificates.at("ca.crt"), via]);
            assert_eq!(
                run(node, b""),
                "done\n",
                "{version} {connect} {http2} {scheme}"
            );
        }
        let grown_kb = balancer.memory_kb().saturating_sub(before_kb);
        println!("{io}, {version} {connect} {http2}: {grown_kb} kB more");
        assert!(grown_kb < GROWN_KB_MAX, "{grown_kb} kB");
    }
}

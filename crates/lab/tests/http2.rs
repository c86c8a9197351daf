//! Tests of clients of HTTP/2: real ones, and one that writes frames, on both drivers.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/certificates.rs"]
#[allow(dead_code, reason = "other test programs use the rest")]
mod certificates;
#[path = "http/client.rs"]
#[allow(dead_code, reason = "another test program uses the rest")]
mod client;
#[path = "http2/clients.rs"]
mod clients;
#[path = "http/coded.rs"]
mod coded;
#[path = "http2/compress.rs"]
mod compress;
#[path = "http2/fetched.rs"]
mod fetched;
#[path = "http2/floods.rs"]
mod floods;
#[path = "http2/frames.rs"]
mod frames;
#[path = "http2/mirror.rs"]
mod mirror;
#[path = "http2/operate.rs"]
mod operate;
#[path = "http/origin.rs"]
#[allow(dead_code, reason = "another test program uses the rest")]
mod origin;
#[path = "peer/peer.rs"]
mod peer;
#[path = "http2/seams.rs"]
mod seams;
#[path = "http2/sockets.rs"]
mod sockets;
#[path = "http2/websocket.rs"]
mod websocket;

use certificates::Certificates;
use evenkeel_lab::Balancer;
use frames::Http2;
use origin::Origin;
use peer::Kind;
use serde_json::Value;

/// A service that serves HTTP/2 in plaintext too, in front of servers.
struct Bed {
    listen: String,
    balancer: Balancer,
}

impl Bed {
    /// Starts the balancer; `more` are keys of `[service.http]`, and further tables.
    fn new(io: &str, servers: &[&Origin], more: &str) -> Bed {
        let listen = peer::own_address(Kind::V4);
        let balancer = peer::balancer(io, &service(&listen, servers, more));
        Bed { listen, balancer }
    }

    fn client(&self) -> Http2 {
        Http2::connect(&self.listen)
    }

    fn status(&self) -> Value {
        self.balancer.status().unwrap()["services"][0].clone()
    }
}

fn service(listen: &str, servers: &[&Origin], more: &str) -> String {
    let servers: Vec<&str> = servers.iter().map(|server| server.address()).collect();
    let more = format!("protocol = \"http\"\n[service.http]\nhttp2 = \"all\"\n{more}");
    peer::service(listen, &servers, &more)
}

/// Returns the table of the certificate.
fn tls(certificates: &Certificates) -> String {
    format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\n",
        certificates.at("server.crt"),
        certificates.at("server.key")
    )
}

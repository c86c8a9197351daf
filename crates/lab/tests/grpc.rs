//! Tests of servers of HTTP/2 and of gRPC: real ones, and one that follows a script, on both
//! drivers.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/certificates.rs"]
#[allow(dead_code, reason = "other test programs use the rest")]
mod certificates;
#[path = "http/client.rs"]
#[allow(dead_code, reason = "another test program uses the rest")]
mod client;
#[path = "http/coded.rs"]
#[allow(dead_code, reason = "another test program uses the rest")]
mod coded;
#[path = "http2/frames.rs"]
#[allow(dead_code, reason = "another test program uses the rest")]
mod frames;
#[path = "grpc/go.rs"]
mod go;
#[path = "grpc/origins.rs"]
mod origins;
#[path = "peer/peer.rs"]
mod peer;
#[path = "grpc/real.rs"]
mod real;
#[path = "grpc/script.rs"]
mod script;
#[path = "grpc/seams.rs"]
mod seams;
#[path = "grpc/tls.rs"]
mod tls;
#[path = "grpc/websocket.rs"]
mod websocket;

use evenkeel_lab::Balancer;
use frames::Http2;
use peer::Kind;

/// A service that speaks HTTP/2 with its servers, and serves it in plaintext.
struct Bed {
    listen: String,
    balancer: Balancer,
}

impl Bed {
    /// Starts the balancer; `more` are keys of `[service.http]`, and further tables.
    fn new(io: &str, servers: &[&str], more: &str) -> Bed {
        let listen = peer::own_address(Kind::V4);
        let balancer = peer::balancer(io, &service(&listen, servers, more));
        Bed { listen, balancer }
    }

    fn client(&self) -> Http2 {
        Http2::connect(&self.listen)
    }
}

fn service(listen: &str, servers: &[&str], more: &str) -> String {
    let keys = "http2 = \"all\"\nserver_http2 = \"all\"\n";
    let more = format!("protocol = \"http\"\n[service.http]\n{keys}{more}");
    peer::service(listen, servers, &more)
}

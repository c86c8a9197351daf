//! Tests of `protocol = "http"`: what clients and servers see of each other's messages, on both
//! drivers.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "http/route/auth.rs"]
mod auth;
#[path = "http/browser.rs"]
mod browser;
#[path = "harness/certificates.rs"]
#[allow(dead_code, reason = "other test programs use the rest")]
mod certificates;
#[path = "http/route/choice.rs"]
mod choice;
#[path = "http/client.rs"]
mod client;
#[path = "http/closing.rs"]
mod closing;
#[path = "http/coded.rs"]
mod coded;
#[path = "http/compress.rs"]
mod compress;
#[path = "http/date.rs"]
mod date;
#[path = "http/flow.rs"]
mod flow;
#[path = "http/framing.rs"]
mod framing;
#[path = "http/hostile.rs"]
mod hostile;
#[path = "http/identity.rs"]
mod identity;
#[path = "http/interim.rs"]
mod interim;
#[path = "http/limits.rs"]
mod limits;
#[path = "http/route/mirror.rs"]
mod mirror;
#[path = "http/operate.rs"]
mod operate;
#[path = "http/origin.rs"]
mod origin;
#[path = "http/route/pages.rs"]
mod pages;
#[path = "peer/peer.rs"]
mod peer;
#[path = "http/race.rs"]
mod race;
#[path = "http/real.rs"]
mod real;
#[path = "http/route/removal.rs"]
mod removal;
#[path = "http/reuse.rs"]
mod reuse;
#[path = "http/server_tls.rs"]
mod server_tls;
#[path = "http/slow.rs"]
mod slow;
#[path = "http/route/split.rs"]
mod split;
#[path = "http/route/sticky.rs"]
mod sticky;
#[path = "http/tls.rs"]
mod tls;
#[path = "http/websocket.rs"]
mod websocket;

use evenkeel_lab::Balancer;
use origin::Origin;
use peer::Kind;
use serde_json::Value;

/// A service of `protocol = "http"` in front of servers.
struct Bed {
    listen: String,
    balancer: Balancer,
}

impl Bed {
    /// Starts the balancer; `more` are keys and tables of the service.
    fn new(io: &str, servers: &[&Origin], more: &str) -> Bed {
        let addresses: Vec<&str> = servers.iter().map(|server| server.address()).collect();
        Bed::of(io, &addresses, more)
    }

    fn of(io: &str, servers: &[&str], more: &str) -> Bed {
        let listen = peer::own_address(Kind::V4);
        let balancer = peer::balancer(io, &service(&listen, servers, more));
        Bed { listen, balancer }
    }

    fn client(&self) -> client::Client {
        client::Client::connect(&self.listen)
    }

    fn status(&self) -> Value {
        self.balancer.status().unwrap()["services"][0].clone()
    }

    fn until_idle(&self) {
        peer::until_service(&self.balancer, "no session", |service| {
            service["sessions"]["current"] == 0
        });
    }
}

fn service(listen: &str, servers: &[&str], more: &str) -> String {
    peer::service(listen, servers, &format!("protocol = \"http\"\n{more}"))
}

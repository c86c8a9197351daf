//! Tests of an address that moves to another server: connection numbers have another meaning there.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::client::{Client, Login};
use super::stage::{Setup, TestBed, config, start_own};
use crate::harness::{DRIVERS, wait_until};

const SLEEP: &str = "select sleep(2)";

/// Query for the number of clients that execute it.
const SLEEPING: &str =
    "select count(*) from information_schema.processlist where info = 'select sleep(2)'";

/// An address that can be moved between servers, like a virtual one; existing connections stay.
struct Moving {
    address: SocketAddr,
    leads_to: Arc<Mutex<SocketAddr>>,
}

impl Moving {
    fn to(server: SocketAddr) -> Moving {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free address");
        let address = listener.local_addr().expect("it has one");
        let leads_to = Arc::new(Mutex::new(server));
        let now = Arc::clone(&leads_to);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(*now.lock().expect("no panic"));
                let Ok(server) = server else { continue };
                pass(&client, &server);
                pass(&server, &client);
            }
        });
        Moving { address, leads_to }
    }

    fn lead_to(&self, server: SocketAddr) {
        *self.leads_to.lock().expect("no panic") = server;
    }
}

fn pass(from: &TcpStream, to: &TcpStream) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    let (mut from, mut to) = (clone(from), clone(to));
    thread::spawn(move || {
        let _ = copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}

/// Returns the server's connection with that number, which it has not assigned yet.
fn numbered(server: SocketAddr, number: u32) -> Client {
    loop {
        let client = Client::connect(server);
        assert!(client.connection <= number, "it was given out");
        if client.connection == number {
            return client;
        }
    }
}

/// TO SEE THIS RED: send a KILL to the server that has the address now.
#[test]
fn a_kill_does_not_hit_who_has_the_same_number_at_another_server() {
    let ((_lab, first), (_second_lab, second)) = (start_own(), start_own());
    for io in DRIVERS {
        // The monitor's numbers at the second server are far below the clients' at the first.
        let ahead = Client::connect(second.address).connection + 100;
        while Client::connect(first.address).connection < ahead {}
        let way = Moving::to(first.address);
        let through = |address| {
            let config = config(&first, address, io, Setup::default());
            config.replace(&first.address.to_string(), &way.address.to_string())
        };
        let bed = TestBed::start(through, |bed| {
            Client::log_in(bed.address, &Login::default()).map(drop)
        });
        let (mut client, mut other) = (bed.client(), bed.client());
        let number = client.backend().parse().expect("a number");
        let mut stranger = numbered(second.address, number);
        client.query_later(SLEEP);
        stranger.query_later(SLEEP);
        for server in [&first, &second] {
            wait_until(&bed.balancer, "both queries", || {
                server.sql(SLEEPING).unwrap() == "1"
            });
        }
        way.lead_to(second.address);
        other.run(&format!("kill query {}", client.connection));
        let reply = stranger.reply();
        assert!(reply.contains(&"row 0".to_owned()), "{io}: {reply:?}");
    }
}

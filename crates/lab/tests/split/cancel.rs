//! Tests of cancel requests across processes and Evenkeel instances.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::Balancer;

use crate::harness::cluster::service_toml;
use crate::harness::{DRIVERS, LIMIT, loopback, wait_until};
use crate::stage::{Client, Failed, TestBed};
use tokio_postgres::NoTls;

const SLEEP: &str = "SELECT pg_sleep(25)";

fn patient_engine(io: &str) -> String {
    format!("[engine]\nio = {io:?}\nshutdown_limit_ms = 60000\n")
}

/// Runs a long query, cancels it as soon as a server executes it, and returns its result.
fn cancelled(bed: &TestBed, client: &Client, before: impl FnOnce()) -> Result<Vec<String>, Failed> {
    let token = client.client.cancel_token();
    thread::scope(|scope| {
        let sleeping = scope.spawn(|| client.text(SLEEP));
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(25)%' \
                   AND state = 'active'";
        wait_until(&bed.balancer, "a query that sleeps", || {
            let servers = bed.scenario.servers.iter();
            servers
                .map(|one| one.sql(sql).unwrap())
                .any(|count| count == "1")
        });
        before();
        let asking = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let started = Instant::now();
        asking.block_on(token.cancel_query(NoTls)).unwrap();
        let ended = sleeping.join().unwrap();
        assert!(started.elapsed() < LIMIT);
        ended
    })
}

#[test]
fn a_cancel_request_finds_the_process_that_has_the_client_after_an_upgrade_on_both_drivers() {
    for io in DRIVERS {
        let further = "[service.split]\nreads = true";
        let bed = TestBed::start(&patient_engine(io), further);
        let client = bed.client();
        let state = |ended: Result<Vec<String>, Failed>| ended.unwrap_err().state;
        assert_eq!(state(cancelled(&bed, &client, || {})), "57014");
        let ended = cancelled(&bed, &client, || {
            bed.balancer.upgrade(&[]).unwrap();
        });
        assert_eq!(state(ended), "57014", "{io}\n{}", bed.balancer.log());
        // Later clients, which may have the same slot in another process, are not affected.
        let others: Vec<Client> = (0..4).map(|_| bed.client()).collect();
        thread::scope(|scope| {
            let sleeping: Vec<_> = others
                .iter()
                .map(|other| scope.spawn(|| other.text("SELECT 'slept' FROM pg_sleep(2)")))
                .collect();
            assert_eq!(state(cancelled(&bed, &client, || {})), "57014");
            for one in sleeping {
                assert_eq!(one.join().unwrap().unwrap(), ["slept"]);
            }
        });
    }
}

#[test]
fn a_cancel_request_that_reaches_another_evenkeel_is_passed_on_to_the_right_one() {
    let (first, second) = (loopback(), loopback());
    let peers = |instance, others: &str| {
        format!("[peers]\ninstance = {instance}\naddresses = {{ {others} }}\n")
    };
    let head = patient_engine("auto");
    let own = head.clone() + &peers(1, &format!("2 = \"{second}\""));
    let bed = TestBed::start_at(first, &own, "[service.split]\nreads = true");
    let other = head + &peers(2, &format!("1 = \"localhost:{}\"", first.port()));
    let other = other + &service_toml("db", bed.scenario.kind, second, &bed.scenario.servers, "");
    let other = Balancer::start(&other).unwrap();
    wait_until(&other, "another balancer", || {
        Client::try_connect(second).is_ok()
    });
    // The peer's name must be resolved first, which no status shows.
    thread::sleep(Duration::from_millis(200));
    for (own, foreign) in [(first, second), (second, first)] {
        // Clients connect by an address that leads to either instance.
        let shared = first_here_then_there(own, foreign);
        let client = Client::connect(shared);
        let failed = cancelled(&bed, &client, || {}).unwrap_err();
        assert_eq!(failed.state, "57014", "{failed:?}");
        assert_eq!(client.text("SELECT 1").unwrap(), ["1"]);
    }
}

/// Returns an address whose first connection leads to `here`, and all others to `there`.
fn first_here_then_there(here: SocketAddr, there: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut to = here;
        while let Ok((client, _)) = listener.accept() {
            let server = TcpStream::connect(to).unwrap();
            to = there;
            copy(client.try_clone().unwrap(), server.try_clone().unwrap());
            copy(server, client);
        }
    });
    address
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        // When either side ends, the other side ends, too.
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

//! Tests of the queue in front of servers without capacity: which clients wait, how long, and in
//! which order.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "peer/peer.rs"]
mod peer;

use std::time::{Duration, Instant};

use evenkeel_lab::Balancer;
use peer::{
    End, Kind, Listening, Scripted, connect, end_of, end_sending, named_service, receive,
    receive_all, send, stays, until,
};
use socket2::Socket;

on_both_drivers! {
    clients_that_wait_are_served_in_the_order_they_came
    clients_of_two_services_that_share_a_server_wait_in_one_order
    nobody_waits_longer_than_the_limit
    a_full_queue_ends_the_next_client_at_once_and_cleanly
    a_client_that_left_while_it_waited_takes_no_place
    a_client_that_half_closed_while_it_waited_is_served
    a_server_never_has_more_connections_than_its_limit
    a_client_whose_servers_have_all_failed_holds_up_nobody
    clients_that_wait_are_turned_away_once_all_servers_are_down
}

/// Lines of a service whose clients must wait until they are served: by default they are rejected
/// after five seconds, and a busy machine may stop for longer between two steps of a test.
const PATIENT: &str = "[service.queue]\nwait_ms = 600000\n";

/// One or two services in front of one server with one permit.
struct TestBed {
    listens: Vec<String>,
    server: Listening,
    balancer: Balancer,
}

impl TestBed {
    fn new(io: &str, services: usize, more: &str) -> TestBed {
        let server = Listening::new(Kind::V4);
        let entry = limited(&server.address, 1);
        let listens: Vec<String> = (0..services).map(|_| peer::own_address(Kind::V4)).collect();
        let service = |(number, listen): (usize, &String)| {
            named_service(&format!("s{number}"), listen, &[&entry], more)
        };
        let config: Vec<String> = listens.iter().enumerate().map(service).collect();
        let balancer = peer::balancer(io, &config.concat());
        TestBed {
            listens,
            server,
            balancer,
        }
    }

    /// Returns a client that holds the permit: the sockets of client and server.
    fn holder(&self) -> (Socket, Socket) {
        let client = self.client(0, b"!");
        let server = self.server.accept();
        receive(&server, 1);
        (client, server)
    }

    fn client(&self, service: usize, words: &[u8]) -> Socket {
        let client = connect(&self.listens[service]);
        send(&client, words);
        client
    }

    /// Starts a client, and returns after its service has queued it.
    fn waiting(&self, service: usize, words: &[u8]) -> Socket {
        let before = self.queued(service);
        let client = self.client(service, words);
        until("the client in the queue", || {
            self.queued(service) == before + 1
        });
        client
    }

    fn queued(&self, service: usize) -> u64 {
        self.number(service, "/queue/current")
    }

    fn number(&self, service: usize, pointer: &str) -> u64 {
        let status = self.balancer.status().unwrap();
        let number = status["services"][service].pointer(pointer);
        number.unwrap().as_u64().unwrap()
    }
}

fn limited(address: &str, max_connections: u32) -> String {
    format!("{{ address = {address:?}, max_connections = {max_connections} }}")
}

fn clients_that_wait_are_served_in_the_order_they_came(io: &str) {
    let bed = TestBed::new(io, 1, PATIENT);
    let mut holder = bed.holder();
    let words: [&[u8]; 5] = [b"1", b"2", b"3", b"4", b"5"];
    let clients: Vec<Socket> = words.iter().map(|word| bed.waiting(0, word)).collect();
    for (client, word) in clients.into_iter().zip(words) {
        drop(holder);
        let server = bed.server.accept();
        assert_eq!(receive(&server, 1), word);
        send(&server, b"yes");
        assert_eq!(receive(&client, 3), b"yes");
        holder = (client, server);
    }
    assert_eq!(bed.queued(0), 0);
}

fn clients_of_two_services_that_share_a_server_wait_in_one_order(io: &str) {
    let bed = TestBed::new(io, 2, PATIENT);
    let mut holder = bed.holder();
    let words: [(usize, &[u8]); 6] = [
        (1, b"1"),
        (0, b"2"),
        (1, b"3"),
        (1, b"4"),
        (0, b"5"),
        (0, b"6"),
    ];
    let clients: Vec<Socket> = words
        .iter()
        .map(|(service, word)| bed.waiting(*service, word))
        .collect();
    let mut order = Vec::new();
    for client in clients {
        drop(holder);
        let server = bed.server.accept();
        order.extend(receive(&server, 1));
        // The served client is dropped next: the server's side decides, as this client may not be
        // the one that is served.
        holder = (client, server);
    }
    assert_eq!(String::from_utf8(order).unwrap(), "123456");
}

fn nobody_waits_longer_than_the_limit(io: &str) {
    let bed = TestBed::new(io, 1, "[service.queue]\nwait_ms = 300\n");
    let _holder = bed.holder();
    let started = Instant::now();
    let client = bed.client(0, b"a request");
    assert_eq!(end_of(&client), End::Clean);
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(300), "{waited:?}");
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    until("the count", || bed.number(0, "/queue/timed_out_total") == 1);
    assert_eq!(bed.queued(0), 0);
}

fn a_full_queue_ends_the_next_client_at_once_and_cleanly(io: &str) {
    let bed = TestBed::new(io, 1, "[service.queue]\nlength = 2\nwait_ms = 60000\n");
    let holder = bed.holder();
    let _first = bed.waiting(0, b"1");
    let _second = bed.waiting(0, b"2");
    for number in 1..=3 {
        assert_eq!(end_of(&bed.client(0, b"a request")), End::Clean);
        until("the count", || {
            bed.number(0, "/errors/queue_full") == number
        });
    }
    drop(holder);
    assert_eq!(receive(&bed.server.accept(), 1), b"1");
}

fn a_client_that_left_while_it_waited_takes_no_place(io: &str) {
    let bed = TestBed::new(io, 1, PATIENT);
    let holder = bed.holder();
    let silent = connect(&bed.listens[0]);
    until("the silent one in the queue", || bed.queued(0) == 1);
    let broken = bed.waiting(0, b"broken");
    let patient = bed.waiting(0, b"patient");
    peer::leave(silent, false);
    peer::leave(broken, true);
    drop(holder);
    let server = bed.server.accept();
    assert_eq!(receive(&server, 7), b"patient");
    send(&server, b"yes");
    assert_eq!(receive(&patient, 3), b"yes");
}

/// The client has sent its whole request and waits for the answer, as `printf … | nc -N` does.
fn a_client_that_half_closed_while_it_waited_is_served(io: &str) {
    let bed = TestBed::new(io, 1, PATIENT);
    let holder = bed.holder();
    let client = bed.waiting(0, b"request");
    end_sending(&client);
    drop(holder);
    let server = bed.server.accept();
    assert_eq!(receive_all(&server), b"request");
    send(&server, b"answer");
    drop(server);
    assert_eq!(receive_all(&client), b"answer");
}

fn a_server_never_has_more_connections_than_its_limit(io: &str) {
    let servers: Vec<Scripted> = (0..2)
        .map(|_| {
            Scripted::start(Kind::V4, |client| {
                let word = receive(client, 4);
                send(client, &word);
            })
        })
        .collect();
    let entries: Vec<String> = servers.iter().map(|s| limited(s.address(), 3)).collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let listens = [peer::own_address(Kind::V4), peer::own_address(Kind::V4)];
    let more = format!("balance = \"random-two\"\n{PATIENT}");
    let config = named_service("one", &listens[0], &entries, &more)
        + &named_service("two", &listens[1], &entries, &more);
    let balancer = peer::balancer(io, &config);
    std::thread::scope(|scope| {
        for number in 0..16 {
            let listen = &listens[number % 2];
            scope.spawn(move || {
                for _ in 0..40 {
                    let client = connect(listen);
                    send(&client, b"word");
                    assert_eq!(receive_all(&client), b"word");
                }
            });
        }
    });
    for server in &servers {
        assert!(server.highest() <= 3, "{} at once", server.highest());
        assert!(server.total() > 100, "{} in all", server.total());
    }
    let status = balancer.status().unwrap();
    assert_eq!(status["services"][0]["queue"]["current"], 0);
}

/// One server is down, the other full. After the first one has returned, a client that has tried it
/// must not block the queue for clients that have not.
fn a_client_whose_servers_have_all_failed_holds_up_nobody(io: &str) {
    let full = Listening::new(Kind::V4);
    let dead = peer::own_address(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let entries = [limited(&full.address, 1), limited(&dead, 1)];
    let more = format!("balance = \"first\"\nretries = 5\n{PATIENT}");
    let config = named_service("s", &listen, &[&entries[0], &entries[1]], &more);
    let balancer = peer::balancer(io, &config);
    let _holder = {
        let client = connect(&listen);
        (full.accept(), client)
    };
    let stuck = connect(&listen);
    send(&stuck, b"stuck");
    let queued = || balancer.status().unwrap()["services"][0]["queue"]["current"].clone();
    until("the unlucky one in the queue", || queued() == 1);
    // The failed server is back; new clients may reach it immediately, or after the next check.
    let back = Scripted::on(Listening::at(&dead), |client| {
        let word = receive(client, 4);
        send(client, &word);
    });
    let lucky = connect(&listen);
    send(&lucky, b"word");
    assert_eq!(receive(&lucky, 4), b"word");
    assert_eq!(back.total(), 1);
    stays(
        "the unlucky one still waits",
        Duration::from_millis(50),
        || stuck.take_error().unwrap().is_none(),
    );
}

/// Later clients are rejected, too: none of them waits for the limit.
fn clients_that_wait_are_turned_away_once_all_servers_are_down(io: &str) {
    let servers = [Scripted::named("aaa"), Scripted::named("bbb")];
    let entries = servers.each_ref().map(|s| limited(s.address(), 1));
    let listen = peer::own_address(Kind::V4);
    let more = format!(
        "{PATIENT}[service.health]\nprobe = \"tcp\"\n\
         interval_ms = 50\ndead_interval_ms_max = 50\n"
    );
    let config = named_service("s", &listen, &[&entries[0], &entries[1]], &more);
    let balancer = peer::balancer(io, &config);
    let holders = [(); 2].map(|()| {
        let client = connect(&listen);
        peer::name_of(&client);
        client
    });
    let waiting: Vec<Socket> = (0..4).map(|_| connect(&listen)).collect();
    waiting[3..].iter().for_each(|client| send(client, b"word"));
    peer::until_service(&balancer, "the clients in the queue", |service| {
        service["queue"]["current"] == 4
    });
    let started = Instant::now();
    servers.into_iter().for_each(Scripted::close);
    waiting.iter().for_each(|client| {
        assert_eq!(end_of(client), End::Clean);
    });
    for _ in 0..3 {
        assert_eq!(end_of(&connect(&listen)), End::Clean);
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    peer::until_service(&balancer, "the counts", |service| {
        service["queue"]["current"] == 0 && service["errors"]["no_server"] == 7
    });
    // Sessions in progress are not affected.
    for holder in &holders {
        assert!(holder.take_error().unwrap().is_none());
    }
}

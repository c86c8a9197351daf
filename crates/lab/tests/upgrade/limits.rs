//! Tests that limits hold for the old and the new process together.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use socket2::Socket;

use super::{
    Kind, Scripted, connect, echo_behind, first_service, held, is_alive, on_both_drivers, peer,
    receive, send, until, until_alone, until_service,
};
use crate::peer::{End, end_of};

on_both_drivers! {
    clients_of_the_old_process_count_for_the_new_one
    a_place_that_the_old_process_frees_goes_to_a_client_who_waits_at_the_new_one
    a_server_never_has_more_than_its_limit_over_upgrades_in_a_flood
    clients_who_come_and_stay_find_a_place_below_the_limit_during_upgrades
}

const LIMIT: usize = 10;

fn clients_of_the_old_process_count_for_the_new_one(io: &str) {
    let (_server, listen, balancer) = echo_behind(io, &format!("max_connections = {LIMIT}\n"));
    let mut clients = held(&listen, LIMIT);
    let printed = balancer.upgrade(&[]).unwrap();
    assert!(
        printed.contains(&format!("drains {LIMIT} sessions within 60 s")),
        "{printed}"
    );
    assert_eq!(end_of(&connect(&listen)), End::Clean);
    let service = first_service(&balancer);
    assert_eq!(service["sessions"]["current"], LIMIT);
    assert_eq!(service["servers"][0]["sessions"]["current"], LIMIT);
    drop(clients.pop());
    until_service(&balancer, "a free place", |s| {
        s["sessions"]["current"] == LIMIT - 1
    });
    clients.extend(held(&listen, 1));
    assert_eq!(end_of(&connect(&listen)), End::Clean);
    let status = balancer.status().unwrap();
    assert_eq!(status["upgrade"][0]["sessions_left"], LIMIT - 1);
    assert!(clients.iter().all(is_alive));
    drop(clients);
    until_alone(&balancer);
    drop(held(&listen, LIMIT));
}

fn a_place_that_the_old_process_frees_goes_to_a_client_who_waits_at_the_new_one(io: &str) {
    let server = Scripted::echo(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let entry = format!(
        "{{ address = {:?}, max_connections = 2 }}",
        server.address()
    );
    let service = peer::service(&listen, &[&entry], "[service.queue]\nwait_ms = 20000\n");
    let balancer = peer::balancer(io, &service);
    let mut clients = held(&listen, 2);
    balancer.upgrade(&[]).unwrap();
    let waiting = connect(&listen);
    send(&waiting, b"hello");
    until_service(&balancer, "a client in the queue", |s| {
        s["queue"]["current"] == 1
    });
    assert_eq!(server.current(), 2);
    drop(clients.pop());
    assert_eq!(receive(&waiting, 5), b"hello");
    assert!(clients.iter().all(is_alive));
    assert_eq!(server.highest(), 2);
}

/// TO SEE THIS RED: let the new process ignore the connections of the old one.
fn a_server_never_has_more_than_its_limit_over_upgrades_in_a_flood(io: &str) {
    let server = Scripted::echo(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let entry = format!(
        "{{ address = {:?}, max_connections = 4 }}",
        server.address()
    );
    let service = peer::service(&listen, &[&entry], "[service.queue]\nwait_ms = 20000\n");
    let balancer = peer::balancer(io, &service);
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let visit = || {
        while !over.load(SeqCst) {
            let client: Socket = connect(&listen);
            assert!(is_alive(&client) && is_alive(&client));
            served.fetch_add(1, SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12).map(|_| scope.spawn(visit)).collect();
        let upgraded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..8 {
                let before = served.load(SeqCst);
                balancer.upgrade(&[]).unwrap();
                until("some clients", || served.load(SeqCst) > before + 50);
                until("the end of the old process", || balancer.pids().len() == 1);
            }
        }));
        over.store(true, SeqCst);
        let outcomes: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        assert!(outcomes.iter().all(Result::is_ok), "a client was let down");
        upgraded.unwrap();
    });
    println!("{io}: {} clients over 8 upgrades", served.load(SeqCst));
    assert_eq!(server.highest(), 4);
}

/// TO SEE THIS RED: let a halved share become zero while its service accepts.
fn clients_who_come_and_stay_find_a_place_below_the_limit_during_upgrades(io: &str) {
    let server = Scripted::echo(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let entry = format!(
        "{{ address = {:?}, max_connections = 1000 }}",
        server.address()
    );
    let service = peer::service(&listen, &[&entry], "[service.queue]\nlength = 0\n");
    let balancer = peer::balancer(io, &service);
    for _ in 0..4 {
        let mut clients = held(&listen, 50);
        let over = AtomicBool::new(false);
        let come = || {
            let mut stay = Vec::new();
            while !over.load(SeqCst) && stay.len() < 25 {
                let client = connect(&listen);
                assert!(is_alive(&client), "refused");
                stay.push(client);
            }
            stay
        };
        std::thread::scope(|scope| {
            let newcomers: Vec<_> = (0..4).map(|_| scope.spawn(come)).collect();
            balancer.upgrade(&[]).unwrap();
            over.store(true, SeqCst);
            let stayed = newcomers.into_iter().map(|newcomer| newcomer.join());
            clients.extend(stayed.flat_map(Result::unwrap));
        });
        assert!(clients.iter().all(is_alive));
        assert_eq!(server.current(), clients.len());
        drop(clients);
        until_alone(&balancer);
    }
}

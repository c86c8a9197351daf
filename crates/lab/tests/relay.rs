//! Tests of bytes, ends and resets through the balancer: each side sees what the other side does.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "relay/matrix.rs"]
mod matrix;
#[path = "relay/pair.rs"]
mod pair;
#[path = "peer/peer.rs"]
mod peer;

use std::time::{Duration, Instant};

use evenkeel_lab::{Balancer, eventually};
use matrix::Run;
use pair::{Lane, payload};
use peer::{Kind, LIMIT, descriptors, end_of, end_sending, receive, reset, send, stays, until};

/// Number of concurrent runs; each has a separate service and server.
const LANES: usize = 12;

on_both_drivers! {
    what_one_side_does_in_a_thousand_runs_the_other_sees
    the_last_answer_and_the_end_that_come_together_are_passed_on_at_once
    an_answer_that_is_read_late_arrives_although_both_sides_have_ended
    a_client_that_does_not_read_costs_no_memory_and_stalls_the_server
    a_half_closed_client_that_does_not_read_costs_no_processor_time
    a_client_that_pauses_longer_than_the_user_timeout_is_not_cut
    a_client_that_answers_nothing_is_cut_after_the_user_timeout
    an_idle_timeout_while_a_client_is_owed_bytes_is_a_reset
    a_slow_reader_is_not_idle
    idle_connections_cost_little_memory_and_no_processor_time
    more_busy_clients_than_the_ring_has_buffers_all_get_their_answers
}

/// The two drivers together do over 1,000 runs. TO SEE THIS RED: let `Direction::end` do nothing,
/// or do not call `reset_on_close`.
fn what_one_side_does_in_a_thousand_runs_the_other_sees(io: &str) {
    let kinds = [Kind::V4, Kind::V6, Kind::Unix];
    let lanes: Vec<Vec<Lane>> = (0..LANES)
        .map(|_| kinds.iter().map(|kind| Lane::new(*kind)).collect())
        .collect();
    let services: Vec<String> = lanes.iter().flatten().map(Lane::service).collect();
    let balancer = peer::balancer(io, &services.concat());
    let before = peer::settled_descriptors(balancer.pid());

    let runs = matrix::all_runs(&kinds);
    assert!(runs.len() > 500, "{}", runs.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for lanes in &lanes {
            scope.spawn(|| {
                while let Some(run) = take(&runs, &next) {
                    let kind = kinds.iter().position(|kind| *kind == run.kind).unwrap();
                    run.carry_out(&lanes[kind]);
                }
            });
        }
    });
    assert_nothing_left(&balancer, before);
}

fn take<'a>(runs: &'a [Run], next: &std::sync::atomic::AtomicUsize) -> Option<&'a Run> {
    runs.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}

fn assert_nothing_left(balancer: &Balancer, descriptors_before: usize) {
    let left = || {
        let status = balancer.status().unwrap();
        let services = status["services"].as_array().unwrap().iter();
        let busy = services.filter(|service| service["sessions"]["current"] != 0);
        let busy: Vec<String> = busy.map(|service| service["listen"].to_string()).collect();
        let workers = status["engine"]["workers"].as_array().unwrap();
        (busy, workers.iter().any(|worker| worker["sessions"] != 0))
    };
    let ended = eventually(LIMIT, "end", || {
        Ok((left() == (vec![], false)).then_some(()))
    });
    assert!(ended.is_ok(), "sessions are left: {:?}", left());
    until("all descriptors closed", || {
        descriptors(balancer.pid()) <= descriptors_before
    });
}

/// The balancer finds both when it resumes, and no other event wakes its worker. TO SEE THIS RED:
/// let `MultishotReceive::must_wait` always return true.
fn the_last_answer_and_the_end_that_come_together_are_passed_on_at_once(io: &str) {
    const TIMES: usize = 20;
    for kind in [Kind::V4, Kind::Unix] {
        let lane = Lane::new(kind);
        let balancer = peer::balancer(io, &lane.service());
        let mut waited = Duration::ZERO;
        for _ in 0..TIMES {
            let (client, server) = lane.pair();
            for _ in 0..10 {
                send(&client, b"question");
                receive(&server, 8);
                send(&server, b"answer");
                receive(&client, 6);
            }
            let stopped = pair::stop(balancer.pid());
            send(&server, b"last");
            drop(server);
            drop(stopped);
            let started = Instant::now();
            assert_eq!(peer::receive_all(&client), b"last");
            waited += started.elapsed();
        }
        assert!(waited < Duration::from_millis(700), "{waited:?} {kind:?}");
    }
}

/// The sweeper checks for resets twice a second, and must not treat two ends as a reset.
fn an_answer_that_is_read_late_arrives_although_both_sides_have_ended(io: &str) {
    for kind in [Kind::V4, Kind::Unix] {
        let lane = Lane::new(kind);
        let _balancer = peer::balancer(io, &lane.service());
        let (client, server) = lane.pair();
        client.set_recv_buffer_size(16 * 1024).unwrap();
        send(&client, b"question");
        end_sending(&client);
        assert_eq!(peer::receive_all(&server), b"question");
        let answer = payload(0, 1 << 20);
        std::thread::scope(|scope| {
            scope.spawn(move || send(&server, answer));
            // Slowly, so that the server has closed before the client has received the last bytes.
            let read = pair::read_slowly(&client, answer.len(), Duration::from_secs(3));
            assert!(read == answer, "{} of {} bytes", read.len(), answer.len());
        });
    }
}

fn a_client_that_does_not_read_costs_no_memory_and_stalls_the_server(io: &str) {
    const SENT: usize = 200 << 20;
    let lane = Lane::new(Kind::V4);
    let balancer = peer::balancer(io, &lane.service());
    let (client, server) = lane.pair();
    send(&client, b"!");
    receive(&server, 1);
    let before_kb = balancer.memory_kb();
    let sent = &std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            pair::send_counted(&server, SENT, sent);
        });
        let stalled_at = pair::wait_until_stalled(sent, SENT);
        assert!(stalled_at < SENT / 2, "{stalled_at} bytes went somewhere");
        let grown_kb = balancer.memory_kb().saturating_sub(before_kb);
        assert!(grown_kb < 2_048, "{grown_kb} kB more");
        pair::receive_checked(&client, SENT);
        assert_eq!(end_of(&client), peer::End::Clean);
        sender.join().unwrap();
    });
    let grown_kb = balancer.memory_kb().saturating_sub(before_kb);
    assert!(grown_kb < 2_048, "{grown_kb} kB more after {SENT} bytes");
}

/// Each poll of io_uring for writability also completes for the peer's end, repeatedly. TO SEE THIS
/// RED: let `Socket::writable` treat that as writable.
fn a_half_closed_client_that_does_not_read_costs_no_processor_time(io: &str) {
    const SENT: usize = 64 << 20;
    let lane = Lane::new(Kind::V4);
    let balancer = peer::balancer(io, &lane.service());
    let (client, server) = lane.pair();
    send(&client, b"!");
    receive(&server, 1);
    end_sending(&client);
    let sent = &std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pair::send_counted(&server, SENT, sent);
        });
        pair::wait_until_stalled(sent, SENT);
        let (cpu_us, started) = (balancer.cpu_us(), Instant::now());
        stays("waiting", Duration::from_secs(2), || true);
        let used = (balancer.cpu_us() - cpu_us) as f64 / started.elapsed().as_micros() as f64;
        assert!(used < 0.2, "{:.1} % of a core", used * 100.0);
        pair::receive_checked(&client, SENT);
        assert_eq!(end_of(&client), peer::End::Clean);
    });
}

/// TCP_USER_TIMEOUT is meant for peers that do not reply; a peer with a zero window is alive.
fn a_client_that_pauses_longer_than_the_user_timeout_is_not_cut(io: &str) {
    let lane = Lane::new(Kind::V4);
    let keepalive = "[service.keepalive]\nuser_timeout_ms = 1000\n";
    let balancer = peer::balancer(io, &lane.service_with(keepalive));
    let (client, server) = lane.pair();
    // The balancer sets its socket options at the first sweep.
    send(&client, b"!");
    receive(&server, 1);
    let answer = payload(0, 8 << 20);
    let sent = &std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pair::send_counted(&server, 8 << 20, sent);
        });
        pair::wait_until_stalled(sent, usize::MAX);
        // The kernel probes a closed window at growing intervals; this time covers several probes.
        let time = Duration::from_millis(6_000);
        stays("the client is not cut", time, || {
            client.take_error().unwrap().is_none()
        });
        assert!(peer::receive_all(&client) == answer, "not the same bytes");
    });
    let service = &balancer.status().unwrap()["services"][0];
    assert_eq!(service["errors"]["reset_by_client"], 0);
}

fn a_client_that_answers_nothing_is_cut_after_the_user_timeout(io: &str) {
    let lane = Lane::new(Kind::V4);
    let keepalive = "[service.keepalive]\nuser_timeout_ms = 1000\n";
    let balancer = peer::balancer(io, &lane.service_with(keepalive));
    let (client, server) = lane.talk();
    // A filter that drops every packet, as if the cable were unplugged.
    let nothing = socket2::SockFilter::new(0x06, 0, 0, 0);
    client.attach_filter(&[nothing]).unwrap();
    send(&server, b"an answer that never arrives");
    assert_eq!(end_of(&server), peer::End::Reset);
    peer::until_service(&balancer, "the count", |service| {
        service["errors"]["reset_by_client"] == 1
    });
}

/// After a clean end the client would consider the partial answer complete.
fn an_idle_timeout_while_a_client_is_owed_bytes_is_a_reset(io: &str) {
    let lane = Lane::new(Kind::V4);
    let balancer = peer::balancer(io, &lane.service_with("idle_timeout_ms = 500\n"));
    let (client, server) = lane.talk();
    let answer = payload(0, 15 << 20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Write;
            let error = (&server).write_all(answer).expect_err("nobody reads");
            assert!(peer::is_reset(&error), "{error}");
        });
        peer::until_service(&balancer, "the timeout", |service| {
            service["sessions"]["current"] == 0
        });
        let seen = pair::read_against(&client, answer);
        let reset = Some(std::io::ErrorKind::ConnectionReset);
        assert_eq!(seen.error, reset, "{seen:?}");
    });
    let service = &balancer.status().unwrap()["services"][0];
    assert_eq!(service["errors"]["idle_timeout"], 1, "{service}");
}

/// The client reads so slowly that for seconds no data can be sent: the kernel accepts more only
/// after a third of its buffer has been read.
fn a_slow_reader_is_not_idle(io: &str) {
    let lane = Lane::new(Kind::V4);
    let _balancer = peer::balancer(io, &lane.service_with("idle_timeout_ms = 800\n"));
    let (client, server) = lane.pair_with_little_room();
    let answer = payload(0, 12 << 20);
    let sent = &std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pair::send_counted(&server, answer.len(), sent);
        });
        let started = Instant::now();
        let mut read = Vec::new();
        while started.elapsed() < Duration::from_millis(2_600) {
            read.extend(receive(&client, 48 * 1024));
            std::thread::park_timeout(Duration::from_millis(200));
        }
        read.extend(peer::receive_all(&client));
        assert!(read == answer, "{} of {} bytes", read.len(), answer.len());
    });
}

fn idle_connections_cost_little_memory_and_no_processor_time(io: &str) {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let descriptors_max = pair::raise_descriptor_limit();
    let count = 4_500.min(descriptors_max.saturating_sub(1_000) / 4);
    let lane = Lane::new(Kind::V4);
    let balancer = peer::balancer(io, &lane.service());
    let warm = lane.talk();
    let before_kb = balancer.memory_kb();
    let idle: Vec<_> = (0..count).map(|_| lane.talk()).collect();
    let grown_kb = balancer.memory_kb().saturating_sub(before_kb);
    let each = grown_kb as f64 / count as f64;
    println!("{io}: {each:.2} kB for each of {count} idle connections");
    let bound = if cfg!(debug_assertions) { 8.0 } else { 4.0 };
    assert!(each < bound, "{each:.2} kB for each of {count} on {io}");

    let (cpu_us, started) = (balancer.cpu_us(), Instant::now());
    stays("measuring", Duration::from_secs(5), || true);
    let used_us = balancer.cpu_us() - cpu_us;
    let share = used_us as f64 / started.elapsed().as_micros() as f64;
    println!("{io}: {:.2} % of a processor while idle", share * 100.0);
    let bound = if cfg!(debug_assertions) { 0.03 } else { 0.01 };
    assert!(share < bound, "{:.2} % of a processor", share * 100.0);
    drop((warm, idle));
}

/// The ring of a worker has 128 buffers; a session without one must still transfer its bytes. All
/// clients connect before the balancer resumes, with their requests already sent.
fn more_busy_clients_than_the_ring_has_buffers_all_get_their_answers(io: &str) {
    let lane = Lane::new(Kind::V4);
    let balancer = peer::balancer(io, &lane.service());
    let stopped = pair::stop(balancer.pid());
    let clients: Vec<_> = (0..800_u32)
        .map(|number| {
            let client = lane.client();
            send(&client, &number.to_be_bytes());
            client
        })
        .collect();
    drop(stopped);
    let servers: Vec<_> = clients.iter().map(|_| lane.server()).collect();
    for server in &servers {
        send(server, &receive(server, 4));
    }
    for (number, client) in (0_u32..).zip(&clients) {
        assert_eq!(receive(client, 4), number.to_be_bytes());
    }
    let service = &balancer.status().unwrap()["services"][0];
    assert_eq!(service["errors"]["reset_by_client"], 0);
    assert_eq!(service["errors"]["reset_by_server"], 0);
    clients.into_iter().for_each(reset);
}

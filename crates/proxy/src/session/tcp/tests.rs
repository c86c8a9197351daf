//! Tests sessions of `protocol = "tcp"`, their queue and their connects with scripted peers.

use std::time::Duration;

use evenkeel_engine::scripted::{Peer, Seen};

use crate::record::{CutReason, TerminationReason};
use crate::settings::ServiceSettings;
use crate::testing::{TestPlane, settings};

const UNLIMITED: u32 = u32::MAX;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn plane(limits: &[u32]) -> TestPlane {
    TestPlane::new(settings(), limits)
}

fn plane_with(change: impl FnOnce(&mut ServiceSettings)) -> TestPlane {
    let mut settings = settings();
    change(&mut settings);
    TestPlane::new(settings, &[UNLIMITED, UNLIMITED])
}

/// Lets both sides exchange a byte.
fn exchange(plane: &TestPlane, client: &Peer, server: &Peer) {
    client.send(b"?");
    plane.stage.settle();
    assert_eq!(server.take(), b"?");
    server.send(b"!");
    plane.stage.settle();
    assert_eq!(client.take(), b"!");
}

#[test]
fn a_session_relays_and_is_recorded() {
    let plane = plane(&[UNLIMITED]);
    let (client, server) = plane.relayed_client();
    plane.advance(seconds(1));
    exchange(&plane, &client, &server);
    client.end();
    plane.stage.settle();
    assert_eq!(server.seen(), Seen::End);
    server.end();
    let record = plane.next_record();
    assert_eq!(record.ending, TerminationReason::ClientClosed);
    assert_eq!((record.from_client, record.to_client), (1, 1));
    assert_eq!(record.total_ms, 1_000);
    assert_eq!(record.first_byte_us, Some(1_000_000));
    assert_eq!((client.seen(), server.seen()), (Seen::Close, Seen::Close));
    assert_eq!((plane.sessions(), plane.service.active()), (0, 0));
    assert_eq!(plane.servers[0].load.active(), 0);
}

/// TO SEE THIS RED: return the error of the first connect from `upstream::reach`.
#[test]
fn a_connect_that_is_refused_is_retried_on_another_server() {
    let plane = plane(&[UNLIMITED, UNLIMITED]);
    let client = plane.client();
    let (first, refusing) = plane.next_connect();
    refusing.refuse();
    let (second, server) = plane.next_connect();
    assert_eq!((first, second), (1, 2));
    server.accept();
    plane.stage.settle();
    exchange(&plane, &client, &server);
    server.end();
    client.end();
    let record = plane.next_record();
    assert_eq!(record.tried, ["db1".into()]);
    assert_eq!(record.server.as_deref(), Some("db2"));
}

#[test]
fn a_connect_without_a_response_is_retried_after_its_limit() {
    let plane = plane(&[UNLIMITED, UNLIMITED]);
    let _client = plane.client();
    let (_, silent) = plane.next_connect();
    plane.advance(Duration::from_millis(1_999));
    assert!(plane.try_next_connect().is_none());
    plane.advance(Duration::from_millis(1));
    assert_eq!(plane.next_connect().0, 2);
    assert_eq!(silent.seen(), Seen::Close);
}

#[test]
fn a_client_is_closed_after_the_last_retry() {
    let plane = plane(&[UNLIMITED]);
    let client = plane.client();
    for _ in 0..=settings().retries {
        let (_, server) = plane.next_connect();
        server.refuse();
        plane.advance(seconds(1));
    }
    let record = plane.next_record();
    assert!(matches!(record.ending, TerminationReason::ConnectFailed(_)));
    assert_eq!(record.tried.len(), 4);
    assert_eq!(client.seen(), Seen::Close);
}

/// TO SEE THIS RED: let `RelayOutcome::Silent` end the session.
#[test]
fn a_server_that_closes_without_a_byte_is_replaced_unnoticed() {
    let plane = plane(&[UNLIMITED, UNLIMITED]);
    let (client, first) = plane.relayed_client();
    first.end();
    let (id, second) = plane.next_connect();
    assert_eq!(id, 2);
    second.accept();
    plane.stage.settle();
    exchange(&plane, &client, &second);
    assert_eq!(first.seen(), Seen::Close);
}

#[test]
fn a_queued_client_gets_the_permit_that_another_releases() {
    let plane = plane(&[1]);
    let (first, first_server) = plane.relayed_client();
    let second = plane.client();
    assert!(plane.try_next_connect().is_none());
    assert_eq!(plane.service.queued(), 1);
    plane.advance(seconds(3));
    first.end();
    first_server.end();
    let (_, server) = plane.next_connect();
    server.accept();
    plane.stage.settle();
    exchange(&plane, &second, &server);
    assert_eq!(plane.service.queued(), 0);
    assert_eq!(plane.servers[0].load.active(), 1);
}

/// TO SEE THIS RED: let `queue::wait` ignore `has_client_left`, or forget the grant.
#[test]
fn a_permit_for_a_client_that_has_left_goes_to_the_next_one() {
    let plane = plane(&[1]);
    let (first, first_server) = plane.relayed_client();
    let (leaving, waiting) = (plane.client(), plane.client());
    assert_eq!(plane.service.queued(), 2);
    leaving.end();
    first.end();
    first_server.end();
    let (_, server) = plane.next_connect();
    server.accept();
    plane.stage.settle();
    exchange(&plane, &waiting, &server);
    let endings = [plane.next_record().ending, plane.next_record().ending];
    assert!(
        endings.contains(&TerminationReason::ClientLeft),
        "{endings:?}"
    );
    assert_eq!(plane.servers[0].load.active(), 1);
}

#[test]
fn a_queue_that_takes_too_long_or_is_full_refuses_the_client() {
    let plane = TestPlane::new(
        ServiceSettings {
            queue_length: 1,
            ..settings()
        },
        &[1],
    );
    let (_first, _server) = plane.relayed_client();
    let waiting = plane.client();
    let _surplus = plane.client();
    assert_eq!(plane.next_record().ending, TerminationReason::QueueFull);
    plane.advance(Duration::from_millis(4_999));
    assert!(plane.try_next_record().is_none());
    plane.advance(Duration::from_millis(1));
    let record = plane.next_record();
    assert_eq!(record.ending, TerminationReason::QueueTimeout);
    assert_eq!(record.wait_ms, 5_000);
    assert_eq!(waiting.seen(), Seen::End);
    assert_eq!(plane.service.queued(), 0);
}

/// TO SEE THIS RED: let `end_from_outside` reset in every case.
#[test]
fn an_idle_session_is_closed_without_a_reset() {
    let plane = plane(&[UNLIMITED]);
    let (client, server) = plane.relayed_client();
    exchange(&plane, &client, &server);
    plane.advance(seconds(60));
    assert!(plane.try_next_record().is_none());
    plane.advance(seconds(1));
    assert_eq!(plane.next_record().ending, TerminationReason::IdleTimeout);
    assert_eq!((client.seen(), server.seen()), (Seen::Close, Seen::Close));
}

#[test]
fn a_half_closed_session_has_a_shorter_limit() {
    let plane = plane(&[UNLIMITED]);
    let (client, server) = plane.relayed_client();
    exchange(&plane, &client, &server);
    client.end();
    plane.advance(seconds(20));
    assert!(plane.try_next_record().is_none());
    plane.advance(seconds(1));
    let record = plane.next_record();
    assert_eq!(record.ending, TerminationReason::HalfCloseTimeout);
}

/// TO SEE THIS RED: let `Relaying::has_progressed` return false.
#[test]
fn a_slow_reader_is_not_idle_while_it_takes_bytes() {
    let plane = plane(&[UNLIMITED]);
    let (client, server) = plane.relayed_client();
    client.set_room(1);
    server.send(b"much");
    for unread in (1..=10).rev() {
        client.set_unread(unread);
        plane.advance(seconds(10));
    }
    assert!(plane.try_next_record().is_none());
    plane.advance(seconds(70));
    assert_eq!(plane.next_record().ending, TerminationReason::IdleTimeout);
    // The client must not take what it got for everything.
    assert_eq!((client.seen(), server.seen()), (Seen::Reset, Seen::Reset));
}

#[test]
fn a_server_that_should_speak_first_and_does_not_is_replaced() {
    let plane = plane_with(|settings| settings.server_speaks_first = true);
    let (_client, silent) = plane.relayed_client();
    plane.advance(seconds(3));
    assert_eq!(plane.next_connect().0, 2);
    assert_eq!(silent.seen(), Seen::Close);
}

#[test]
fn a_peer_that_acknowledges_nothing_is_given_up() {
    let plane = plane(&[UNLIMITED]);
    let (client, server) = plane.relayed_client();
    exchange(&plane, &client, &server);
    server.fall_silent();
    plane.advance(seconds(3));
    let record = plane.next_record();
    assert!(matches!(record.ending, TerminationReason::ResetByServer(_)));
    assert_eq!(client.seen(), Seen::Reset);
}

#[test]
fn a_client_without_its_proxy_header_is_closed_after_the_limit() {
    let plane = plane_with(|settings| {
        settings.accept_proxy_from = vec!["192.0.2.0/24".parse().unwrap()];
    });
    let client = plane.client();
    client.send(b"PROXY TCP4 ");
    plane.advance(Duration::from_millis(1_999));
    assert!(plane.try_next_record().is_none());
    plane.advance(Duration::from_millis(1));
    let record = plane.next_record();
    assert!(matches!(record.ending, TerminationReason::ProxyHeader(_)));
}

#[test]
fn a_command_resets_both_sides() {
    let plane = plane(&[UNLIMITED]);
    let (client, server) = plane.relayed_client();
    exchange(&plane, &client, &server);
    let ending = TerminationReason::Cut(CutReason::Command);
    plane.each_session(|session| session.cut(ending.clone()));
    assert_eq!(plane.next_record().ending, ending);
    assert_eq!((client.seen(), server.seen()), (Seen::Reset, Seen::Reset));
}

/// TO SEE THIS RED: let `SessionHandle::handle_server_down` always cut.
#[test]
fn a_session_of_a_dead_server_moves_if_nothing_was_exchanged_and_ends_if_it_waits() {
    let plane = plane(&[UNLIMITED, UNLIMITED]);
    let (_untouched, _) = plane.relayed_client();
    let (waiting, _) = plane.relayed_client();
    waiting.send(b"?");
    let (served, server) = plane.relayed_client();
    exchange(&plane, &served, &server);
    plane.each_session(|session| session.handle_server_down());
    assert_eq!(plane.next_connect().0, 2);
    let ending = TerminationReason::Cut(CutReason::ServerDown);
    assert_eq!(plane.next_record().ending, ending);
    assert_eq!(waiting.seen(), Seen::Reset);
    assert_eq!((served.seen(), plane.sessions()), (Seen::Open, 2));
}

#[test]
fn an_interruption_for_one_server_does_not_reach_the_session_at_the_next_one() {
    let plane = plane(&[UNLIMITED, UNLIMITED]);
    let (_client, first) = plane.relayed_client();
    // Both before the session runs: the server is reported as dead, and closes.
    first.end();
    plane
        .worker
        .each_session(|session| session.handle_server_down());
    let (_, second) = plane.next_connect();
    second.accept();
    plane.stage.settle();
    assert!(plane.try_next_connect().is_none());
    assert_eq!((second.seen(), plane.sessions()), (Seen::Open, 1));
}

/// The panic comes while the worker's receive buffer is borrowed and the session holds a permit.
#[test]
fn a_session_that_panics_gives_back_what_it_holds_and_disturbs_nobody() {
    let plane = plane(&[2]);
    let (client, server) = plane.relayed_client();
    let (other, other_server) = plane.relayed_client();
    let queued = plane.client();
    assert_eq!(plane.service.queued(), 1);
    server.panic_at_send();
    client.send(b"?");
    plane.stage.settle();
    assert_eq!((client.seen(), server.seen()), (Seen::Close, Seen::Close));
    exchange(&plane, &other, &other_server);
    // The queued client has the permit.
    let (_, next) = plane.next_connect();
    next.accept();
    plane.stage.settle();
    exchange(&plane, &queued, &next);
    assert_eq!((plane.sessions(), plane.service.active()), (2, 2));
    assert_eq!(plane.servers[0].load.active(), 2);
    plane.advance(seconds(1));
}

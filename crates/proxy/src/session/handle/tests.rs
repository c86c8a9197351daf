//! Tests what a session's handle passes to its task.

use std::sync::Arc;

use super::*;
use crate::testing::{TestPlane, settings};

fn login() -> Login {
    Login {
        id: 3,
        user: "ann".into(),
        database: "shop".into(),
        key: None,
        peer: None,
        application: ApplicationName::default(),
    }
}

fn handle(plane: &TestPlane) -> SessionHandle {
    SessionHandle::new(Arc::clone(&plane.service))
}

#[test]
fn events_come_in_the_order_of_urgency_and_each_once() {
    let plane = TestPlane::new(settings(), &[1]);
    let handle = handle(&plane);
    handle.log_in(login());
    for event in [
        SessionEvent::Recheck,
        SessionEvent::Cancelled,
        SessionEvent::ServerAbandoned,
        SessionEvent::Cancelled,
        SessionEvent::QueryOvertime,
        SessionEvent::LivenessCheck,
    ] {
        handle.notify(event);
    }
    let events: Vec<_> = std::iter::from_fn(|| handle.take_event()).collect();
    assert_eq!(
        events,
        [
            SessionEvent::ServerAbandoned,
            SessionEvent::LivenessCheck,
            SessionEvent::QueryOvertime,
            SessionEvent::Cancelled,
            SessionEvent::Recheck,
        ]
    );
}

/// TO SEE THIS RED: keep the events in `enter`.
#[test]
fn an_event_for_one_user_does_not_reach_the_next_one_of_the_connection() {
    let plane = TestPlane::new(settings(), &[1]);
    let handle = handle(&plane);
    handle.notify(SessionEvent::Cancelled);
    handle.log_in(login());
    assert_eq!(handle.take_event(), None);
    handle.notify(SessionEvent::Cancelled);
    handle.log_out();
    handle.log_in(login());
    assert_eq!(handle.take_event(), None);
}

#[test]
fn the_first_reason_to_end_counts_and_survives_a_change_of_phase() {
    let plane = TestPlane::new(settings(), &[1]);
    let handle = handle(&plane);
    handle.cut(TerminationReason::IdleTimeout);
    handle.cut(TerminationReason::Cut(CutReason::Command));
    handle.log_in(login());
    let context = Context::from_waker(Waker::noop());
    match handle.poll_interrupt(&context) {
        Poll::Ready(Interrupt::End(ending)) => assert_eq!(ending, TerminationReason::IdleTimeout),
        _ => panic!("the session does not end"),
    }
}

/// Every session has one handle, and each client of a database the state of its login, too.
#[test]
fn a_handle_is_small() {
    let relayed = size_of::<SessionHandle>() + size_of::<Relaying>();
    let logged_in = size_of::<SessionHandle>() + size_of::<LoggedIn>();
    println!("{relayed} bytes for a relayed session, {logged_in} for a logged-in one");
    assert!(relayed <= 200, "{relayed}");
    assert!(logged_in <= 344, "{logged_in}");
}

//! Tests the relay between two scripted peers, without sockets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::scripted::{Peer, Seen, Stage, connected};

/// A session that counts, as the relay asks it to.
#[derive(Default)]
struct Session {
    bytes: [Cell<u64>; 2],
    ended: RefCell<Vec<ByteDirection>>,
    stalled: Cell<i32>,
    progressed: Cell<u32>,
    may_retry: Cell<bool>,
}

impl RelaySession for Rc<Session> {
    fn count(&self, direction: ByteDirection, bytes: u64) {
        let count = &self.bytes[direction as usize];
        count.set(count.get() + bytes);
        self.may_retry.set(false);
    }

    fn counted(&self, direction: ByteDirection) -> u64 {
        self.bytes[direction as usize].get()
    }

    fn progressed(&self) {
        self.progressed.set(self.progressed.get() + 1);
    }

    fn set_stalled(&self, is_stalled: bool) {
        let change = if is_stalled { 1 } else { -1 };
        self.stalled.set(self.stalled.get() + change);
    }

    fn record_end(&self, direction: ByteDirection) {
        self.ended.borrow_mut().push(direction);
    }

    fn half_closed(&self) -> bool {
        self.ended.borrow().len() == 1
    }

    fn both_ended(&self) -> bool {
        self.ended.borrow().len() == 2
    }

    fn may_retry(&self) -> bool {
        self.may_retry.get()
    }
}

/// A relay in progress and its two peers.
struct Relaying {
    stage: Stage,
    session: Rc<Session>,
    client: Peer,
    server: Peer,
    outcome: Rc<RefCell<Option<Result<(), RelayError>>>>,
}

impl Relaying {
    fn start() -> Self {
        Self::with(|_| Opening::Allowed)
    }

    fn with(check: impl Fn(&[u8]) -> Opening + 'static) -> Self {
        let stage = Stage::new().unwrap();
        let session = Rc::new(Session::default());
        session.may_retry.set(true);
        let ((client, client_peer), (server, server_peer)) = (connected(), connected());
        let outcome = Rc::new(RefCell::new(None));
        let (worker, counted) = (Rc::clone(stage.worker()), Rc::clone(&session));
        let ended = Rc::clone(&outcome);
        stage.worker().spawn(async move {
            let end = relay(&worker, &client, &server, &counted, Some(&check)).await;
            ended.replace(Some(end));
        });
        stage.settle();
        Self {
            stage,
            session,
            client: client_peer,
            server: server_peer,
            outcome,
        }
    }

    fn end(&self) -> Result<(), RelayError> {
        self.stage.settle();
        let outcome = self.outcome.borrow_mut().take();
        outcome.expect("the relay has not ended")
    }

    fn is_running(&self) -> bool {
        self.stage.settle();
        self.outcome.borrow().is_none()
    }
}

#[test]
fn bytes_reach_the_other_side_and_are_counted_by_direction() {
    let relay = Relaying::start();
    relay.client.send(b"request");
    assert!(relay.is_running());
    assert_eq!(relay.server.take(), b"request");
    relay.server.send(b"the reply");
    assert!(relay.is_running());
    assert_eq!(relay.client.take(), b"the reply");
    assert_eq!(relay.session.bytes.each_ref().map(Cell::get), [7, 9]);
}

/// TO SEE THIS RED: let `Direction::end` return before `end_sending`.
#[test]
fn an_end_is_passed_on_and_the_other_direction_continues() {
    let relay = Relaying::start();
    relay.client.send(b"all of it");
    relay.client.end();
    assert!(relay.is_running());
    assert_eq!(relay.server.take(), b"all of it");
    assert_eq!(relay.server.seen(), Seen::End);
    relay.server.send(b"a late reply");
    relay.server.end();
    assert!(relay.end().is_ok());
    assert_eq!(relay.client.take(), b"a late reply");
    assert_eq!(relay.client.seen(), Seen::Close);
    assert_eq!(relay.server.seen(), Seen::Close);
}

/// TO SEE THIS RED: remove `reset_on_close` from `relay`.
#[test]
fn a_reset_of_one_side_resets_the_other() {
    let relay = Relaying::start();
    relay.client.send(b"request");
    assert!(relay.is_running());
    relay.client.reset();
    assert!(matches!(relay.end(), Err(RelayError::Client(_))));
    assert_eq!(relay.server.seen(), Seen::Reset);

    let relay = Relaying::start();
    relay.client.send(b"request");
    assert!(relay.is_running());
    relay.server.reset();
    assert!(matches!(relay.end(), Err(RelayError::Server(_))));
    assert_eq!(relay.client.seen(), Seen::Reset);
}

/// TO SEE THIS RED: let `Step::Rest` be empty.
#[test]
fn a_slow_reader_holds_up_the_sender_and_loses_nothing() {
    let relay = Relaying::start();
    relay.client.set_room(4);
    relay.server.send(b"12345678");
    assert!(relay.is_running());
    assert_eq!(relay.client.take(), b"1234");
    assert_eq!(relay.session.stalled.get(), 1);
    // Nothing more is received meanwhile.
    relay.server.send(b"9");
    assert!(relay.is_running());
    assert_eq!(relay.session.bytes[1].get(), 8);
    relay.client.set_room(100);
    assert!(relay.is_running());
    assert_eq!(relay.client.take(), b"56789");
    assert_eq!(relay.session.stalled.get(), 0);
    assert!(relay.session.progressed.get() > 0);
}

#[test]
fn a_bulk_transfer_of_many_buffers_arrives_whole() {
    let relay = Relaying::start();
    let bulk: Vec<u8> = (0..700_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    relay.server.send(&bulk);
    relay.server.end();
    assert!(relay.is_running());
    assert!(relay.client.take() == bulk, "bytes are missing or changed");
    assert_eq!(relay.client.seen(), Seen::End);
}

/// TO SEE THIS RED: remove the case `may_retry` from `Direction::end` or `receive_failed`.
#[test]
fn a_server_that_leaves_without_a_word_leaves_the_client_to_another_one() {
    for is_reset in [false, true] {
        let relay = Relaying::start();
        match is_reset {
            true => relay.server.reset(),
            false => relay.server.end(),
        }
        match relay.end() {
            Err(RelayError::Silent(silent)) => assert_eq!(silent.reset, is_reset),
            _ => panic!("the client has noticed the server's end"),
        }
        assert_eq!(relay.client.take(), b"");
    }
}

/// TO SEE THIS RED: send the held bytes in the arm `Undecided`.
#[test]
fn the_first_bytes_reach_the_server_only_after_they_are_allowed() {
    let relay = Relaying::with(|bytes| match bytes.len() {
        0..4 => Opening::Undecided,
        _ if bytes.starts_with(b"BAD") => Opening::Forbidden("bad".to_owned()),
        _ => Opening::Allowed,
    });
    relay.client.send(b"GO");
    assert!(relay.is_running());
    assert_eq!(relay.server.take(), b"");
    relay.client.send(b"OD");
    assert!(relay.is_running());
    assert_eq!(relay.server.take(), b"GOOD");

    let relay = Relaying::with(|_| Opening::Forbidden("bad".to_owned()));
    relay.client.send(b"BAD");
    assert!(matches!(relay.end(), Err(RelayError::Forbidden(_))));
    assert_eq!(relay.server.take(), b"");
}

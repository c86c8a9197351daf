//! Matrix of relay runs: which side ends first, sizes, reading speed, kind of socket, and resets.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use socket2::Socket;

use crate::pair::{self, Lane, payload};
use crate::peer::{Kind, LIMIT, end_sending, is_reset, receive_all, reset, send, until};

const SIZES: [usize; 4] = [7, 300, 64 * 1024, 4 << 20];

/// A side of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Client,
    Server,
}

/// The sequence of events of a run.
#[derive(Clone, Copy, Debug)]
enum Story {
    /// One side sends and ends; after that end, the other side sends and ends.
    EndsFirst(Who),
    /// Both sides send and end their sending concurrently.
    BothEnd,
    /// Both sides send, and neither ends before everything has arrived; then the client closes.
    NobodyEnds,
    /// One side sends and closes immediately, without reading.
    SendsAndCloses(Who),
    /// One side closes with a reset.
    Resets(Who, When),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    BeforeAnyByte,
    InTheMiddle,
    AfterItsOwnEnd,
    AfterTheOthersEnd,
}

/// One run of the matrix.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    number: usize,
    story: Story,
    from_client: usize,
    from_server: usize,
    slow: bool,
}

/// Returns every meaningful combination.
pub(crate) fn all_runs(kinds: &[Kind]) -> Vec<Run> {
    let mut runs = Vec::new();
    for &kind in kinds {
        for slow in [false, true] {
            for from_client in SIZES {
                for story in resets(kind) {
                    runs.push((kind, story, from_client, from_client, slow));
                }
                for from_server in SIZES {
                    for story in ends() {
                        runs.push((kind, story, from_client, from_server, slow));
                    }
                }
            }
        }
    }
    let number = |(number, (kind, story, from_client, from_server, slow))| Run {
        kind,
        number,
        story,
        from_client,
        from_server,
        slow,
    };
    runs.into_iter().enumerate().map(number).collect()
}

fn ends() -> [Story; 6] {
    [
        Story::EndsFirst(Who::Client),
        Story::EndsFirst(Who::Server),
        Story::BothEnd,
        Story::NobodyEnds,
        Story::SendsAndCloses(Who::Client),
        Story::SendsAndCloses(Who::Server),
    ]
}

/// A Unix socket cannot send a reset: only a close with unread bytes has this effect there.
fn resets(kind: Kind) -> Vec<Story> {
    let whens = [
        When::BeforeAnyByte,
        When::InTheMiddle,
        When::AfterItsOwnEnd,
        When::AfterTheOthersEnd,
    ];
    let whos = [Who::Client, Who::Server];
    let both = whos
        .into_iter()
        .flat_map(|who| whens.map(|when| Story::Resets(who, when)));
    both.filter(|_| kind != Kind::Unix).collect()
}

impl Run {
    /// Runs the story and checks the events on the other side.
    pub(crate) fn carry_out(&self, lane: &Lane) {
        let started = Instant::now();
        let (client, server) = lane.pair();
        let outcome = thread::scope(|scope| scope.spawn(|| self.play(lane, client, server)).join());
        assert!(outcome.is_ok(), "in {self:?}");
        let took = started.elapsed();
        assert!(took < LIMIT / 2, "{took:?} in {self:?}");
    }

    fn play(&self, lane: &Lane, client: Socket, server: Socket) {
        let [from_client, from_server] = self.payloads();
        match self.story {
            Story::EndsFirst(Who::Client) => {
                self.flow(&client, &server, from_client, end_sending);
                self.flow(&server, &client, from_server, end_sending);
            }
            Story::EndsFirst(Who::Server) => {
                self.flow(&server, &client, from_server, end_sending);
                self.flow(&client, &server, from_client, end_sending);
            }
            Story::BothEnd => thread::scope(|scope| {
                scope.spawn(|| self.flow(&client, &server, from_client, end_sending));
                self.flow(&server, &client, from_server, end_sending);
            }),
            Story::NobodyEnds => self.nobody_ends(client, server),
            Story::SendsAndCloses(Who::Client) => self.send_and_close(client, &server, from_client),
            Story::SendsAndCloses(Who::Server) => self.send_and_close(server, &client, from_server),
            Story::Resets(Who::Server, When::BeforeAnyByte) => reset_at_once(lane, &client, server),
            Story::Resets(Who::Client, when) => self.reset(client, server, when),
            Story::Resets(Who::Server, when) => self.reset(server, client, when),
        }
    }

    fn payloads(&self) -> [&'static [u8]; 2] {
        let seed = self.number * 2;
        [
            payload(seed, self.from_client),
            payload(seed + 1, self.from_server),
        ]
    }

    /// Sends all bytes and calls `last`, while the other side reads all bytes and an end.
    fn flow(&self, from: &Socket, to: &Socket, bytes: &'static [u8], last: fn(&Socket)) {
        let sent = &AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                send_in_pieces(from, bytes, sent);
                last(from);
            });
            self.wait_if_slow(sent, bytes.len());
            let seen = pair::read_against(to, bytes);
            assert!(seen.end && seen.count == bytes.len(), "{seen:?}");
        });
    }

    fn nobody_ends(&self, client: Socket, server: Socket) {
        let [from_client, from_server] = self.payloads();
        thread::scope(|scope| {
            scope.spawn(|| self.flow_without_end(&client, &server, from_client));
            self.flow_without_end(&server, &client, from_server);
        });
        drop(client);
        assert_eq!(receive_all(&server), b"", "the end and nothing else");
    }

    fn flow_without_end(&self, from: &Socket, to: &Socket, bytes: &'static [u8]) {
        let sent = &AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(move || send_in_pieces(from, bytes, sent));
            self.wait_if_slow(sent, bytes.len());
            assert!(
                crate::peer::receive(to, bytes.len()) == bytes,
                "other bytes"
            );
        });
    }

    fn send_and_close(&self, from: Socket, to: &Socket, bytes: &'static [u8]) {
        let sent = &AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                send_in_pieces(&from, bytes, sent);
                drop(from);
            });
            self.wait_if_slow(sent, bytes.len());
            let seen = pair::read_against(to, bytes);
            assert!(seen.end && seen.count == bytes.len(), "{seen:?}");
        });
    }

    /// Resets `one`; `other` must see a reset, and never a complete answer.
    fn reset(&self, one: Socket, other: Socket, when: When) {
        let [bytes, from_other] = self.payloads();
        match when {
            When::BeforeAnyByte => {
                reset(one);
                assert_reset(&other, &[]);
            }
            When::InTheMiddle => self.reset_in_the_middle(one, &other),
            When::AfterItsOwnEnd => {
                self.flow(&one, &other, bytes, end_sending);
                reset(one);
                // After an end a reset is no longer read; the socket still reports it (EPIPE).
                until("the reset", || {
                    other.take_error().unwrap().is_some_and(|e| is_reset(&e))
                });
            }
            When::AfterTheOthersEnd => {
                self.flow(&other, &one, from_other, end_sending);
                let half = &bytes[..bytes.len().min(100_000) / 2];
                send(&one, half);
                reset(one);
                assert_reset(&other, half);
            }
        }
    }

    /// Resets after half of the bytes were read or, if slow, while no side reads and both are
    /// blocked in sending.
    fn reset_in_the_middle(&self, one: Socket, other: &Socket) {
        let [bytes, from_other] = self.payloads();
        if !self.slow {
            let half = &bytes[..bytes.len() / 2];
            thread::scope(|scope| {
                scope.spawn(|| send(&one, half));
                assert!(crate::peer::receive(other, half.len()) == half);
            });
            reset(one);
            return assert_reset(other, &[]);
        }
        // Without a byte the balancer could still treat this as a failed connect, and retry.
        send(&one, &bytes[..1]);
        assert_eq!(crate::peer::receive(other, 1), bytes[..1]);
        let sent = &AtomicUsize::new(0);
        thread::scope(|scope| {
            let writer = scope.spawn(move || try_to_send(other, from_other, sent));
            pair::wait_until_stalled(sent, from_other.len());
            reset(one);
            let refused = writer.join().unwrap();
            let seen = pair::read_against(other, &[]);
            // The first call after the reset returns the error, later calls return an end.
            assert!(refused || seen.error.is_some(), "{seen:?}");
        });
    }

    fn wait_if_slow(&self, sent: &AtomicUsize, all: usize) {
        if self.slow {
            pair::wait_until_stalled(sent, all);
        }
    }
}

/// While the balancer still connects, a reset is a failed connect, which it retries.
fn reset_at_once(lane: &Lane, client: &Socket, server: Socket) {
    reset(server);
    let mut again = None;
    until("a reset or another try", || {
        again = lane.accept_now();
        again.is_some() || client.take_error().unwrap().is_some_and(|e| is_reset(&e))
    });
    if let Some(server) = again {
        send(client, b"still there?");
        assert_eq!(crate::peer::receive(&server, 12), b"still there?");
    }
}

fn send_in_pieces(from: &Socket, bytes: &[u8], sent: &AtomicUsize) {
    assert!(!try_to_send(from, bytes, sent), "the sender is reset");
}

/// Returns true if the peer has disconnected.
fn try_to_send(mut from: &Socket, bytes: &[u8], sent: &AtomicUsize) -> bool {
    use std::io::Write;
    for piece in bytes.chunks(64 * 1024) {
        match from.write_all(piece) {
            Ok(()) => sent.fetch_add(piece.len(), SeqCst),
            Err(error) if is_reset(&error) => return true,
            Err(error) => panic!("cannot send: {error}"),
        };
    }
    false
}

fn assert_reset(other: &Socket, expected: &[u8]) {
    let seen = pair::read_against(other, expected);
    let error = seen.error;
    assert_eq!(error, Some(std::io::ErrorKind::ConnectionReset), "{seen:?}");
}

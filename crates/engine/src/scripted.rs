//! Runs tasks in tests without sockets and without waiting: a script stands in for the kernel and
//! the peer of a socket, and the clock advances when the test says so.
//!
//! A scripted socket has the driver of epoll, whose events the script makes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::event::epoll::EventFlags;

use crate::clock;
use crate::engine::Driver;
use crate::reactor::Readiness;
use crate::socket::Socket;
use crate::timers;
use crate::worker::Worker;

/// Turns within which the tasks of a test come to rest.
const TURNS_MAX: usize = 10_000;

/// Room in the buffers of a new connection.
const ROOM_BYTES: usize = 1024 * 1024;

/// A worker whose tasks run only within the functions of this type, on a clock of the test.
pub struct Stage {
    worker: Rc<Worker>,
}

impl Stage {
    /// Creates a worker on this thread and stops the thread's clock.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        clock::stop();
        let worker = Worker::new(0, Driver::Epoll)?;
        Ok(Self { worker })
    }

    /// Returns the worker.
    pub fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// Runs the tasks until all of them wait.
    ///
    /// # Panics
    ///
    /// The tasks do not come to rest.
    pub fn settle(&self) {
        for _ in 0..TURNS_MAX {
            timers::wake_due();
            if !self.worker.run_ready() {
                return;
            }
        }
        panic!("the tasks do not come to rest");
    }

    /// Lets time pass, and runs the tasks whose timers are due, each at its time.
    pub fn advance(&self, duration: Duration) {
        self.settle();
        let mut left = duration;
        while let Some(next) = timers::wake_due().filter(|next| *next <= left) {
            clock::advance(next);
            left -= next;
            self.settle();
        }
        clock::advance(left);
        self.settle();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        clock::go();
    }
}

/// Returns a connected socket and the script of its peer.
pub fn connected() -> (Socket, Peer) {
    pair(Connection::Open)
}

/// Returns a socket that is connecting, until its peer accepts or refuses.
pub fn connecting() -> (Socket, Peer) {
    pair(Connection::Connecting)
}

fn pair(connection: Connection) -> (Socket, Peer) {
    let state = Rc::new(RefCell::new(State {
        connection,
        arrived: VecDeque::new(),
        peer_ended: false,
        error: None,
        sent: Vec::new(),
        room: ROOM_BYTES,
        unread: 0,
        is_unanswered: false,
        panics: false,
        resets: false,
        seen: Seen::Open,
    }));
    let readiness = Rc::new(Readiness::scripted());
    let script = ScriptedSocket(Rc::clone(&state));
    let socket = Socket::scripted(Rc::new(script), Rc::clone(&readiness));
    (socket, Peer { state, readiness })
}

/// The kernel's part of a socket.
pub(crate) struct ScriptedSocket(Rc<RefCell<State>>);

struct State {
    connection: Connection,
    /// Bytes of the peer that have not been received.
    arrived: VecDeque<u8>,
    /// True if the peer has ended its sending.
    peer_ended: bool,
    /// Error that the next call reports.
    error: Option<io::ErrorKind>,
    /// Bytes that have been sent to the peer.
    sent: Vec<u8>,
    /// Number of further bytes that a send takes.
    room: usize,
    /// Sent bytes that the peer's kernel has not taken.
    unread: u64,
    is_unanswered: bool,
    /// True if the next send panics.
    panics: bool,
    /// True if closing the socket resets the connection.
    resets: bool,
    seen: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Connection {
    Connecting,
    Open,
    /// Refused or reset.
    Closed,
}

/// State of the other side, as a peer has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Sending may continue.
    Open,
    /// Sending has ended.
    End,
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
}

impl ScriptedSocket {
    pub(crate) fn receive(&self, buffer: &mut [u8], is_peek: bool) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        if let Some(error) = state.error.take() {
            return Err(error.into());
        }
        let count = buffer.len().min(state.arrived.len());
        if count == 0 && !state.peer_ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for (to, from) in buffer.iter_mut().zip(&state.arrived) {
            *to = *from;
        }
        if !is_peek {
            state.arrived.drain(..count);
        }
        Ok(count)
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        assert!(!state.panics, "the script of the peer");
        if let Some(error) = state.error.take() {
            return Err(error.into());
        }
        if state.connection == Connection::Closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(state.room);
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.room -= count;
        state.sent.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    pub(crate) fn poll_now(&self, events: PollFlags) -> PollFlags {
        let state = self.0.borrow();
        let mut result = PollFlags::empty();
        if state.error.is_some() {
            result |= PollFlags::ERR | PollFlags::HUP;
        }
        if state.connection != Connection::Connecting {
            result |= events & PollFlags::OUT;
        }
        result
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.0.borrow_mut().error.take().map(io::Error::from)
    }

    pub(crate) fn end_sending(&self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        if state.connection != Connection::Open {
            return Err(io::ErrorKind::NotConnected.into());
        }
        state.seen = Seen::End;
        Ok(())
    }

    pub(crate) fn reset_on_close(&self) {
        self.0.borrow_mut().resets = true;
    }

    pub(crate) fn is_unanswered(&self) -> bool {
        self.0.borrow().is_unanswered
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.borrow().connection == Connection::Closed
    }

    pub(crate) fn unread_bytes(&self) -> u64 {
        self.0.borrow().unread
    }
}

impl Drop for ScriptedSocket {
    /// Closes the connection. Unread data resets it, as in the kernel.
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        let resets = state.resets || !state.arrived.is_empty();
        state.seen = if resets { Seen::Reset } else { Seen::Close };
    }
}

/// The script of a peer. What it does reaches the socket's tasks when the [`Stage`] runs them.
pub struct Peer {
    state: Rc<RefCell<State>>,
    readiness: Rc<Readiness>,
}

impl Peer {
    /// Accepts a connection.
    pub fn accept(&self) {
        self.state.borrow_mut().connection = Connection::Open;
        self.readiness.announce(EventFlags::OUT);
    }

    /// Refuses a connection.
    pub fn refuse(&self) {
        self.fail(io::ErrorKind::ConnectionRefused);
    }

    /// Resets the connection; the socket loses what it has not received.
    pub fn reset(&self) {
        self.state.borrow_mut().arrived.clear();
        self.fail(io::ErrorKind::ConnectionReset);
    }

    fn fail(&self, error: io::ErrorKind) {
        let mut state = self.state.borrow_mut();
        state.connection = Connection::Closed;
        state.error = Some(error);
        state.peer_ended = true;
        drop(state);
        let all = EventFlags::IN | EventFlags::OUT | EventFlags::ERR | EventFlags::HUP;
        self.readiness.announce(all);
    }

    /// Sends bytes.
    pub fn send(&self, bytes: &[u8]) {
        self.state.borrow_mut().arrived.extend(bytes);
        self.readiness.announce(EventFlags::IN);
    }

    /// Ends the sending of this side.
    pub fn end(&self) {
        self.state.borrow_mut().peer_ended = true;
        self.readiness.announce(EventFlags::IN | EventFlags::RDHUP);
    }

    /// Returns the bytes that the other side has sent since the last call.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.borrow_mut().sent)
    }

    /// Sets the number of bytes that the socket takes for this peer from now on.
    pub fn set_room(&self, bytes: usize) {
        self.state.borrow_mut().room = bytes;
        if bytes > 0 {
            self.readiness.announce(EventFlags::OUT);
        }
    }

    /// Sets the number of bytes in the kernel that this peer has not taken.
    pub fn set_unread(&self, bytes: u64) {
        self.state.borrow_mut().unread = bytes;
    }

    /// Ceases to acknowledge what the other side sends.
    pub fn fall_silent(&self) {
        self.state.borrow_mut().is_unanswered = true;
    }

    /// Makes the task panic that sends next.
    pub fn panic_at_send(&self) {
        self.state.borrow_mut().panics = true;
    }

    /// Returns what this peer has seen of the other side.
    pub fn seen(&self) -> Seen {
        self.state.borrow().seen
    }
}

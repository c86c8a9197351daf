//! Keeps a socket's two standing requests, one receive and one send, without an allocation, a slab
//! entry or a waker for each: for sessions that poll both of their sockets themselves.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io_uring::cqueue;

use super::entry::Entry;
use super::{Buffer, POOL_BUFFER_BYTES, Ring, checked};
use crate::batching::ActivePeriod;
use crate::panics::Indivisible;

/// Marks the keys of ring sockets.
pub(super) const PORT: u64 = 1 << 61;

/// Maximum length of a quiet send.
const QUIET_BYTES: usize = 4 * POOL_BUFFER_BYTES;

/// Payload of a send; it lives in the ring socket until the kernel has completed it.
pub(crate) enum Payload {
    /// A received buffer, unchanged.
    Ring(Buffer),
    /// Memory of this process.
    Own(Vec<u8>),
}

impl Payload {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Ring(buffer) => buffer,
            Self::Own(bytes) => bytes,
        }
    }
}

#[derive(Clone, Copy)]
enum Receive {
    Idle,
    Asked,
    Answered(i32, u32),
}

#[derive(Clone, Copy)]
enum Send {
    Idle,
    /// A first attempt, which completes during the submission, and only if some bytes remain.
    AskedQuietly,
    /// The kernel waits until the socket takes the bytes.
    Asked,
    Failed(i32),
}

/// One socket's standing requests.
pub(crate) struct RingSocket {
    index: Cell<usize>,
    active_period: ActivePeriod,
    socket: Rc<socket2::Socket>,
    receive: Cell<Receive>,
    send: Cell<Send>,
    /// True if a task waits for the end of the send; otherwise no task is woken for it.
    waits_for_send: Cell<bool>,
    /// True if the last receive emptied the socket, so that the next one need not try first.
    drained: Cell<bool>,
    /// True if the owner is gone; the entry is removed when the kernel has completed everything.
    orphaned: Cell<bool>,
    payload: RefCell<Option<Payload>>,
    waker: RefCell<Option<Waker>>,
}

impl RingSocket {
    fn set_waker(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|known| known.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    fn is_over(&self) -> bool {
        self.orphaned.get() && !matches!(self.receive.get(), Receive::Asked) && !self.is_sending()
    }

    /// Returns whether the standing receive has a result.
    pub(crate) fn has_arrived(&self) -> bool {
        matches!(self.receive.get(), Receive::Answered(..))
    }

    /// Returns whether a receive is in progress.
    pub(crate) fn is_armed(&self) -> bool {
        matches!(self.receive.get(), Receive::Asked)
    }

    /// Returns whether a send is in progress.
    pub(crate) fn is_sending(&self) -> bool {
        matches!(self.send.get(), Send::Asked | Send::AskedQuietly)
    }

    fn awaits_quiet_send(&self) -> bool {
        self.waits_for_send.get() && matches!(self.send.get(), Send::AskedQuietly)
    }

    /// Keeps the memory of a send in progress for ever.
    pub(super) fn keep_payload(&self) {
        std::mem::forget(self.payload.take());
    }

    fn key(&self, is_send: bool) -> u64 {
        PORT | (self.index.get() as u64) << 1 | u64::from(is_send)
    }
}

impl Ring {
    /// Opens a ring socket for a socket, until [`Ring::close_port`].
    pub(crate) fn open_port(&self, socket: &Rc<socket2::Socket>) -> Rc<RingSocket> {
        let port = Rc::new(RingSocket {
            index: Cell::new(0),
            active_period: ActivePeriod::default(),
            socket: Rc::clone(socket),
            receive: Cell::new(Receive::Idle),
            send: Cell::new(Send::Idle),
            waits_for_send: Cell::new(false),
            drained: Cell::new(false),
            orphaned: Cell::new(false),
            payload: RefCell::default(),
            waker: RefCell::default(),
        });
        port.index
            .set(self.ports.borrow_mut().insert(Rc::clone(&port)));
        port
    }

    /// Cancels requests in progress. Bytes that were not sent immediately are lost, unless the send
    /// completes before the cancel that follows it.
    pub(crate) fn close_port(&self, port: &RingSocket) {
        let _change = Indivisible::begin();
        port.orphaned.set(true);
        self.batching.forget(&port.active_period);
        port.waker.borrow_mut().take();
        if port.is_over() {
            return self.remove_port(port);
        }
        self.cancel_receive(port);
        if port.is_sending() {
            self.cancel(port.key(true));
        }
    }

    fn remove_port(&self, port: &RingSocket) {
        if let Receive::Answered(_, flags) = port.receive.get()
            && let Some(id) = cqueue::buffer_select(flags)
        {
            drop(Buffer::new(&self.buffers, id, 0));
        }
        let gone = self.ports.borrow_mut().remove(port.index.get());
        drop(gone);
    }

    /// Cancels the receive; its result arrives like any other: -ECANCELED, or bytes that arrived
    /// first.
    pub(crate) fn cancel_receive(&self, port: &RingSocket) {
        if port.is_armed() {
            self.cancel(port.key(false));
        }
    }

    /// Starts a receive without a waiting task.
    pub(crate) fn watch(&self, port: &RingSocket) {
        port.waker.borrow_mut().take();
        self.arm_receive(port);
    }

    fn arm_receive(&self, port: &RingSocket) {
        if !matches!(port.receive.get(), Receive::Idle) {
            return;
        }
        let _change = Indivisible::begin();
        let entry = Entry::receive(&*port.socket, port.drained.get());
        port.receive.set(Receive::Asked);
        self.submit(entry.key(port.key(false)));
    }

    /// Returns the received bytes; `None`: the end. ENOBUFS: bytes are there, but no ring buffer.
    pub(crate) fn poll_receive(
        &self,
        port: &RingSocket,
        context: &Context<'_>,
    ) -> Poll<io::Result<Option<Buffer>>> {
        let _change = Indivisible::begin();
        match port.receive.get() {
            Receive::Answered(result, flags) => {
                port.receive.set(Receive::Idle);
                port.drained.set(!cqueue::sock_nonempty(flags));
                let buffer = cqueue::buffer_select(flags)
                    .map(|id| Buffer::new(&self.buffers, id, usize::try_from(result).unwrap_or(0)));
                return Poll::Ready(checked(result).map(|count| buffer.filter(|_| count > 0)));
            }
            Receive::Idle => self.arm_receive(port),
            Receive::Asked => {}
        }
        port.set_waker(context);
        Poll::Pending
    }

    /// Starts to send all of the payload; success wakes no task. One send at a time: the kernel
    /// reads its memory, and the peer must receive the payloads in order.
    pub(crate) fn start_send(&self, port: &Rc<RingSocket>, payload: Payload) -> io::Result<()> {
        if port.is_sending() {
            return Err(io::Error::other("a send is under way already"));
        }
        // The rest of a partial quiet send is copied, which a long payload would often need. A
        // buffer of the ring is short, so that it never waits in the kernel for a slow peer.
        if payload.bytes().len() > QUIET_BYTES {
            self.ask_send(port, payload, Send::Asked);
        } else {
            self.quiet_ports.borrow_mut().push(Rc::clone(port));
            self.ask_send(port, payload, Send::AskedQuietly);
        }
        Ok(())
    }

    /// Returns whether a task waits for the end of a quiet send.
    pub(super) fn awaits_quiet_port(&self) -> bool {
        let ports = self.quiet_ports.borrow();
        ports.iter().any(|port| port.awaits_quiet_send())
    }

    /// Marks quiet sends without a completion as sent; their completions have all been collected.
    pub(super) fn settle_quiet_ports(&self) {
        let mut ports = self.quiet_ports.take();
        for port in ports.drain(..) {
            if !matches!(port.send.get(), Send::AskedQuietly) {
                continue;
            }
            self.sent(&port, None);
            if port.is_over() {
                self.remove_port(&port);
            }
        }
        self.quiet_ports.replace(ports);
    }

    fn ask_send(&self, port: &RingSocket, payload: Payload, state: Send) {
        let _change = Indivisible::begin();
        // MSG_WAITALL: a partial send is a failure, with the number of sent bytes as its result.
        let mut flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        if matches!(state, Send::AskedQuietly) {
            flags |= libc::MSG_DONTWAIT;
        }
        // SAFETY: the port keeps the payload until the completion, and the ring keeps the port; a
        // ring that is dropped leaves the payload where it is. The bytes are on the heap or in the
        // ring's pool, so that they stay in place when the payload moves.
        #[expect(unsafe_code, reason = "the kernel reads the bytes later")]
        let entry = unsafe { Entry::send(&*port.socket, payload.bytes(), flags) };
        port.payload.replace(Some(payload));
        port.send.set(state);
        let entry = match state {
            Send::AskedQuietly => entry.quiet(),
            _ => entry,
        };
        self.submit(entry.key(port.key(true)));
    }

    /// Returns whether the last send is complete.
    pub(crate) fn poll_sent(
        &self,
        port: &RingSocket,
        context: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        match port.send.get() {
            Send::Idle => Poll::Ready(Ok(())),
            Send::Asked | Send::AskedQuietly => {
                port.set_waker(context);
                port.waits_for_send.set(true);
                Poll::Pending
            }
            Send::Failed(result) => Poll::Ready(checked(result).map(drop)),
        }
    }

    /// Returns whether the last send is known to be complete. If not, its success wakes no task.
    pub(crate) fn poll_sent_silently(
        &self,
        port: &RingSocket,
        context: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let sent = self.poll_sent(port, context);
        port.waits_for_send.set(false);
        sent
    }

    /// Returns empty memory for a send.
    pub(crate) fn take_spare(&self) -> Vec<u8> {
        self.spare_buffers.take()
    }

    /// Takes memory back.
    pub(crate) fn keep_spare(&self, bytes: Vec<u8>) {
        self.spare_buffers.keep(bytes);
    }

    pub(super) fn deliver_to_port(&self, key: u64, result: i32, flags: u32) {
        let index = usize::try_from((key & !PORT) >> 1).unwrap_or(usize::MAX);
        let Some(port) = self.ports.borrow().get(index).cloned() else {
            return;
        };
        if key & 1 == 0 {
            if !port.orphaned.get() {
                self.batching.record(&port.active_period);
            }
            port.receive.set(Receive::Answered(result, flags));
            port.wake();
        } else {
            self.sent(&port, Some(result));
        }
        if port.is_over() {
            self.remove_port(&port);
        }
    }

    /// Handles the result of a send; `None`: all bytes were sent.
    fn sent(&self, port: &RingSocket, result: Option<i32>) {
        let Some(payload) = port.payload.take() else {
            return;
        };
        let length = payload.bytes().len();
        let result = result.unwrap_or_else(|| i32::try_from(length).unwrap_or(i32::MAX));
        match usize::try_from(result) {
            Ok(sent) if sent == length => {
                port.send.set(Send::Idle);
                if let Payload::Own(bytes) = payload {
                    self.keep_spare(bytes);
                }
                if port.waits_for_send.replace(false) {
                    port.wake();
                }
            }
            // The waiting task stays marked as waiting: the send continues.
            Ok(sent) if !port.orphaned.get() => self.send_rest(port, &payload, sent),
            Err(_) if result == -libc::EAGAIN && !port.orphaned.get() => {
                self.send_rest(port, &payload, 0);
            }
            _ => {
                port.send.set(Send::Failed(result));
                port.wake();
            }
        }
    }

    fn send_rest(&self, port: &RingSocket, payload: &Payload, sent: usize) {
        let mut rest = self.take_spare();
        rest.extend_from_slice(&payload.bytes()[sent..]);
        self.ask_send(port, Payload::Own(rest), Send::Asked);
    }
}

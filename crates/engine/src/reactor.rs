//! Tracks the readiness of sockets on the epoll driver: each socket is registered once,
//! edge-triggered, for its lifetime, so that a query costs no epoll_ctl(2).

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

use crate::panics::Indivisible;
use crate::socket::RawSocket;
use crate::wakeup::Wakeup;

/// Maximum number of events per epoll_wait(2); more wait for the next turn.
const EVENTS_PER_TURN: usize = 256;

/// The key of the worker's wake-ups, which are not a socket's.
const WAKEUP: u64 = u64::MAX;

const ENDED_EVENTS: EventFlags = EventFlags::RDHUP
    .union(EventFlags::HUP)
    .union(EventFlags::ERR);
const READ_EVENTS: EventFlags = EventFlags::IN.union(ENDED_EVENTS);
const WRITE_EVENTS: EventFlags = EventFlags::OUT
    .union(EventFlags::HUP)
    .union(EventFlags::ERR);

/// One worker's epoll instance.
pub(crate) struct Reactor {
    epoll: OwnedFd,
    wakeup: Arc<Wakeup>,
    sockets: Rc<Sockets>,
    /// Buffer for the kernel's events.
    events: RefCell<Vec<Event>>,
}

type Sockets = RefCell<Vec<Option<Rc<Readiness>>>>;

/// Known readiness of one socket.
pub(crate) struct Readiness {
    fd: RawFd,
    sockets: Rc<Sockets>,
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// True after epoll has reported the end or an error. Edge-triggered epoll reports this once,
    /// so from then on a short read must not clear `readable`: another read has to see the end.
    ended: Cell<bool>,
    reader: Cell<Option<Waker>>,
    writer: Cell<Option<Waker>>,
    unsent: RefCell<Unsent>,
}

/// Bytes that the last send did not take, and the socket that is to send them.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    /// `None`: there are none.
    socket: Option<RawSocket>,
}

impl Reactor {
    /// Creates an epoll instance that also watches the worker's wake-ups.
    pub(crate) fn new(wakeup: &Arc<Wakeup>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, wakeup, EventData::new_u64(WAKEUP), EventFlags::IN)?;
        Ok(Self {
            epoll,
            wakeup: Arc::clone(wakeup),
            sockets: Rc::default(),
            events: RefCell::new(Vec::with_capacity(EVENTS_PER_TURN)),
        })
    }

    /// Watches a connected or connecting socket until its descriptor is closed.
    pub(crate) fn register(&self, socket: BorrowedFd<'_>) -> io::Result<Rc<Readiness>> {
        self.watch(socket, EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP)
    }

    /// Watches a listening socket until its descriptor is closed. Of the workers that watch it, a
    /// client wakes one that waits.
    pub(crate) fn register_listener(&self, socket: BorrowedFd<'_>) -> io::Result<Rc<Readiness>> {
        self.watch(socket, EventFlags::IN | EventFlags::EXCLUSIVE)
    }

    fn watch(&self, socket: BorrowedFd<'_>, events: EventFlags) -> io::Result<Rc<Readiness>> {
        let _change = Indivisible::begin();
        let fd = socket.as_raw_fd();
        let index = fd.cast_unsigned();
        let readiness = Rc::new(Readiness::new(fd, Rc::clone(&self.sockets)));
        let data = EventData::new_u64(u64::from(index));
        epoll::add(&self.epoll, socket, data, events | EventFlags::ET)?;
        let mut sockets = self.sockets.borrow_mut();
        if sockets.len() <= index as usize {
            sockets.resize(index as usize + 1, None);
        }
        sockets[index as usize] = Some(Rc::clone(&readiness));
        Ok(readiness)
    }

    /// Stops watching a descriptor, even though a duplicate of it stays open.
    pub(crate) fn remove(&self, socket: impl AsFd) {
        // Fails only for a descriptor that is not watched.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Waits for events and wakes the tasks that wait for them.
    pub(crate) fn poll_once(&self, timeout: Option<Duration>) {
        let mut events = self.events.borrow_mut();
        events.clear();
        // A time that is too long for the kernel is none. rustix rounds up to milliseconds: a timer
        // must have passed when the wait ends.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // A signal ends the wait without an event.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
        for event in events.iter() {
            let (key, flags) = (event.data.u64(), event.flags);
            if key == WAKEUP {
                self.wakeup.reset();
            } else if let Some(socket) = self.socket(key) {
                socket.announce(flags);
            }
        }
    }

    fn socket(&self, key: u64) -> Option<Rc<Readiness>> {
        self.sockets
            .borrow()
            .get(usize::try_from(key).ok()?)?
            .clone()
    }
}

impl Readiness {
    fn new(fd: RawFd, sockets: Rc<Sockets>) -> Self {
        Self {
            fd,
            sockets,
            readable: Cell::new(true),
            writable: Cell::new(true),
            ended: Cell::new(false),
            reader: Cell::default(),
            writer: Cell::default(),
            unsent: RefCell::default(),
        }
    }

    /// Creates the readiness of a socket whose events a script makes.
    #[cfg(any(test, feature = "scripted"))]
    pub(crate) fn scripted() -> Self {
        Self::new(-1, Rc::default())
    }

    pub(crate) fn announce(&self, events: EventFlags) {
        if events.intersects(ENDED_EVENTS) {
            self.ended.set(true);
        }
        if events.intersects(READ_EVENTS) {
            self.readable.set(true);
            wake(&self.reader);
        }
        if events.intersects(WRITE_EVENTS) {
            self.writable.set(true);
            // A task that has sent its last bytes may not ask again. After a failure the bytes are
            // kept, and the next call reports it.
            let _ = self.send_unsent();
            wake(&self.writer);
        }
    }

    /// Updates the readiness after a receive. After a short receive the socket is empty, and epoll
    /// will report new data, unless the end has been reported.
    pub(crate) fn after_receive(&self, received: &io::Result<usize>, asked: usize) {
        match received {
            Ok(0) => self.ended.set(true),
            Ok(count) if *count < asked && !self.ended.get() => self.readable.set(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable.set(false),
            _ => {}
        }
    }

    pub(crate) fn after_send(&self, sent: &io::Result<usize>) {
        if matches!(sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.writable.set(false);
        }
    }

    /// Marks a socket whose clients or bytes are all known: epoll will report the next ones.
    pub(crate) fn not_readable(&self) {
        self.readable.set(false);
    }

    /// Returns whether epoll has reported the end or an error.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Marks a connecting socket, which takes no bytes before epoll announces it.
    pub(crate) fn not_writable_yet(&self) {
        self.writable.set(false);
    }

    pub(crate) async fn readable(&self) {
        poll_fn(|context| self.poll_readable(context)).await;
    }

    pub(crate) async fn writable(&self) {
        poll_fn(|context| self.poll_writable(context)).await;
    }

    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        ready(&self.readable, &self.reader, context)
    }

    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        ready(&self.writable, &self.writer, context)
    }

    /// Keeps bytes that the socket did not take. They are sent when epoll announces that it takes
    /// more, or by [`Readiness::send_unsent`].
    pub(crate) fn keep_unsent(&self, socket: &RawSocket, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut unsent = self.unsent.borrow_mut();
        unsent.bytes.extend_from_slice(bytes);
        unsent.socket = Some(socket.clone());
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.borrow().bytes.is_empty()
    }

    /// Sends the kept bytes, as far as the socket takes them now.
    pub(crate) fn send_unsent(&self) -> io::Result<()> {
        let mut unsent = self.unsent.borrow_mut();
        let Unsent { bytes, socket } = &mut *unsent;
        while let (Some(sender), false) = (&*socket, bytes.is_empty()) {
            let sent = sender.send(bytes);
            self.after_send(&sent);
            match sent {
                Ok(count) => drop(bytes.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        *socket = None;
        Ok(())
    }

    /// Returns whether a receive may return data.
    pub(crate) fn is_readable(&self) -> bool {
        self.readable.get()
    }

    /// Drops the wakers, so that no task is woken any more.
    pub(crate) fn forget_wakers(&self) {
        self.reader.take();
        self.writer.take();
    }

    /// Forgets a descriptor that is about to be closed, and its number reused.
    pub(crate) fn forget(&self) {
        let _change = Indivisible::begin();
        if let Ok(index) = usize::try_from(self.fd) {
            self.sockets.borrow_mut()[index] = None;
        }
    }
}

fn ready(flag: &Cell<bool>, waiting: &Cell<Option<Waker>>, context: &mut Context<'_>) -> Poll<()> {
    if flag.get() {
        return Poll::Ready(());
    }
    let known = waiting.take().filter(|one| one.will_wake(context.waker()));
    waiting.set(Some(known.unwrap_or_else(|| context.waker().clone())));
    Poll::Pending
}

fn wake(waiting: &Cell<Option<Waker>>) {
    if let Some(waker) = waiting.take() {
        waker.wake_by_ref();
        waiting.set(Some(waker));
    }
}

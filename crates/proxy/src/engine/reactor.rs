//! Tracks the readiness of sockets on the epoll driver: each socket is registered once,
//! edge-triggered, for its lifetime, so that a query costs no epoll_ctl(2).

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Maximum number of events per epoll_wait(2); more wait for the next turn.
const EVENTS_PER_TURN: usize = 256;

/// The key of the runtime's own descriptor, which is not a session's socket.
const RUNTIME: u64 = u64::MAX;

const READ_EVENTS: i32 = libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
const WRITE_EVENTS: i32 = libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR;
const ENDED_EVENTS: i32 = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;

/// One worker's epoll instance.
pub(crate) struct Reactor {
    epoll: OwnedFd,
    sockets: Rc<Sockets>,
    /// Buffer for the kernel's events: kept, since clearing it in each turn costs time.
    events: RefCell<Box<[libc::epoll_event]>>,
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
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
}

impl Reactor {
    /// Creates an epoll instance that also watches the runtime's descriptor.
    pub(crate) fn new(runtime: RawFd) -> io::Result<Self> {
        // SAFETY: no pointers are passed; the result is checked before it is owned.
        #[expect(unsafe_code, reason = "epoll has no safe form in std")]
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let reactor = Self {
            epoll,
            sockets: Rc::default(),
            events: RefCell::new([libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_TURN].into()),
        };
        reactor.add(runtime, libc::EPOLLIN, RUNTIME)?;
        Ok(reactor)
    }

    /// Watches a socket until its descriptor is closed.
    pub(crate) fn register(&self, fd: RawFd) -> io::Result<Rc<Readiness>> {
        let index = fd.cast_unsigned();
        let readiness = Rc::new(Readiness::new(fd, Rc::clone(&self.sockets)));
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.add(fd, events, u64::from(index))?;
        let mut sockets = self.sockets.borrow_mut();
        if sockets.len() <= index as usize {
            sockets.resize(index as usize + 1, None);
        }
        sockets[index as usize] = Some(Rc::clone(&readiness));
        Ok(readiness)
    }

    /// Stops watching a descriptor, even though a duplicate of it stays open.
    pub(crate) fn remove(&self, fd: RawFd) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: `event` lives through the call; the kernel checks the descriptors.
        #[expect(unsafe_code, reason = "epoll has no safe form in std")]
        unsafe {
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, &raw mut event);
        }
    }

    fn add(&self, fd: RawFd, events: i32, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events.cast_unsigned(),
            u64: key,
        };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: `event` lives through the call; the kernel checks the descriptors.
        #[expect(unsafe_code, reason = "epoll has no safe form in std")]
        let result = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Waits for events and wakes the tasks that wait for them. Returns true if the runtime has
    /// work.
    pub(crate) fn poll_once(&self, timeout: Option<Duration>) -> bool {
        let mut events = self.events.borrow_mut();
        let count = self.wait(&mut events, timeout);
        let mut runtime_ready = false;
        for event in &events[..count] {
            if event.u64 == RUNTIME {
                runtime_ready = true;
            } else if let Some(socket) = self.socket(event.u64) {
                socket.announce(event.events.cast_signed());
            }
        }
        runtime_ready
    }

    fn wait(&self, events: &mut [libc::epoll_event], timeout: Option<Duration>) -> usize {
        // Rounded up: a timer must have passed when this returns.
        let timeout_ms = timeout.map_or(-1, |t| {
            i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let epoll = self.epoll.as_raw_fd();
        let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: pointer and length are of one live slice.
        #[expect(unsafe_code, reason = "epoll has no safe form in std")]
        let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, timeout_ms) };
        usize::try_from(count).unwrap_or(0)
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
            reader: RefCell::default(),
            writer: RefCell::default(),
        }
    }

    fn announce(&self, events: i32) {
        if events & ENDED_EVENTS != 0 {
            self.ended.set(true);
        }
        if events & READ_EVENTS != 0 {
            self.readable.set(true);
            wake(&self.reader);
        }
        if events & WRITE_EVENTS != 0 {
            self.writable.set(true);
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

    /// Returns whether a receive may return data.
    pub(crate) fn is_readable(&self) -> bool {
        self.readable.get()
    }

    /// Drops the wakers, so that no task is woken any more.
    pub(crate) fn forget_wakers(&self) {
        self.reader.borrow_mut().take();
        self.writer.borrow_mut().take();
    }

    /// Forgets a descriptor that is about to be closed, and its number reused.
    pub(crate) fn forget(&self) {
        if let Ok(index) = usize::try_from(self.fd) {
            self.sockets.borrow_mut()[index] = None;
        }
    }
}

fn ready(
    flag: &Cell<bool>,
    waiting: &RefCell<Option<Waker>>,
    context: &mut Context<'_>,
) -> Poll<()> {
    if flag.get() {
        return Poll::Ready(());
    }
    let mut waiting = waiting.borrow_mut();
    match waiting.as_ref() {
        Some(known) if known.will_wake(context.waker()) => {}
        _ => *waiting = Some(context.waker().clone()),
    }
    Poll::Pending
}

fn wake(waiting: &RefCell<Option<Waker>>) {
    if let Some(waker) = waiting.borrow().as_ref() {
        waker.wake_by_ref();
    }
}

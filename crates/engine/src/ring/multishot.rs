//! Requests that the kernel completes many times: receives, accepts, polls.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io_uring::cqueue;

use super::entry::Entry;
use super::{Buffer, Ring, RingRequest, checked};
use crate::batching::ActivePeriod;
use crate::panics::Indivisible;

/// Flag in the keys of multishot requests.
pub(super) const MULTISHOT: u64 = 1 << 60;

/// Result of one completion.
enum Arrival {
    /// Received bytes; `None`: the peer's end.
    Bytes(Option<Buffer>),
    Client(OwnedFd),
    /// Events of poll(2).
    Events(i16),
}

/// Kind of a multishot request's results.
#[derive(Clone, Copy)]
enum Kind {
    Receive,
    Accept,
    Poll,
}

/// The ring's state of a multishot request.
pub(super) struct MultishotState {
    kind: Kind,
    /// Results in order.
    arrived: VecDeque<io::Result<Arrival>>,
    /// True if the kernel will report no more.
    is_over: bool,
    is_orphan: bool,
    waker: Option<Waker>,
    active_period: ActivePeriod,
    _socket: Rc<socket2::Socket>,
}

/// A multishot request. If dropped, it is canceled, and results that still arrive are dropped.
struct Multishot<'a> {
    ring: &'a Ring,
    slot: usize,
}

impl Ring {
    fn start_multishot(
        &self,
        kind: Kind,
        socket: &Rc<socket2::Socket>,
        entry: Entry,
    ) -> Multishot<'_> {
        let _change = Indivisible::begin();
        let slot = self.multishots.borrow_mut().insert(MultishotState {
            kind,
            arrived: VecDeque::new(),
            is_over: false,
            is_orphan: false,
            waker: None,
            active_period: ActivePeriod::default(),
            _socket: Rc::clone(socket),
        });
        self.submit(entry.key(slot as u64 | MULTISHOT));
        Multishot { ring: self, slot }
    }

    pub(super) fn deliver_multishot(&self, key: u64, result: i32, flags: u32) {
        let slot = (key & !MULTISHOT) as usize;
        let mut multishots = self.multishots.borrow_mut();
        let Some(request) = multishots.get_mut(slot) else {
            return;
        };
        if !request.is_orphan {
            self.batching.record(&request.active_period);
        }
        let arrived = self.arrival(request.kind, result, flags);
        request.is_over = !cqueue::more(flags);
        if request.is_orphan {
            let over = request.is_over.then(|| multishots.remove(slot));
            drop(multishots);
            return drop((arrived, over));
        }
        request.arrived.push_back(arrived);
        if let Some(waker) = request.waker.take() {
            drop(multishots);
            waker.wake();
        }
    }

    fn arrival(&self, kind: Kind, result: i32, flags: u32) -> io::Result<Arrival> {
        let buffer = cqueue::buffer_select(flags)
            .map(|id| Buffer::new(&self.buffers, id, usize::try_from(result).unwrap_or(0)));
        let count = checked(result)?;
        Ok(match kind {
            Kind::Receive => Arrival::Bytes(buffer.filter(|_| count > 0)),
            // SAFETY: the kernel has opened this descriptor for the request, which has one
            // completion for it.
            #[expect(unsafe_code, reason = "a completion is a number")]
            Kind::Accept => Arrival::Client(unsafe { OwnedFd::from_raw_fd(result) }),
            Kind::Poll => Arrival::Events(poll_events(count)),
        })
    }
}

/// Returns the events of poll(2) in the result of a poll request.
pub(super) fn poll_events(result: usize) -> i16 {
    i16::try_from(result & 0x7fff).unwrap_or(i16::MAX)
}

impl Multishot<'_> {
    /// Polls for the next result; `None`: there will be no more.
    fn poll_next(&self, context: &Context<'_>) -> Poll<Option<io::Result<Arrival>>> {
        let _change = Indivisible::begin();
        let mut multishots = self.ring.multishots.borrow_mut();
        let request = &mut multishots[self.slot];
        if let Some(arrived) = request.arrived.pop_front() {
            return Poll::Ready(Some(arrived));
        }
        if request.is_over {
            return Poll::Ready(None);
        }
        let known = request.waker.as_ref();
        if !known.is_some_and(|known| known.will_wake(context.waker())) {
            request.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Returns whether [`Self::poll_next`] has no result yet.
    fn must_wait(&self) -> bool {
        let request = &self.ring.multishots.borrow()[self.slot];
        request.arrived.is_empty() && !request.is_over
    }

    /// Requests the kernel to stop; results until then can still be taken.
    fn stop(&self) {
        if !self.ring.multishots.borrow()[self.slot].is_over {
            self.ring.cancel(self.slot as u64 | MULTISHOT);
        }
    }
}

impl Drop for Multishot<'_> {
    fn drop(&mut self) {
        let _change = Indivisible::begin();
        let mut multishots = self.ring.multishots.borrow_mut();
        let request = &mut multishots[self.slot];
        self.ring.batching.forget(&request.active_period);
        if request.is_over {
            let over = multishots.remove(self.slot);
            drop(multishots);
            return drop(over);
        }
        request.is_orphan = true;
        let late = std::mem::take(&mut request.arrived);
        drop(multishots);
        drop(late);
        self.ring.cancel(self.slot as u64 | MULTISHOT);
    }
}

/// A request to receive until the peer's end, a failure or a stop. If dropped, it is canceled, and
/// data that still arrives is lost.
pub(crate) struct MultishotReceive<'a> {
    request: Multishot<'a>,
    /// Separate poll for the peer's end or failure: if it coincides with the last bytes, the kernel
    /// may not report it after them (seen with Unix sockets on Linux 6.18).
    hangup: Option<RingRequest<'a>>,
}

impl Ring {
    /// Starts to receive.
    pub(crate) fn receive(&self, socket: &Rc<socket2::Socket>) -> MultishotReceive<'_> {
        let entry = Entry::receive_always(&**socket);
        MultishotReceive {
            request: self.start_multishot(Kind::Receive, socket, entry),
            hangup: Some(self.start_poll(socket, libc::POLLRDHUP)),
        }
    }

    /// Starts to accept the clients of a listening socket.
    pub(crate) fn accept(&self, socket: &Rc<socket2::Socket>) -> MultishotAccept<'_> {
        let entry = Entry::accept(&**socket);
        MultishotAccept(self.start_multishot(Kind::Accept, socket, entry))
    }

    /// Waits until one of the events of poll(2) is set, although the socket has others that
    /// io_uring always reports.
    pub(crate) async fn poll_until(
        &self,
        socket: &Rc<socket2::Socket>,
        events: i16,
    ) -> io::Result<()> {
        let changes = self.poll_changes(socket, events);
        while let Some(seen) = changes.next().await {
            if seen? & events != 0 {
                break;
            }
        }
        Ok(())
    }

    /// Starts to poll for events of poll(2). The events that are set now are the first result; a
    /// further one comes with each change, such as the arrival of bytes.
    pub(crate) fn poll_changes(
        &self,
        socket: &Rc<socket2::Socket>,
        events: i16,
    ) -> PollChanges<'_> {
        let entry = Entry::poll_changes(&**socket, events);
        PollChanges(self.start_multishot(Kind::Poll, socket, entry))
    }
}

/// A poll for changes of a socket. If dropped, it is canceled.
pub(crate) struct PollChanges<'a>(Multishot<'a>);

impl PollChanges<'_> {
    /// Waits for the next change, and returns all events that are set. `None`: the kernel reports
    /// no more.
    pub(crate) fn next(&self) -> impl Future<Output = Option<io::Result<i16>>> + '_ {
        let events = |arrival| match arrival {
            Arrival::Events(seen) => seen,
            Arrival::Bytes(_) | Arrival::Client(_) => 0,
        };
        poll_fn(move |context| match self.0.poll_next(context) {
            Poll::Ready(change) => Poll::Ready(change.map(|change| change.map(events))),
            Poll::Pending => Poll::Pending,
        })
    }
}

impl MultishotReceive<'_> {
    /// Waits for the next result.
    pub(crate) async fn next(&mut self) -> Next {
        poll_fn(|context| {
            if let Poll::Ready(arrived) = self.request.poll_next(context) {
                return Poll::Ready(Next::of(arrived));
            }
            let hangup = self.hangup.as_mut();
            if hangup.is_some_and(|hangup| Pin::new(hangup).poll(context).is_ready()) {
                self.hangup = None;
                self.stop();
            }
            Poll::Pending
        })
        .await
    }

    /// Returns whether [`Self::next`] has no result yet.
    pub(crate) fn must_wait(&self) -> bool {
        let has_hung_up = self.hangup.as_ref().is_some_and(RingRequest::is_answered);
        self.request.must_wait() && !has_hung_up
    }

    /// Requests the kernel to stop; data that has arrived by then can still be taken.
    pub(crate) fn stop(&self) {
        self.request.stop();
    }
}

/// Result of a request to receive.
pub(crate) enum Next {
    Bytes(Buffer),
    /// The peer has ended its sending.
    End,
    /// No further data: the request was stopped, the peer hung up, or the ring had no free buffer.
    Stopped,
    Failed(io::Error),
}

impl Next {
    fn of(arrived: Option<io::Result<Arrival>>) -> Self {
        match arrived {
            Some(Ok(Arrival::Bytes(Some(buffer)))) => Self::Bytes(buffer),
            Some(Ok(Arrival::Bytes(None))) => Self::End,
            Some(Ok(Arrival::Client(_) | Arrival::Events(_))) | None => Self::Stopped,
            Some(Err(error)) => match error.raw_os_error() {
                Some(libc::ECANCELED | libc::ENOBUFS) => Self::Stopped,
                _ => Self::Failed(error),
            },
        }
    }
}

/// A request to accept clients until a failure or a stop.
pub(crate) struct MultishotAccept<'a>(Multishot<'a>);

impl MultishotAccept<'_> {
    /// Polls for the next client; `None`: the request is over, by a stop or after a failure.
    pub(crate) fn poll_next(&self, context: &Context<'_>) -> Poll<Option<io::Result<OwnedFd>>> {
        let arrived = std::task::ready!(self.0.poll_next(context));
        Poll::Ready(match arrived {
            Some(Ok(Arrival::Client(client))) => Some(Ok(client)),
            Some(Err(error)) if error.raw_os_error() != Some(libc::ECANCELED) => Some(Err(error)),
            _ => None,
        })
    }

    /// Requests the kernel to stop; clients that it accepts until then are still delivered.
    pub(crate) fn stop(&self) {
        self.0.stop();
    }
}

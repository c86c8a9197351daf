//! Tracks cancel requests that are in flight to a server connection. Until they have arrived, the
//! connection is not released, because they could cancel another session's query.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use evenkeel_engine::timers;

use super::pool_registry::PoolHandle;
use crate::service::Service;
use crate::worker::Worker;

/// Time limit for a cancel request to keep a connection from being released.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

/// Sends a cancel request. Returns false if it may still arrive.
pub(crate) type SendCancel =
    fn(Rc<Worker>, Arc<Service>, Rc<CancelTarget>) -> Pin<Box<dyn Future<Output = bool>>>;

/// Address and key for cancel requests to one connection, and the number of requests in flight.
pub(crate) struct CancelTarget {
    pub(crate) pool_handle: Arc<PoolHandle>,
    /// Address of the connection's peer: names move, and have several addresses. `None`: a Unix
    /// socket.
    pub(crate) peer: Option<SocketAddr>,
    /// The server's number for the connection, and a proof that this server is meant: PostgreSQL's
    /// secret; for MySQL, an identity that distinguishes servers. `None` before the login.
    pub(crate) key: RefCell<Option<(u32, Box<[u8]>)>>,
    send: SendCancel,
    count: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl CancelTarget {
    pub(super) fn new(
        pool_handle: &Arc<PoolHandle>,
        peer: Option<SocketAddr>,
        key: Option<(u32, Box<[u8]>)>,
        send: SendCancel,
    ) -> Rc<Self> {
        Rc::new(Self {
            pool_handle: Arc::clone(pool_handle),
            peer,
            key: RefCell::new(key),
            send,
            count: Cell::new(0),
            waker: RefCell::default(),
        })
    }

    pub(crate) fn get(&self) -> usize {
        self.count.get()
    }

    /// Returns the server's number for the connection.
    pub(crate) fn process(&self) -> Option<u32> {
        self.key.borrow().as_ref().map(|(process, _)| *process)
    }

    /// Returns whether the numbers of both connections come from the same MySQL server.
    pub(crate) fn has_same_key(&self, other: &Self) -> bool {
        let (own, other) = (self.key.borrow(), other.key.borrow());
        let identities = own.as_ref().zip(other.as_ref());
        identities.is_some_and(|((_, own), (_, other))| own == other)
    }

    /// Sends a cancel request. A late one would hit the next client, so that the connection is not
    /// assigned again if it takes longer than `limit`.
    pub(crate) async fn cancel(
        self: Rc<Self>,
        worker: Rc<Worker>,
        service: Arc<Service>,
        limit: Duration,
    ) {
        let sending = (self.send)(worker, service, Rc::clone(&self));
        if timers::timeout(limit, sending).await == Ok(true) {
            self.end();
        }
    }

    /// Counts a cancel request that is about to be sent.
    pub(crate) fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    fn end(&self) {
        self.count.set(self.count.get().saturating_sub(1));
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits until no cancel request is in flight. Returns false if that takes too long.
    pub(crate) async fn wait_until_none(&self) -> bool {
        let all_over = std::future::poll_fn(|context| {
            if self.count.get() == 0 {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        });
        timers::timeout(CANCEL_LIMIT, all_over).await.is_ok()
    }
}

//! Cancel requests that are on their way to a server connection: until they have arrived, it is not
//! lent to anybody else, whose query they would hit.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::pool_registry::PoolHandle;

/// How long a cancel request may keep a connection from being lent.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

/// How the query of one connection is cancelled, and how many are about to do it.
pub(crate) struct CancelTarget {
    pub(crate) pooled: Arc<PoolHandle>,
    /// Where the connection leads: names move, and have several addresses. `None`: a Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    /// The connection as its server numbers it, and how that server knows that it is meant:
    /// PostgreSQL's secret, of MySQL what tells it from others. None before the login.
    pub(crate) key: RefCell<Option<(u32, Box<[u8]>)>>,
    count: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl CancelTarget {
    pub(super) fn new(
        pooled: &Arc<PoolHandle>,
        peer: Option<SocketAddr>,
        key: Option<(u32, Box<[u8]>)>,
    ) -> Rc<Self> {
        Rc::new(Self {
            pooled: Arc::clone(pooled),
            peer,
            key: RefCell::new(key),
            count: Cell::new(0),
            waker: RefCell::default(),
        })
    }

    pub(crate) fn get(&self) -> usize {
        self.count.get()
    }

    /// The connection as its server numbers it.
    pub(crate) fn process(&self) -> Option<u32> {
        self.key.borrow().as_ref().map(|(process, _)| *process)
    }

    /// Of MySQL: whether the other one's number is of the same server's.
    pub(crate) fn is_of_the_same_server(&self, other: &Self) -> bool {
        let (own, other) = (self.key.borrow(), other.key.borrow());
        let identities = own.as_ref().zip(other.as_ref());
        identities.is_some_and(|((_, own), (_, other))| own == other)
    }

    pub(crate) fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn end(&self) {
        self.count.set(self.count.get().saturating_sub(1));
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits until none is under way. False: it takes too long.
    pub(crate) async fn none_left(&self) -> bool {
        let all_over = std::future::poll_fn(|context| {
            if self.count.get() == 0 {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        });
        compio::time::timeout(CANCEL_LIMIT, all_over).await.is_ok()
    }
}

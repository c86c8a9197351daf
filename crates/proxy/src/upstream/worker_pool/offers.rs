//! Lets sessions offer connections that they keep between transactions. When a client waits that
//! nothing else can serve, the session that has offered for the longest time finds out whether it
//! needs its connection.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use evenkeel_engine::clock;
use evenkeel_engine::panics::Indivisible;
use evenkeel_policy::connection_pool::Pool;

use super::{PoolableConnection, WorkerPool};

/// Offers at one worker, by pool, the oldest first.
#[derive(Default)]
pub(super) struct Offers {
    by_pool: HashMap<u64, BTreeMap<u64, Rc<OfferSlot>>>,
    next: u64,
}

/// Offer of one session, which has at most one.
#[derive(Default)]
pub(crate) struct OfferSlot {
    state: RefCell<OfferState>,
    waker: RefCell<Option<Waker>>,
}

/// State of an offer.
#[derive(Default)]
enum OfferState {
    #[default]
    None,
    /// No waiting client needs the connection.
    Open { pool: Arc<Pool>, number: u64 },
    /// A client of the pool `on_behalf` waits for the connection. `is_seen`: the session knows.
    Accepted { on_behalf: u64, is_seen: bool },
}

impl OfferSlot {
    /// Returns true once when the offer is accepted.
    pub(crate) fn poll_accepted(&self, context: &Context<'_>) -> bool {
        match &mut *self.state.borrow_mut() {
            OfferState::None => false,
            OfferState::Accepted { is_seen, .. } => !std::mem::replace(is_seen, true),
            OfferState::Open { .. } => {
                let mut waker = self.waker.borrow_mut();
                match &mut *waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    waker => *waker = Some(context.waker().clone()),
                }
                false
            }
        }
    }

    fn accept(&self, on_behalf: u64) {
        self.state.replace(OfferState::Accepted {
            on_behalf,
            is_seen: false,
        });
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }
}

impl<C: PoolableConnection> WorkerPool<C> {
    /// Offers a session's connection to waiting clients, unless it is offered.
    pub(crate) fn offer(self: &Rc<Self>, connection: &C, slot: &Rc<OfferSlot>) {
        if !matches!(*slot.state.borrow(), OfferState::None) {
            return;
        }
        let pool = Arc::clone(&connection.core().pool_handle.pool);
        let mut offers = self.offers.borrow_mut();
        let number = offers.next;
        offers.next += 1;
        let of_pool = offers.by_pool.entry(pool.id()).or_default();
        of_pool.insert(number, Rc::clone(slot));
        let count = of_pool.len();
        drop(offers);
        let open = OfferState::Open {
            pool: Arc::clone(&pool),
            number,
        };
        slot.state.replace(open);
        self.publish_offers(&pool, count, true);
    }

    /// Ends an offer: the session uses its connection again, has released it, or must keep it.
    pub(crate) fn end_offer(self: &Rc<Self>, slot: &OfferSlot) {
        if matches!(*slot.state.borrow(), OfferState::None) {
            return;
        }
        match slot.state.take() {
            OfferState::None => {}
            OfferState::Open { pool, number } => {
                let count = self.remove_offer(pool.id(), Some(number)).1;
                self.publish_offers(&pool, count, false);
            }
            OfferState::Accepted { on_behalf, .. } => self.offer_settled(on_behalf),
        }
    }

    /// Interrupts the session that has offered its connection of the pool for the longest time.
    pub(super) fn accept_offer(self: &Rc<Self>, pool: &Pool, on_behalf: u64) {
        let (first, count) = self.remove_offer(pool.id(), None);
        self.idle.borrow().accept_offer(pool);
        self.publish_offers(pool, count, false);
        match first {
            Some(slot) => slot.accept(on_behalf),
            None => self.offer_settled(on_behalf),
        }
    }

    /// Removes the offer of that number, or the first, and returns the number of those left.
    fn remove_offer(&self, pool: u64, number: Option<u64>) -> (Option<Rc<OfferSlot>>, usize) {
        let mut offers = self.offers.borrow_mut();
        let Some(of_pool) = offers.by_pool.get_mut(&pool) else {
            return (None, 0);
        };
        let removed = match number {
            Some(number) => of_pool.remove(&number),
            None => of_pool.pop_first().map(|(_, slot)| slot),
        };
        let count = of_pool.len();
        if count == 0 {
            offers.by_pool.remove(&pool);
        }
        (removed, count)
    }

    fn publish_offers(self: &Rc<Self>, pool: &Pool, count: usize, is_new: bool) {
        let _change = Indivisible::begin();
        let mut tasks = Vec::new();
        let now_ms = clock::now_ms();
        self.idle
            .borrow()
            .set_offers(pool, count, is_new, now_ms, &mut tasks);
        self.send_tasks(tasks);
    }

    fn offer_settled(self: &Rc<Self>, on_behalf: u64) {
        let _change = Indivisible::begin();
        let mut tasks = Vec::new();
        let now_ms = clock::now_ms();
        self.idle
            .borrow()
            .offer_settled(on_behalf, now_ms, &mut tasks);
        self.send_tasks(tasks);
    }
}

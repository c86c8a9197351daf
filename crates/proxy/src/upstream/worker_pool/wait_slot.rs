//! Receives a connection, or an error, for a session that waits.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use evenkeel_policy::connection_pool::WaitTicket;

use crate::upstream::connect_error::ConnectError;

/// Result of a wait.
pub(crate) enum WaitResult<C> {
    Connection(Box<C>),
    /// The request must be repeated.
    Again,
    /// No connection could be opened.
    Failed(Arc<ConnectError>),
}

/// One session's wait slot, which is queued at most once.
pub(crate) struct WaitSlot<C> {
    ticket: Cell<Option<WaitTicket>>,
    /// Number of a delivery that is meant for this slot alone.
    expected: Cell<Option<u64>>,
    /// Number of such deliveries requested so far.
    messages_sent: Cell<u64>,
    delivery: RefCell<Option<WaitResult<C>>>,
    waker: RefCell<Option<Waker>>,
}

impl<C> WaitSlot<C> {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            ticket: Cell::default(),
            expected: Cell::default(),
            messages_sent: Cell::default(),
            delivery: RefCell::default(),
            waker: RefCell::default(),
        })
    }

    pub(super) fn enqueue(&self, ticket: WaitTicket) {
        self.ticket.set(Some(ticket));
    }

    /// Starts the wait for a delivery to this slot alone, and returns the delivery's number.
    pub(crate) fn expect_message(&self) -> u64 {
        let message = self.messages_sent.get().wrapping_add(1);
        self.messages_sent.set(message);
        self.expected.set(Some(message));
        message
    }

    /// Returns whether the session still waits for this delivery, not for a later one.
    pub(crate) fn is_expected(&self, message: u64) -> bool {
        self.expected.get() == Some(message)
    }

    pub(super) fn leave_queue(&self) -> Option<WaitTicket> {
        self.expected.set(None);
        self.ticket.take()
    }

    pub(super) fn ticket(&self) -> Option<WaitTicket> {
        self.ticket.get()
    }

    pub(crate) fn deliver(&self, delivery: WaitResult<C>) {
        self.ticket.set(None);
        self.expected.set(None);
        self.delivery.replace(Some(delivery));
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Takes the delivery.
    pub(crate) fn take(&self, context: &Context<'_>) -> Option<WaitResult<C>> {
        let delivery = self.delivery.borrow_mut().take();
        if delivery.is_none() {
            let mut waker = self.waker.borrow_mut();
            if !waker
                .as_ref()
                .is_some_and(|known| known.will_wake(context.waker()))
            {
                *waker = Some(context.waker().clone());
            }
        }
        delivery
    }

    /// Takes a delivery that arrived after the session stopped waiting.
    pub(crate) fn take_late(&self) -> Option<WaitResult<C>> {
        self.delivery.borrow_mut().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_before_it_left_is_not_taken_for_what_it_asks_for_now() {
        let slot = WaitSlot::<()>::new();
        let first = slot.expect_message();
        assert!(slot.is_expected(first));
        slot.leave_queue();
        let second = slot.expect_message();
        assert!(!slot.is_expected(first) && slot.is_expected(second));
        slot.deliver(WaitResult::Again);
        assert!(!slot.is_expected(second));
    }
}

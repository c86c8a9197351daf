//! Where a session waits for what is brought to it: a connection, or word that there is none.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use evenkeel_policy::lending::Ticket;

use crate::upstream::join::JoinError;

/// What is brought.
pub(crate) enum Delivery<C> {
    Connection(Box<C>),
    /// Ask again.
    Again,
    /// None could be opened.
    Failed(Arc<JoinError>),
}

/// One session's place; it is in line at most once.
pub(crate) struct Place<C> {
    ticket: Cell<Option<Ticket>>,
    /// Something is brought to it alone.
    is_expecting: Cell<bool>,
    delivery: RefCell<Option<Delivery<C>>>,
    waker: RefCell<Option<Waker>>,
}

impl<C> Place<C> {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            ticket: Cell::default(),
            is_expecting: Cell::default(),
            delivery: RefCell::default(),
            waker: RefCell::default(),
        })
    }

    pub(super) fn stand_in_line(&self, ticket: Ticket) {
        self.ticket.set(Some(ticket));
    }

    /// It waits for what is brought to it alone.
    pub(super) fn expect(&self) {
        self.is_expecting.set(true);
    }

    pub(super) fn is_expecting(&self) -> bool {
        self.is_expecting.get()
    }

    pub(super) fn leave_line(&self) -> Option<Ticket> {
        self.is_expecting.set(false);
        self.ticket.take()
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.ticket.get()
    }

    pub(super) fn deliver(&self, delivery: Delivery<C>) {
        self.ticket.set(None);
        self.is_expecting.set(false);
        self.delivery.replace(Some(delivery));
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// What was brought.
    pub(crate) fn take(&self, context: &Context<'_>) -> Option<Delivery<C>> {
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

    /// What was brought to a session that has left.
    pub(crate) fn take_late(&self) -> Option<Delivery<C>> {
        self.delivery.borrow_mut().take()
    }
}

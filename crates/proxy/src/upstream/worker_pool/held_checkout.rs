//! Holds the checkout of a connection that a task uses, and takes it back if the task loses it.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use evenkeel_policy::connection_pool::Checkout;

/// Checkout of a connection. A task that panics drops the connection without releasing it: then the
/// checkout is kept for the pool, which would count the connection for ever otherwise.
pub(crate) struct HeldCheckout {
    checkout: Option<Checkout>,
    lost: Rc<LostCheckouts>,
}

/// Checkouts of connections that no longer exist.
#[derive(Default)]
pub(super) struct LostCheckouts(RefCell<Vec<Checkout>>);

impl HeldCheckout {
    pub(super) fn new(checkout: Checkout, lost: &Rc<LostCheckouts>) -> Self {
        Self {
            checkout: Some(checkout),
            lost: Rc::clone(lost),
        }
    }

    /// Returns the checkout.
    pub(super) fn checkout(&self) -> Option<&Checkout> {
        self.checkout.as_ref()
    }

    /// Returns the checkout to release it.
    pub(super) fn into_checkout(mut self) -> Option<Checkout> {
        self.checkout.take()
    }
}

impl Drop for HeldCheckout {
    fn drop(&mut self) {
        if let Some(checkout) = self.checkout.take() {
            self.lost.0.borrow_mut().push(checkout);
        }
    }
}

impl LostCheckouts {
    pub(super) fn take(&self) -> Vec<Checkout> {
        mem::take(&mut self.0.borrow_mut())
    }
}

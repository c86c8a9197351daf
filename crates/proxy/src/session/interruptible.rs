//! Runs a step of a session unless it is interrupted first.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::handle::{Interrupt, SessionHandle};

pin_project! {
    /// A step of a session that can be interrupted. Not an async function, which would hold the
    /// step twice.
    pub(crate) struct Interruptible<'a, F> {
        #[pin]
        pub(super) step: F,
        pub(super) handle: &'a SessionHandle,
    }
}

impl<F: Future> Future for Interruptible<'_, F> {
    type Output = Result<F::Output, Interrupt>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.handle.poll_interrupt(context) {
            Poll::Ready(interrupt) => Poll::Ready(Err(interrupt)),
            Poll::Pending => this.step.poll(context).map(Ok),
        }
    }
}

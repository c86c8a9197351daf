//! A limited number of permits, passed on in the order of the requests.
//!
//! A permit that becomes free goes to the task that has waited longest, before any later request
//! can take it. The wait may be canceled at any time: then the permit goes to the next task.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use evenkeel_engine::panics::lock;

/// Permits of one kind.
#[derive(Debug)]
pub(super) struct FairSemaphore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Zero while a task waits.
    free: u32,
    next_ticket: u64,
    /// Waiting tasks by ticket, in the order of the requests. A granted ticket is not in it.
    waiting: BTreeMap<u64, Waker>,
}

/// A permit, released on drop.
#[derive(Debug)]
pub(super) struct Permit(Arc<FairSemaphore>);

/// A wait for a permit.
struct Acquire {
    semaphore: Arc<FairSemaphore>,
    /// `None` before the first poll, and after a permit was returned.
    ticket: Option<u64>,
}

impl FairSemaphore {
    pub(super) fn new(permits: u32) -> Self {
        FairSemaphore {
            state: Mutex::new(State {
                free: permits,
                next_ticket: 0,
                waiting: BTreeMap::new(),
            }),
        }
    }

    /// Waits for a permit.
    pub(super) fn acquire(self: Arc<Self>) -> impl Future<Output = Permit> {
        Acquire {
            semaphore: self,
            ticket: None,
        }
    }

    fn release(&self) {
        let mut state = lock(&self.state);
        match state.waiting.pop_first() {
            Some((_, waker)) => {
                drop(state);
                waker.wake();
            }
            None => state.free += 1,
        }
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> u32 {
        lock(&self.state).free
    }
}

impl Future for Acquire {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let semaphore = Arc::clone(&self.semaphore);
        let mut state = lock(&semaphore.state);
        match self.ticket {
            None if state.free > 0 => state.free -= 1,
            None => {
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                state.waiting.insert(ticket, context.waker().clone());
                self.ticket = Some(ticket);
                return Poll::Pending;
            }
            Some(ticket) => {
                if let Some(waker) = state.waiting.get_mut(&ticket) {
                    waker.clone_from(context.waker());
                    return Poll::Pending;
                }
                self.ticket = None;
            }
        }
        drop(state);
        Poll::Ready(Permit(semaphore))
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else {
            return;
        };
        let waker = lock(&self.semaphore.state).waiting.remove(&ticket);
        if waker.is_none() {
            // Granted, but not taken.
            self.semaphore.release();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    type Wait = Pin<Box<dyn Future<Output = Permit>>>;

    fn request(semaphore: &Arc<FairSemaphore>) -> Wait {
        Box::pin(Arc::clone(semaphore).acquire())
    }

    fn poll(wait: &mut Wait) -> Option<Permit> {
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_free_permit_goes_to_the_task_that_waits_longest() {
        let semaphore = Arc::new(FairSemaphore::new(1));
        let held = poll(&mut request(&semaphore)).unwrap();
        let (mut first, mut second) = (request(&semaphore), request(&semaphore));
        assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
        drop(held);
        let mut late = request(&semaphore);
        assert!(poll(&mut late).is_none(), "the permit is given away");
        assert!(poll(&mut second).is_none());
        let held = poll(&mut first).unwrap();
        assert!(poll(&mut second).is_none());
        drop(held);
        let held = poll(&mut second).unwrap();
        drop((held, late));
        assert_eq!(semaphore.free(), 1);
    }

    /// TO SEE THIS RED: remove `release` from the drop of `Acquire`.
    #[test]
    fn the_permit_of_a_canceled_wait_goes_to_the_next_task() {
        let semaphore = Arc::new(FairSemaphore::new(1));
        let held = poll(&mut request(&semaphore)).unwrap();
        let mut waits = [0, 1, 2].map(|_| request(&semaphore));
        assert!(waits.iter_mut().all(|wait| poll(wait).is_none()));
        let [canceled_before, canceled_after, mut stays] = waits;
        drop(canceled_before);
        drop(held);
        drop(canceled_after);
        assert!(poll(&mut stays).is_some());
        assert_eq!(semaphore.free(), 1);
        assert!(lock(&semaphore.state).waiting.is_empty());
    }

    #[test]
    fn no_permit_is_lost_or_doubled_between_threads() {
        const PERMITS: u32 = 2;
        let semaphore = Arc::new(FairSemaphore::new(PERMITS));
        let held = Arc::new(AtomicU32::new(0));
        let threads = [0, 1, 2, 3].map(|seed: u32| {
            let (semaphore, held) = (Arc::clone(&semaphore), Arc::clone(&held));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                runtime.unwrap().block_on(async {
                    for round in 0..5_000 {
                        let mut canceled = request(&semaphore);
                        if (round + seed).is_multiple_of(3) {
                            drop(poll(&mut canceled));
                        }
                        tokio::task::yield_now().await;
                        drop(canceled);
                        let permit = request(&semaphore).await;
                        assert!(held.fetch_add(1, SeqCst) < PERMITS);
                        tokio::task::yield_now().await;
                        held.fetch_sub(1, SeqCst);
                        drop(permit);
                    }
                });
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(semaphore.free(), PERMITS);
    }
}

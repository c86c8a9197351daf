//! Timers of a worker: tasks sleep, or limit the time of another future.
//!
//! Each worker thread has its own timers, which its loop wakes when they are due.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::clock;

thread_local! {
    static TIMERS: RefCell<Timers> = const { RefCell::new(Timers::new()) };
}

/// Timers of one thread, in the order of their deadlines.
struct Timers {
    /// Number of the next timer: two timers may have one deadline.
    next_number: u64,
    waiting: BTreeMap<TimerKey, Waker>,
}

/// Deadline in microseconds of the clock, and the timer's number.
type TimerKey = (u64, u64);

impl Timers {
    const fn new() -> Self {
        Self {
            next_number: 0,
            waiting: BTreeMap::new(),
        }
    }
}

/// A time limit has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedOut;

/// Waits for a duration.
pub fn sleep(duration: Duration) -> Sleep {
    // Rounded up: a sleep is never shorter.
    let duration_us = u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
    Sleep {
        deadline_us: clock::now_us().saturating_add(duration_us),
        key: None,
    }
}

/// Runs a future for at most `limit`. If both end in the same turn, the future's output counts.
pub fn timeout<F: Future>(limit: Duration, future: F) -> Timeout<F> {
    Timeout {
        future,
        limit: sleep(limit),
    }
}

pin_project! {
    /// A future with a time limit. Not an async function, which would hold the future twice.
    pub struct Timeout<F> {
        #[pin]
        future: F,
        limit: Sleep,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, TimedOut>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.limit).poll(context).map(|()| Err(TimedOut))
    }
}

/// Yields to the worker's other tasks.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A timer, removed on drop.
pub struct Sleep {
    deadline_us: u64,
    /// Entry among the thread's timers, from the first poll on.
    key: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if clock::now_us() >= self.deadline_us {
            return Poll::Ready(());
        }
        TIMERS.with_borrow_mut(|timers| {
            let key = self.key.unwrap_or_else(|| {
                timers.next_number += 1;
                (self.deadline_us, timers.next_number)
            });
            self.key = Some(key);
            match timers.waiting.get_mut(&key) {
                Some(waker) => waker.clone_from(context.waker()),
                None => drop(timers.waiting.insert(key, context.waker().clone())),
            }
        });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            // Without the timers the thread is ending.
            let waker = TIMERS.try_with(|timers| timers.borrow_mut().waiting.remove(&key));
            drop(waker);
        }
    }
}

/// Wakes the tasks whose timers are due. Returns the time until the next one; `None`: there is
/// none.
pub(crate) fn wake_due() -> Option<Duration> {
    let first = || TIMERS.with_borrow(|timers| timers.waiting.keys().next().copied());
    first()?;
    let now_us = clock::now_us();
    loop {
        let (deadline_us, number) = first()?;
        if deadline_us > now_us {
            return Some(Duration::from_micros(deadline_us - now_us));
        }
        let key = (deadline_us, number);
        // Not woken while the timers are borrowed: the task may drop other timers.
        if let Some(waker) = TIMERS.with_borrow_mut(|timers| timers.waiting.remove(&key)) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn poll(future: Pin<&mut impl Future<Output = ()>>) -> bool {
        future
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    fn waiting() -> usize {
        TIMERS.with_borrow(|timers| timers.waiting.len())
    }

    #[test]
    fn a_sleep_ends_at_its_deadline_and_not_before() {
        let limit = Duration::from_millis(20);
        let started = std::time::Instant::now();
        let mut sleep = pin!(sleep(limit));
        while !poll(sleep.as_mut()) {
            let next = wake_due().expect("the sleep is among the timers");
            std::thread::sleep(next);
        }
        assert!(started.elapsed() >= limit, "{:?}", started.elapsed());
    }

    #[test]
    fn a_dropped_sleep_leaves_no_timer() {
        let mut first = Box::pin(sleep(Duration::from_secs(60)));
        let mut second = Box::pin(sleep(Duration::from_secs(60)));
        assert!(!poll(first.as_mut()) && !poll(second.as_mut()));
        drop(first);
        assert_eq!(waiting(), 1);
        drop(second);
        assert_eq!(waiting(), 0);
    }

    #[test]
    fn a_limit_ends_a_future_that_never_does_and_spares_one_that_has_ended() {
        let context = &mut Context::from_waker(Waker::noop());
        let mut endless = pin!(timeout(Duration::ZERO, std::future::pending::<()>()));
        assert_eq!(endless.as_mut().poll(context), Poll::Ready(Err(TimedOut)));
        let mut done = pin!(timeout(Duration::ZERO, async { 7 }));
        assert_eq!(done.as_mut().poll(context), Poll::Ready(Ok(7)));
    }

    #[test]
    fn the_longest_duration_never_ends() {
        let mut sleep = pin!(sleep(Duration::MAX));
        assert!(!poll(sleep.as_mut()));
        assert!(wake_due() > Some(Duration::from_secs(3_600)));
    }
}

//! Runs a worker's tasks. A wake-up on the worker's own thread, which is nearly every one, only
//! queues the task; one from another thread also ends the worker's wait.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use async_task::Runnable;

use crate::panics::lock;
use crate::wakeup::Wakeup;

thread_local! {
    static RUN_QUEUE: RefCell<VecDeque<Runnable>> = const { RefCell::new(VecDeque::new()) };
}

/// Maximum number of passes over the queue in one turn.
const PASSES: usize = 4;

/// One worker's executor; lives on its thread.
pub(crate) struct Executor {
    owner: ThreadId,
    remote: Arc<RemoteWakes>,
}

/// Tasks woken by other threads.
struct RemoteWakes {
    woken: Mutex<Vec<Runnable>>,
    wakeup: Arc<Wakeup>,
}

impl Executor {
    /// Creates an executor for the current thread; `wakeup` ends its wait.
    pub(crate) fn new(wakeup: &Arc<Wakeup>) -> Self {
        let remote = Arc::new(RemoteWakes {
            woken: Mutex::default(),
            wakeup: Arc::clone(wakeup),
        });
        Self {
            owner: thread::current().id(),
            remote,
        }
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let (owner, remote) = (self.owner, Arc::clone(&self.remote));
        let schedule = move |runnable| {
            if thread::current().id() == owner {
                // Without the queue the thread is ending, and its tasks with it.
                let _ = RUN_QUEUE.try_with(|line| line.borrow_mut().push_back(runnable));
            } else {
                remote.push(runnable);
            }
        };
        let (runnable, task) = async_task::spawn_local(task, schedule);
        task.detach();
        runnable.schedule();
    }

    /// Runs the tasks that are queued now, and a few times those queued meanwhile: a session that
    /// releases a connection wakes the next one, whose request then needs no system call of its
    /// own.
    pub(crate) fn run(&self) {
        self.remote.enqueue();
        for _ in 0..PASSES {
            self.run_queued();
            if !self.has_runnable() {
                return;
            }
        }
    }

    fn run_queued(&self) {
        let count = RUN_QUEUE.with(|line| line.borrow().len());
        for _ in 0..count {
            let Some(runnable) = RUN_QUEUE.with(|line| line.borrow_mut().pop_front()) else {
                break;
            };
            // A task that panics ends alone (see `panics`); the hook has reported it.
            let _ = catch_unwind(AssertUnwindSafe(|| runnable.run()));
        }
    }

    pub(crate) fn has_runnable(&self) -> bool {
        RUN_QUEUE.with(|line| !line.borrow().is_empty())
    }
}

impl RemoteWakes {
    fn push(&self, runnable: Runnable) {
        lock(&self.woken).push(runnable);
        self.wakeup.wake();
    }

    fn enqueue(&self) {
        if !self.wakeup.take() {
            return;
        }
        let mut woken = lock(&self.woken);
        RUN_QUEUE.with(|line| line.borrow_mut().extend(woken.drain(..)));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Poll;

    use super::*;

    fn executor() -> Executor {
        Executor::new(&Arc::new(Wakeup::new().unwrap()))
    }

    /// Returns a task that counts its runs and runs again immediately, until `runs_max`.
    fn eager(runs: &Rc<Cell<usize>>, runs_max: usize) -> impl Future<Output = ()> + 'static {
        let runs = Rc::clone(runs);
        poll_fn(move |context| {
            runs.set(runs.get() + 1);
            if runs.get() == runs_max {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn a_task_that_another_task_wakes_runs_in_the_same_turn() {
        let (executor, runs) = (executor(), Rc::default());
        executor.spawn(eager(&runs, 2));
        executor.run();
        assert_eq!(runs.get(), 2);
        assert!(!executor.has_runnable());
    }

    #[test]
    fn a_task_that_always_has_work_does_not_hold_up_the_poller() {
        let (executor, runs) = (executor(), Rc::default());
        executor.spawn(eager(&runs, usize::MAX));
        executor.run();
        assert_eq!(runs.get(), PASSES);
        assert!(executor.has_runnable());
    }
}

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

    /// Runs the tasks that are queued now; those queued meanwhile wait for the next turn.
    pub(crate) fn run(&self) {
        self.remote.enqueue();
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

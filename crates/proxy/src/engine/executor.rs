//! Runs a worker's sessions. A wake-up on the worker's own thread, which is nearly every one, only
//! queues the session; the runtime's executor would write to an eventfd.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::{self, ThreadId};

use async_task::Runnable;

thread_local! {
    static RUN_QUEUE: RefCell<VecDeque<Runnable>> = const { RefCell::new(VecDeque::new()) };
}

/// One worker's executor; lives on its thread.
pub(crate) struct Executor {
    owner: ThreadId,
    remote: Arc<RemoteWakes>,
}

/// Sessions woken by other threads.
struct RemoteWakes {
    woken: Mutex<Vec<Runnable>>,
    worker: Waker,
}

impl Executor {
    /// Creates an executor for the current thread; `worker` wakes it out of its wait.
    pub(crate) fn new(worker: Waker) -> Self {
        let remote = Arc::new(RemoteWakes {
            woken: Mutex::default(),
            worker,
        });
        Self {
            owner: thread::current().id(),
            remote,
        }
    }

    /// Starts a session.
    pub(crate) fn spawn(&self, session: impl Future<Output = ()> + 'static) {
        let (owner, remote) = (self.owner, Arc::clone(&self.remote));
        let schedule = move |runnable| {
            if thread::current().id() == owner {
                // Without the queue the thread is ending, and its sessions with it.
                let _ = RUN_QUEUE.try_with(|line| line.borrow_mut().push_back(runnable));
            } else {
                remote.push(runnable);
            }
        };
        let (runnable, task) = async_task::spawn_local(session, schedule);
        task.detach();
        runnable.schedule();
    }

    /// Runs the sessions that are queued now; those queued meanwhile wait for the next turn.
    pub(crate) fn run(&self) {
        self.remote.enqueue();
        let count = RUN_QUEUE.with(|line| line.borrow().len());
        for _ in 0..count {
            let Some(runnable) = RUN_QUEUE.with(|line| line.borrow_mut().pop_front()) else {
                break;
            };
            // A session that panics ends alone; the hook has reported it.
            let _ = catch_unwind(AssertUnwindSafe(|| runnable.run()));
        }
    }

    pub(crate) fn has_runnable(&self) -> bool {
        RUN_QUEUE.with(|line| !line.borrow().is_empty())
    }
}

impl RemoteWakes {
    fn push(&self, runnable: Runnable) {
        self.woken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(runnable);
        self.worker.wake_by_ref();
    }

    fn enqueue(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        RUN_QUEUE.with(|line| line.borrow_mut().extend(woken.drain(..)));
    }
}

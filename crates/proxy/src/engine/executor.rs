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
    home: ThreadId,
    from_afar: Arc<RemoteWakes>,
}

/// Sessions woken by other threads.
struct RemoteWakes {
    woken: Mutex<Vec<Runnable>>,
    worker: Waker,
}

impl Executor {
    /// Creates an executor for the current thread; `worker` wakes it out of its wait.
    pub(crate) fn new(worker: Waker) -> Self {
        let from_afar = Arc::new(RemoteWakes {
            woken: Mutex::default(),
            worker,
        });
        Self {
            home: thread::current().id(),
            from_afar,
        }
    }

    /// Starts a session.
    pub(crate) fn spawn(&self, session: impl Future<Output = ()> + 'static) {
        let (home, from_afar) = (self.home, Arc::clone(&self.from_afar));
        let schedule = move |runnable| {
            if thread::current().id() == home {
                // Without the queue the thread is ending, and its sessions with it.
                let _ = RUN_QUEUE.try_with(|line| line.borrow_mut().push_back(runnable));
            } else {
                from_afar.push(runnable);
            }
        };
        let (runnable, task) = async_task::spawn_local(session, schedule);
        task.detach();
        runnable.schedule();
    }

    /// Runs the sessions that are queued now; those queued meanwhile wait for the next turn.
    pub(crate) fn run(&self) {
        self.from_afar.join_line();
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

    fn join_line(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        RUN_QUEUE.with(|line| line.borrow_mut().extend(woken.drain(..)));
    }
}

//! Checks every order of events of small cases, with every reordering that memory allows. Compiles
//! the real files with the model checker's locks and atomics.
#![expect(
    dead_code,
    unreachable_pub,
    clippy::duplicate_mod,
    reason = "the cases use a part of what is compiled here a second time"
)]

use std::sync::Arc;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

#[path = "assign.rs"]
mod assign;
#[path = "idle_lists.rs"]
mod idle_lists;
#[path = "idle_pool.rs"]
mod idle_pool;
#[path = "limits.rs"]
mod limits;
#[path = "maintenance.rs"]
mod maintenance;
#[path = "queue.rs"]
mod queue;
#[path = "shared_pools.rs"]
mod shared_pools;
#[path = "types.rs"]
mod types;

use idle_pool::{IdlePool, ReleaseDecision};
use shared_pools::{Pool, SharedPools};
use types::{
    AcquireDecision, CancelOutcome, Checkout, ClosingConnection, Condition, PoolKey, PoolLimits,
    PoolSettings, TaskKind, WaitTicket, WorkerTask,
};

use crate::load::Load;
use crate::permits::UNLIMITED;

/// Thread of one worker: its idle pool and the results.
struct Thread {
    idle_pool: IdlePool,
    tasks: Vec<WorkerTask>,
    served: Vec<WaitTicket>,
    checkouts: Vec<Checkout>,
    closing: Vec<ClosingConnection>,
}

impl Thread {
    fn new(worker: usize, shared_pools: &Arc<SharedPools>) -> Thread {
        Thread {
            idle_pool: IdlePool::new(worker, Arc::clone(shared_pools)),
            tasks: Vec::new(),
            served: Vec::new(),
            checkouts: Vec::new(),
            closing: Vec::new(),
        }
    }

    fn acquire(&mut self, pool: &Arc<Pool>) -> Option<WaitTicket> {
        match self.idle_pool.acquire(pool, 0, &mut self.tasks) {
            AcquireDecision::Take(checkout) => self.checkouts.push(checkout),
            AcquireDecision::Wait { ticket, .. } => return Some(ticket),
            AcquireDecision::Refuse(refusal) => panic!("{refusal:?}"),
        }
        None
    }

    fn release(&mut self) {
        if let Some(checkout) = self.checkouts.pop() {
            let returned = self
                .idle_pool
                .release(checkout, Condition::Clean, 0, &mut self.tasks);
            self.returned(returned);
        }
    }

    fn returned(&mut self, returned: ReleaseDecision) {
        match returned {
            ReleaseDecision::Idle => {}
            ReleaseDecision::Assign(ticket, checkout) => {
                self.served.push(ticket);
                self.checkouts.push(checkout);
            }
            ReleaseDecision::Close(closing) => self.closing.push(closing),
        }
    }

    /// Executes a task and its follow-ups.
    fn obey(&mut self, order: &WorkerTask) {
        match order.task {
            TaskKind::Connect => {
                let returned = self.idle_pool.opened(&order.pool, 7, 0, 0, &mut self.tasks);
                self.returned(returned);
            }
            TaskKind::HandOverIdle => {
                if let Some((ticket, checkout)) =
                    self.idle_pool
                        .hand_over_idle(&order.pool, 0, &mut self.tasks)
                {
                    self.served.push(ticket);
                    self.checkouts.push(checkout);
                }
            }
            TaskKind::AcceptOffer { .. } => unreachable!("no session offers its connection"),
            TaskKind::Recheck { .. } => self.idle_pool.recheck(&order.pool, 0, &mut self.tasks),
            TaskKind::Evict { on_behalf } => {
                let closing = self
                    .idle_pool
                    .evict(&order.pool, on_behalf, 0, &mut self.tasks);
                self.closing.extend(closing);
            }
        }
    }

    fn finish_closing(&mut self) {
        for closing in std::mem::take(&mut self.closing) {
            self.idle_pool.closed(closing, 0, &mut self.tasks);
        }
    }
}

/// Settings without waits, as time does not advance.
fn settings() -> PoolSettings {
    PoolSettings {
        local_wait_ms: 0,
        ..PoolSettings::default()
    }
}

fn key(user: u64) -> PoolKey {
    PoolKey {
        server: 0,
        user,
        generation: 0,
        database: 0,
        identity: 0,
    }
}

/// Creates a service of one connection, which is in use at worker 0 for user 0, and the pool of
/// user 1.
fn scene() -> (Arc<SharedPools>, [Thread; 2], [Arc<Pool>; 2]) {
    let shared_pools = Arc::new(SharedPools::new(2, 1, settings()));
    let server = Arc::new(Load::new(None));
    let limits = PoolLimits {
        pool: UNLIMITED,
        user: UNLIMITED,
        database: UNLIMITED,
    };
    let pools = [0, 1].map(|user| shared_pools.pool(key(user), &limits, &server));
    let mut threads = [0, 1].map(|worker| Thread::new(worker, &shared_pools));
    let ticket = threads[0].acquire(&pools[0]);
    deliver(&mut threads);
    assert_eq!(threads[0].served.pop(), ticket);
    (shared_pools, threads, pools)
}

/// Delivers all tasks until none is left.
fn deliver(threads: &mut [Thread; 2]) {
    loop {
        threads.iter_mut().for_each(Thread::finish_closing);
        let tasks: Vec<WorkerTask> = threads
            .iter_mut()
            .flat_map(|thread| std::mem::take(&mut thread.tasks))
            .collect();
        if tasks.is_empty() {
            return;
        }
        tasks
            .iter()
            .for_each(|order| threads[order.worker].obey(order));
    }
}

/// Runs two threads concurrently, then delivers their tasks.
fn run(
    threads: [Thread; 2],
    first: impl FnOnce(&mut Thread) + 'static,
    second: impl FnOnce(&mut Thread) + 'static,
) -> [Thread; 2] {
    let [mut one, mut two] = threads;
    let handle = loom::thread::spawn(move || {
        first(&mut one);
        one
    });
    second(&mut two);
    let mut threads = [handle.join().expect("the thread ends"), two];
    deliver(&mut threads);
    threads
}

fn served(threads: &[Thread; 2]) -> Vec<WaitTicket> {
    let both = threads.iter().flat_map(|thread| thread.served.clone());
    both.collect()
}

#[test]
fn a_connection_given_back_while_another_worker_begins_to_wait_reaches_it() {
    loom::model(|| {
        let (shared_pools, threads, [pool, _]) = scene();
        let ended = run(threads, Thread::release, move |thread| {
            thread.acquire(&pool);
        });
        assert_eq!((served(&ended).len(), shared_pools.waiting()), (1, 0));
    });
}

#[test]
fn a_connection_given_back_while_another_pool_begins_to_wait_makes_room() {
    loom::model(|| {
        let (shared_pools, threads, [_, other]) = scene();
        let ended = run(threads, Thread::release, move |thread| {
            thread.acquire(&other);
        });
        assert_eq!((served(&ended).len(), shared_pools.waiting()), (1, 0));
        assert_eq!(total(&shared_pools), 1);
    });
}

#[test]
fn a_worker_that_uses_its_idle_connection_again_still_gives_it_to_who_waits() {
    loom::model(|| {
        let (shared_pools, mut threads, [pool, _]) = scene();
        threads[0].release();
        let own = Arc::clone(&pool);
        let use_again = move |thread: &mut Thread| {
            if thread.acquire(&own).is_none() {
                thread.release();
            }
        };
        let mut ended = run(threads, use_again, move |thread| {
            thread.acquire(&pool);
        });
        // Release the connection until no client waits.
        for _ in 0..3 {
            ended.iter_mut().for_each(Thread::release);
            deliver(&mut ended);
        }
        assert_eq!((shared_pools.waiting(), total(&shared_pools)), (0, 1));
    });
}

#[test]
fn a_client_that_gives_up_while_it_is_served_loses_no_connection() {
    loom::model(|| {
        let (shared_pools, threads, [pool, _]) = scene();
        let leave = Arc::clone(&shared_pools);
        let ended = run(threads, Thread::release, move |thread| {
            let Some(ticket) = thread.acquire(&pool) else {
                return;
            };
            if leave.cancel(ticket) == CancelOutcome::Answered {
                thread.served.push(ticket);
            }
        });
        let idle: u32 = shared_pools.stats().iter().map(|one| one.idle).sum();
        let held: usize = ended.iter().map(|thread| thread.checkouts.len()).sum();
        assert_eq!(idle as usize + held, 1, "the one connection");
        assert_eq!(shared_pools.waiting(), 0);
    });
}

#[test]
fn two_workers_that_want_the_last_place_open_one_connection() {
    loom::model(|| {
        let shared_pools = Arc::new(SharedPools::new(2, 1, settings()));
        let server = Arc::new(Load::new(None));
        let limits = PoolLimits {
            pool: UNLIMITED,
            user: UNLIMITED,
            database: UNLIMITED,
        };
        let pool = shared_pools.pool(key(0), &limits, &server);
        let threads = [0, 1].map(|worker| Thread::new(worker, &shared_pools));
        let other = Arc::clone(&pool);
        let ended = run(
            threads,
            move |thread| {
                thread.acquire(&other);
            },
            move |thread| {
                thread.acquire(&pool);
            },
        );
        assert_eq!((served(&ended).len(), shared_pools.waiting()), (1, 1));
        assert_eq!(total(&shared_pools), 1);
    });
}

fn total(shared_pools: &SharedPools) -> u32 {
    shared_pools.stats().iter().map(|one| one.connections).sum()
}

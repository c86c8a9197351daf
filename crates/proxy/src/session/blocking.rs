//! Runs work that takes milliseconds (password hashing, RSA) on separate threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, OnceLock};

use evenkeel_engine::secret;
use evenkeel_wire::mysql::password::rsa::PrivateKey;
use event_listener::Event;

/// Threads for such work: enough to keep up with logins without using all CPUs.
const THREADS: usize = 2;

/// Maximum number of queued jobs.
const WAITING_MAX: usize = 1_000;

type Job = Box<dyn FnOnce() + Send>;

/// Queue of jobs; closed if no thread could be started.
static JOBS: LazyLock<flume::Sender<Job>> = LazyLock::new(|| {
    let (jobs, todo) = flume::bounded::<Job>(WAITING_MAX);
    for number in 0..THREADS {
        let todo = todo.clone();
        let thread = std::thread::Builder::new().name(format!("passwords-{number}"));
        let started = thread.spawn(move || todo.iter().for_each(run_job));
        if let Err(error) = started {
            tracing::error!("cannot start a thread for password checks: {error}");
        }
    }
    jobs
});

/// Runs a job. If it panics, its requester gets no result, and the thread continues.
fn run_job(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

/// Runs the work on another thread. Returns `None` if the queue is full, or the work panicked.
pub(in crate::session) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = flume::bounded(1);
    let job = move || {
        if !done.is_disconnected() {
            // The requesting session may have ended.
            let _ = done.try_send(work());
        }
    };
    JOBS.try_send(Box::new(job)).ok()?;
    result.recv_async().await.ok()
}

/// Returns the RSA key that clients without TLS encrypt their passwords with. The key is generated
/// on a separate thread at the first call and kept for the life of the process.
pub(in crate::session) async fn key() -> Option<Arc<PrivateKey>> {
    static KEY: OnceLock<Option<Arc<PrivateKey>>> = OnceLock::new();
    static MADE: Event = Event::new();
    static BEGUN: OnceLock<()> = OnceLock::new();
    let finish = |key| {
        KEY.get_or_init(|| key);
        MADE.notify(usize::MAX);
    };
    BEGUN.get_or_init(|| {
        let thread = std::thread::Builder::new().name("rsa-key".to_owned());
        let started = thread.spawn(move || finish(PrivateKey::generate(secret()).map(Arc::new)));
        if started.is_err() {
            finish(None);
        }
    });
    loop {
        let made = MADE.listen();
        // From here on the end is not missed.
        if let Some(key) = KEY.get() {
            return key.clone();
        }
        made.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_by_another_thread() {
        let here = std::thread::current().id();
        let there = run_blocking(|| std::thread::current().id()).await.unwrap();
        assert_ne!(here, there);
    }

    /// TO SEE THIS RED: call the job directly in the thread.
    #[tokio::test]
    async fn work_that_panics_leaves_the_threads_to_others() {
        for _ in 0..=THREADS {
            assert_eq!(
                run_blocking(|| panic!("bad password hash")).await,
                None::<()>
            );
        }
        assert_eq!(run_blocking(|| 7).await, Some(7));
    }
}

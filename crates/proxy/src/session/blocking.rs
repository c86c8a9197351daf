//! Work of milliseconds, on threads of its own: thousands of hash rounds, RSA.

use std::sync::{Arc, LazyLock, OnceLock};

use evenkeel_wire::mysql::password::rsa::PrivateKey;
use tokio::sync::{oneshot, watch};

use crate::random::secret;

/// Enough to keep up with logins, and never all of a machine.
const THREADS: usize = 2;

/// Jobs that may wait.
const WAITING_MAX: usize = 1_000;

type Job = Box<dyn FnOnce() + Send>;

/// Where jobs go; `None`: no thread could be started.
static JOBS: LazyLock<flume::Sender<Job>> = LazyLock::new(|| {
    let (jobs, todo) = flume::bounded::<Job>(WAITING_MAX);
    for number in 0..THREADS {
        let todo = todo.clone();
        let thread = std::thread::Builder::new().name(format!("passwords-{number}"));
        let started = thread.spawn(move || todo.iter().for_each(|job| job()));
        if let Err(error) = started {
            tracing::error!("cannot start a thread for password checks: {error}");
        }
    }
    jobs
});

/// Runs it elsewhere; `None`: too much waits already.
pub(in crate::session) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = oneshot::channel();
    let job = move || {
        if !done.is_closed() {
            // Whoever wanted it may have left.
            let _ = done.send(work());
        }
    };
    JOBS.try_send(Box::new(job)).ok()?;
    result.await.ok()
}

/// Our RSA key, by which passwords come where there is no TLS. It is made once it is first needed,
/// on a thread of its own, and lives as long as the process.
pub(in crate::session) async fn key() -> Option<Arc<PrivateKey>> {
    static KEY: LazyLock<watch::Sender<Option<Option<Arc<PrivateKey>>>>> =
        LazyLock::new(watch::Sender::default);
    static BEGUN: OnceLock<()> = OnceLock::new();
    let mut made = KEY.subscribe();
    BEGUN.get_or_init(|| {
        let thread = std::thread::Builder::new().name("rsa-key".to_owned());
        let started = thread.spawn(|| {
            let key = PrivateKey::generate(secret()).map(Arc::new);
            KEY.send_replace(Some(key));
        });
        if started.is_err() {
            KEY.send_replace(Some(None));
        }
    });
    let made = made.wait_for(Option::is_some).await.ok()?;
    made.clone().flatten()
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
}

//! Confines what a panic of one task can do to the others.
//!
//! A task that panics ends alone. Unwinding drops what it owns: its sockets close, its permits and
//! places in queues are released, and a server connection that it has taken from a pool is closed,
//! never given to another session. State that tasks share is safe for these reasons:
//!
//! - State in a [`Mutex`] is locked by [`lock`]. If a panic may have left it half-changed, the
//!   next access ends the process.
//! - State of one worker in a `RefCell` or `Cell` changes in one step that cannot panic (insert,
//!   remove, replace, take), or the function that changes it in several steps holds an
//!   [`Indivisible`]: a panic in it ends the process.
//! - A counter is changed by a guard, which changes it back on drop.
//! - A task that serves all sessions of a worker, such as the sweeper or an accepting task, is
//!   started by [`Worker::spawn_vital`]. The worker would be of no use without it, so that its
//!   panic ends the process; so does a panic in the worker's own loop.
//!
//! The process ends by abort(3): its supervisor starts another one.
//!
//! [`Worker::spawn_vital`]: crate::worker::Worker::spawn_vital

use std::panic::{AssertUnwindSafe, Location};
use std::sync::{Mutex, MutexGuard};
use std::thread::panicking;

use futures_util::FutureExt;

/// A change of shared state that must not stay unfinished. If a panic passes through it, the
/// process ends.
#[must_use = "the change ends when this is dropped"]
pub struct Indivisible {
    /// True if a panic was unwinding already: it began elsewhere, and drops what its task owned.
    was_panicking: bool,
    begun: &'static Location<'static>,
}

impl Indivisible {
    /// Begins a change, which ends when the value is dropped.
    #[track_caller]
    pub fn begin() -> Self {
        Self {
            was_panicking: panicking(),
            begun: Location::caller(),
        }
    }
}

impl Drop for Indivisible {
    fn drop(&mut self) {
        if panicking() && !self.was_panicking {
            end_process(self.begun);
        }
    }
}

/// Locks state that tasks share. If a panic has interrupted a change of it, the process ends.
#[track_caller]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let used = Location::caller();
    mutex.lock().unwrap_or_else(|_| end_process(used))
}

/// Runs a future and returns its result. `None`: it has panicked, and was dropped.
pub async fn catch<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.ok()
}

#[cold]
fn end_process(place: &Location<'_>) -> ! {
    tracing::error!(
        %place,
        "a panic left state half-changed that other sessions use: the process ends"
    );
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::panic::catch_unwind;
    use std::process::Command;
    use std::sync::Arc;

    use super::*;
    use crate::scripted::Stage;
    use crate::worker::Worker;

    /// Set in the process that runs only one of these tests.
    const ALONE: &str = "EVENKEEL_TEST_ALONE";

    /// Runs a test again, in a process of its own, and returns the signal that ended it.
    fn signal_of(test: &str, run: impl FnOnce()) -> Option<i32> {
        if std::env::var_os(ALONE).is_some() {
            run();
            std::process::exit(0);
        }
        let program = std::env::current_exe().unwrap();
        let name = format!("panics::tests::{test}");
        let status = Command::new(program)
            .args(["--exact", &name, "--test-threads=1"])
            .env(ALONE, "1")
            .stderr(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .status();
        status.unwrap().signal()
    }

    fn panics(run: impl FnOnce()) {
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    }

    #[test]
    fn a_panic_within_a_change_ends_the_process() {
        let signal = signal_of("a_panic_within_a_change_ends_the_process", || {
            panics(|| {
                let _change = Indivisible::begin();
                panic!("in the middle");
            });
        });
        assert_eq!(signal, Some(libc::SIGABRT));
    }

    #[test]
    fn a_change_that_begins_while_a_task_is_unwound_does_not_end_the_process() {
        struct ChangesOnDrop;
        impl Drop for ChangesOnDrop {
            fn drop(&mut self) {
                let _change = Indivisible::begin();
            }
        }
        let test = "a_change_that_begins_while_a_task_is_unwound_does_not_end_the_process";
        let signal = signal_of(test, || {
            panics(|| {
                let _dropped = ChangesOnDrop;
                panic!("elsewhere");
            });
        });
        assert_eq!(signal, None);
    }

    #[test]
    fn state_that_a_panic_left_half_changed_is_not_used_again() {
        let test = "state_that_a_panic_left_half_changed_is_not_used_again";
        let signal = signal_of(test, || {
            let counts = Arc::new(Mutex::new((0, 0)));
            panics(|| {
                let mut counts = lock(&counts);
                counts.0 += 1;
                panic!("before the second count");
            });
            drop(lock(&counts));
        });
        assert_eq!(signal, Some(libc::SIGABRT));
    }

    fn run_tasks(spawn: impl FnOnce(&Worker)) {
        let stage = Stage::new().unwrap();
        spawn(stage.worker());
        stage.settle();
    }

    #[test]
    fn a_task_that_panics_ends_alone_unless_the_worker_needs_it() {
        let test = "a_task_that_panics_ends_alone_unless_the_worker_needs_it";
        let signal = signal_of(test, || {
            run_tasks(|worker| worker.spawn(async { panic!("a session") }));
            run_tasks(|worker| worker.spawn_vital(async { panic!("the sweeper") }));
        });
        assert_eq!(signal, Some(libc::SIGABRT));
        run_tasks(|worker| worker.spawn(async { panic!("a session") }));
    }
}

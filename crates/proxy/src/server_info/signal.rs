//! A mark that sessions set and a task of the control plane waits for.

use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};

use event_listener::Event;

/// Is set until a wait ends: several calls of `set` before that count as one, and none is lost.
#[derive(Debug, Default)]
pub(super) struct Signal {
    is_set: AtomicBool,
    event: Event,
}

impl Signal {
    pub(super) fn set(&self) {
        self.is_set.store(true, Release);
        self.event.notify(1);
    }

    /// Waits until the signal is set, and clears it; one caller at a time. May be canceled and
    /// called again.
    pub(super) async fn wait(&self) {
        while !self.take() {
            let listener = self.event.listen();
            // From here on no call of `set` is missed.
            if self.take() {
                return;
            }
            listener.await;
        }
    }

    fn take(&self) -> bool {
        self.is_set.swap(false, AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;

    fn poll(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// TO SEE THIS RED: let `wait` return after `listener.await`, without another look.
    #[test]
    fn a_signal_that_was_set_twice_ends_one_wait() {
        let signal = Signal::default();
        signal.set();
        signal.set();
        assert!(poll(pin!(signal.wait())).is_ready());
        let mut waiting = pin!(signal.wait());
        assert!(poll(waiting.as_mut()).is_pending());
        signal.set();
        assert!(signal.take() && poll(waiting.as_mut()).is_pending());
        signal.set();
        assert!(poll(waiting.as_mut()).is_ready());
    }

    #[test]
    fn a_canceled_wait_leaves_the_signal_to_the_next_one() {
        let signal = Signal::default();
        {
            let mut canceled = pin!(signal.wait());
            assert!(poll(canceled.as_mut()).is_pending());
            signal.set();
        }
        assert!(poll(pin!(signal.wait())).is_ready());
    }

    /// TO SEE THIS RED: remove the second look in `wait`.
    #[test]
    fn no_signal_of_another_thread_is_lost() {
        const ROUNDS: usize = 20_000;
        let (there, back) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
        let (heard, answer) = (Arc::clone(&there), Arc::clone(&back));
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap()
        };
        let echo = std::thread::spawn(move || {
            runtime().block_on(async {
                for _ in 0..ROUNDS {
                    heard.wait().await;
                    answer.set();
                }
            });
        });
        runtime().block_on(async {
            for _ in 0..ROUNDS {
                there.set();
                let waiting = tokio::time::timeout(Duration::from_secs(20), back.wait());
                waiting.await.unwrap();
            }
        });
        echo.join().unwrap();
    }
}

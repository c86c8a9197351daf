//! Starts and stops the worker threads, and passes commands to them.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use thiserror::Error;

use crate::ring::Ring;
use crate::worker::Worker;

/// Input/output mechanism of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Completion-based, Linux 6.1 or newer; blocked in many containers.
    IoUring,
    /// Readiness-based, works everywhere.
    Epoll,
}

impl Driver {
    /// Returns the name in configuration and status.
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }

    /// Tries io_uring; where it is unavailable, returns epoll and the reason.
    pub fn detect() -> (Self, String) {
        match Ring::check() {
            Ok(()) => (Self::IoUring, "supported by the kernel".to_owned()),
            Err(error) => (Self::Epoll, format!("io_uring is not available: {error}")),
        }
    }
}

/// Reason why the workers did not start.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The requested driver is unavailable.
    #[error("{driver} is not available: {cause}; set [engine] io = \"auto\" or \"epoll\"")]
    Driver {
        /// Name of the driver.
        driver: &'static str,
        /// Error of the kernel.
        cause: io::Error,
    },
    /// The system could not create a thread.
    #[error("cannot start a worker thread: {0}")]
    Thread(io::Error),
}

/// A command to a worker, on which the engine's user keeps the state `W`.
pub(crate) enum WorkerCommand<W> {
    /// Calls a function on the worker's thread.
    Run(Function<W>),
    /// Ends the worker, and with it all of its tasks.
    Stop,
}

type Function<W> = Box<dyn FnOnce(&Rc<W>) + Send>;

/// The workers as other threads reach them.
#[derive(Debug)]
pub struct Workers<W>(Arc<[flume::Sender<WorkerCommand<W>>]>);

impl<W> Clone for Workers<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W> Workers<W> {
    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Runs a function on a worker. A worker that has ended, or that does not exist, runs nothing.
    pub fn run(&self, index: usize, run: impl FnOnce(&Rc<W>) + Send + 'static) {
        if let Some(worker) = self.0.get(index) {
            let _ = worker.send(WorkerCommand::Run(Box::new(run)));
        }
    }

    /// Runs a function on each worker.
    pub fn run_on_all(&self, run: impl Fn(&Rc<W>) + Clone + Send + 'static) {
        for index in 0..self.count() {
            self.run(index, run.clone());
        }
    }
}

/// Commands that the workers have not received yet.
pub struct Inboxes<W>(Vec<flume::Receiver<WorkerCommand<W>>>);

/// Returns the workers of an engine that is about to start.
pub fn workers<W>(count: usize) -> (Workers<W>, Inboxes<W>) {
    let (commands, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| flume::unbounded()).unzip();
    (Workers(commands.into()), Inboxes(inboxes))
}

/// The running workers.
pub struct Engine<W> {
    driver: Driver,
    workers: Workers<W>,
    threads: Vec<JoinHandle<()>>,
}

impl<W: 'static> Engine<W> {
    /// Starts the workers. `make` creates the user's state of each, on its thread.
    ///
    /// # Errors
    ///
    /// The driver is not available, or the system creates no thread.
    pub fn start(
        driver: Driver,
        (workers, inboxes): (Workers<W>, Inboxes<W>),
        make: impl Fn(Rc<Worker>) -> Rc<W> + Clone + Send + 'static,
    ) -> Result<Self, EngineError> {
        let (started, starts) = flume::unbounded();
        let mut threads = Vec::new();
        for (index, inbox) in inboxes.0.into_iter().enumerate() {
            let (started, make) = (started.clone(), make.clone());
            let thread = std::thread::Builder::new().name(format!("worker-{index}"));
            let run = move || {
                // The receiver does not exist any more if another worker has failed already.
                let _ = match Worker::new(index, driver) {
                    Err(error) => started.send(Err(error)),
                    Ok(worker) => {
                        let reported = started.send(Ok(()));
                        run(&worker, &make(Rc::clone(&worker)), inbox);
                        reported
                    }
                };
            };
            threads.push(thread.spawn(run).map_err(EngineError::Thread)?);
        }
        drop(started);
        for outcome in starts.iter().take(workers.count()) {
            outcome.map_err(|cause| EngineError::Driver {
                driver: driver.name(),
                cause,
            })?;
        }
        Ok(Self {
            driver,
            workers,
            threads,
        })
    }

    /// Returns the driver in use.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Ends the workers, and with them all remaining tasks.
    pub fn stop(self) {
        for worker in self.workers.0.iter() {
            // A worker that has ended needs no command.
            let _ = worker.send(WorkerCommand::Stop);
        }
        for thread in self.threads {
            // A worker that panicked has reported it itself.
            let _ = thread.join();
        }
    }
}

/// Runs a worker until it is stopped.
fn run<W: 'static>(worker: &Rc<Worker>, user: &Rc<W>, inbox: flume::Receiver<WorkerCommand<W>>) {
    let (receiver, user) = (Rc::clone(worker), Rc::clone(user));
    worker.spawn_vital(async move {
        while let Ok(WorkerCommand::Run(run)) = inbox.recv_async().await {
            run(&user);
        }
        receiver.stop();
    });
    worker.run();
}

//! Runs queries of a monitor account over one connection, in sequence or concurrently.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryStream};

use super::WatchError;
use crate::probe::{
    DatabaseLogin as _, MonitorAccount, ProbeSetupError, Progress, Target, Tls,
    postgres::{Login, ReceivedPrefix},
};

/// Login for monitor connections.
pub(super) struct Caller {
    login: Login,
    pub(super) user: String,
}

/// A connection, driven by a task of its own.
pub(super) struct MonitorConnection {
    pub(super) client: Client,
    task: JoinHandle<Result<(), Error>>,
    received: ReceivedPrefix,
    broken: AtomicBool,
}

impl Caller {
    /// Creates the login; `program` is the name under which the servers see the connection.
    pub(super) fn new(
        account: MonitorAccount,
        tls: &Tls,
        program: &'static str,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self {
            user: account.user.clone(),
            login: Login::new(account, tls, program)?,
        })
    }

    /// Connects, logs in, and continues with `step`.
    pub(super) async fn call(
        &self,
        target: &Target,
        progress: &Progress,
        step: &'static str,
    ) -> Result<MonitorConnection, WatchError> {
        let connection = self.login.connect(target, progress).await?;
        progress.logged_in(step);
        Ok(MonitorConnection {
            client: connection.client,
            task: tokio::spawn(connection.driver),
            received: connection.received,
            broken: AtomicBool::new(false),
        })
    }

    /// Classifies an error; the connection is not used again.
    pub(super) fn classify(
        &self,
        error: &Error,
        line: &MonitorConnection,
        progress: &Progress,
    ) -> WatchError {
        line.give_up();
        self.login.classify(error, &line.received, progress).into()
    }
}

impl MonitorConnection {
    /// Restarts the count of received bytes for the next reply.
    pub(super) fn begin_answer(&self) {
        self.received.next_answer();
    }

    /// Marks the connection as broken: it is closed without a termination message.
    pub(super) fn give_up(&self) {
        self.broken.store(true, Relaxed);
    }

    /// Marks the connection as usable again.
    pub(super) fn hold(&self) {
        self.broken.store(false, Relaxed);
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.broken.load(Relaxed) && !self.task.is_finished()
    }

    /// Sends a query whose rows are text.
    pub(super) async fn ask(&self, query: &str) -> Result<SimpleQueryStream, Error> {
        self.begin_answer();
        self.client.simple_query_raw(query).await
    }
}

impl Drop for MonitorConnection {
    fn drop(&mut self) {
        // Without its client the task sends Terminate; over a broken connection it would wait.
        if self.broken.load(Relaxed) {
            self.task.abort();
        }
    }
}

/// Returns the cells of a row, in the order of the query.
pub(super) fn cells<const N: usize>(message: &SimpleQueryMessage) -> Option<[Option<&str>; N]> {
    match message {
        SimpleQueryMessage::Row(row) if row.len() == N => {
            Some(std::array::from_fn(|at| row.get(at)))
        }
        _ => None,
    }
}

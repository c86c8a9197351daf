//! A connection of an account of ours over which questions go one after the other, or at once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, SimpleQueryMessage, SimpleQueryStream};

use super::WatchError;
use crate::probe::{
    MonitorAccount, ProbeSetupError, Progress, Target, Tls,
    postgres::{Login, ReceivedPrefix},
};

/// Who asks, and how to get in.
pub(super) struct Caller {
    login: Login,
    pub(super) user: String,
}

/// A connection, moved by a task of its own.
pub(super) struct MonitorConnection {
    pub(super) client: Client,
    task: JoinHandle<Result<(), Error>>,
    heard: ReceivedPrefix,
    broken: AtomicBool,
}

impl Caller {
    /// `program` is the name under which the servers see us.
    pub(super) fn new(
        account: MonitorAccount,
        tls: &Tls,
        program: &str,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self {
            user: account.user.clone(),
            login: Login::new(account, tls, program)?,
        })
    }

    /// Connects, logs in, and goes on with `step`.
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
            heard: connection.heard,
            broken: AtomicBool::new(false),
        })
    }

    /// What an error means; the line is not used again.
    pub(super) fn judge(
        &self,
        error: &Error,
        line: &MonitorConnection,
        progress: &Progress,
    ) -> WatchError {
        line.give_up();
        self.login.judge(error, &line.heard, progress).into()
    }
}

impl MonitorConnection {
    /// The length of what the server says is counted from here.
    pub(super) fn begin_answer(&self) {
        self.heard.next_answer();
    }

    /// It leads nowhere: no goodbye is said over it.
    pub(super) fn give_up(&self) {
        self.broken.store(true, Relaxed);
    }

    /// It leads somewhere again.
    pub(super) fn hold(&self) {
        self.broken.store(false, Relaxed);
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.broken.load(Relaxed) && !self.task.is_finished()
    }

    /// Asks, for rows of text.
    pub(super) async fn ask(&self, query: &str) -> Result<SimpleQueryStream, Error> {
        self.begin_answer();
        self.client.simple_query_raw(query).await
    }
}

impl Drop for MonitorConnection {
    fn drop(&mut self) {
        // Without its client the task says Terminate; over a broken line it would wait.
        if self.broken.load(Relaxed) {
            self.task.abort();
        }
    }
}

/// The cells of a row, in the order of the question.
pub(super) fn cells<const N: usize>(message: &SimpleQueryMessage) -> Option<[Option<&str>; N]> {
    match message {
        SimpleQueryMessage::Row(row) if row.len() == N => {
            Some(std::array::from_fn(|at| row.get(at)))
        }
        _ => None,
    }
}

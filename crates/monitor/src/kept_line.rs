//! Keeps a connection to one server between two queries.

use std::time::Duration;

use crate::WatchError;
use crate::probe::{Progress, Target};

/// Connection to the server of the last query, if that query succeeded.
pub(crate) struct KeptLine<L>(Option<(Target, L)>);

impl<L> Default for KeptLine<L> {
    fn default() -> Self {
        KeptLine(None)
    }
}

impl<L> KeptLine<L> {
    /// Takes the connection out for a query: if the query fails or is canceled, the connection is
    /// not used again.
    pub(crate) fn take(&mut self, target: &Target) -> Option<L> {
        let (of, line) = self.0.take()?;
        (of == *target).then_some(line)
    }

    /// Keeps the connection after a query. Returns the answer.
    pub(crate) fn keep<A>(&mut self, target: &Target, (answer, line): (A, L)) -> A {
        self.0 = Some((target.clone(), line));
        answer
    }

    /// Closes the connection.
    pub(crate) fn hang_up(&mut self) {
        self.0 = None;
    }
}

/// Waits for an answer, up to this limit.
pub(crate) async fn within<A>(
    timeout: Duration,
    progress: &Progress,
    asking: impl Future<Output = Result<A, WatchError>>,
) -> Result<A, WatchError> {
    let answer = tokio::time::timeout(timeout, asking).await;
    answer.unwrap_or_else(|_| Err(WatchError::Away(progress.timed_out(timeout))))
}

//! Keeps the connection to a server between queries, as long as it works.

use std::{future::pending, time::Duration};

use evenkeel_policy::cluster::{RoleReport, report::ReplicationState};
use tokio::time::timeout;

use super::{Clock, WatchError};
use crate::probe::{Progress, Target};

/// Time limit for closing a connection with the protocol's termination message.
const GOODBYE_MS_MAX: u64 = 200;
const STEP: &str = "querying its role";

/// Protocol-specific part of a role query.
pub(super) trait RoleQuery: Send {
    /// A connection, with the known facts about its server. A drop closes it properly, in the
    /// background.
    type Link: Send;

    /// Connects, logs in, and finds out what to query.
    fn connect(
        &self,
        target: &Target,
        progress: &Progress,
    ) -> impl Future<Output = Result<Self::Link, WatchError>> + Send;

    /// Queries the role. A link without a reply is not returned.
    fn query_role(
        &mut self,
        link: Self::Link,
        target: &Target,
        progress: &Progress,
    ) -> impl Future<Output = Result<(ReplicationState, Self::Link), WatchError>> + Send;

    /// Waits until the server has closed the connection. May be canceled and called again.
    fn closed(link: &mut Self::Link) -> impl Future<Output = ()> + Send;

    /// Closes the connection properly.
    fn goodbye(link: Self::Link) -> impl Future<Output = ()> + Send;
}

/// One server's connection, and the query that uses it.
pub(super) struct PersistentConnection<M: RoleQuery> {
    monitor: M,
    kept: Option<KeptConnection<M::Link>>,
    now_us: Clock,
}

struct KeptConnection<L> {
    target: Target,
    link: L,
}

impl<M: RoleQuery> PersistentConnection<M> {
    pub(super) fn new(monitor: M, now_us: Clock) -> Self {
        Self {
            monitor,
            kept: None,
            now_us,
        }
    }

    pub(super) async fn ask(
        &mut self,
        target: &Target,
        fresh: bool,
        within: Duration,
    ) -> Result<RoleReport, WatchError> {
        // Taken out: if this query fails or is canceled, the connection is not used again.
        let kept = self.kept.take();
        let link = kept.filter(|kept| !fresh && kept.target == *target);
        let progress = Progress::new(within);
        let asking = self.run(link.map(|kept| kept.link), target, &progress);
        match timeout(within, asking).await {
            Ok(Ok((report, link))) => {
                let target = target.clone();
                self.kept = Some(KeptConnection { target, link });
                Ok(report)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(WatchError::Away(progress.timed_out(within))),
        }
    }

    async fn run(
        &mut self,
        link: Option<M::Link>,
        target: &Target,
        progress: &Progress,
    ) -> Result<(RoleReport, M::Link), WatchError> {
        let fresh = link.is_none();
        let link = match link {
            Some(link) => link,
            None => self.monitor.connect(target, progress).await?,
        };
        progress.logged_in(STEP);
        let queried_ms = (self.now_us)() / 1_000;
        let (status, link) = self.monitor.query_role(link, target, progress).await?;
        let report = RoleReport {
            queried_ms,
            fresh,
            status,
        };
        Ok((report, link))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.kept.is_some()
    }

    pub(super) async fn closed(&mut self) {
        match &mut self.kept {
            Some(kept) => M::closed(&mut kept.link).await,
            None => pending().await,
        }
        self.kept = None;
    }

    pub(super) async fn goodbye(self) {
        if let Some(kept) = self.kept {
            let limit = Duration::from_millis(GOODBYE_MS_MAX);
            let _ = timeout(limit, M::goodbye(kept.link)).await;
        }
    }
}

//! Looks up logins on the servers. Each lookup starts after its session arrived; sessions of the
//! same user share one.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_monitor::probe::Target;
use evenkeel_monitor::{MysqlAuthQuery, PostgresAuthQuery};
use evenkeel_policy::accounts::{LookupError, MysqlAuthRecords, PostgresAuthRecord};
use evenkeel_proxy::server_info::{LookupRequest, ServerInfo};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::membership::{Membership, MonitoredServer};

/// Most lookups in progress concurrently.
const RUNNING_MAX: usize = 32;

/// Most sessions that may wait. Further requests are rejected with that reason.
const WAITING_MAX: usize = 10_000;

/// Time limits of one server's response while another server can be queried, and of a whole lookup.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(10);

type Answer<A> = Result<A, LookupError>;
type Reply<A> = flume::Sender<Answer<A>>;

/// Authentication record of a user, as a server stores it.
pub(super) trait AuthRecord: Clone + Debug + Send + Sync + 'static {
    /// Waits for the next session that requests a lookup.
    fn next(server_info: &ServerInfo) -> impl Future<Output = LookupRequest<Self>> + Send;
}

impl AuthRecord for PostgresAuthRecord {
    async fn next(server_info: &ServerInfo) -> LookupRequest<PostgresAuthRecord> {
        server_info.next_login().await
    }
}

impl AuthRecord for MysqlAuthRecords {
    async fn next(server_info: &ServerInfo) -> LookupRequest<MysqlAuthRecords> {
        server_info.next_accounts().await
    }
}

/// Source of authentication records.
pub(super) trait AuthDirectory: Send + Sync + 'static {
    type Record: AuthRecord;

    fn look_up(&self, user: &str) -> impl Future<Output = Answer<Self::Record>> + Send;
}

/// Answers the lookups of a service's sessions. Never returns.
pub(super) async fn serve_lookups<K: AuthDirectory>(
    server_info: Arc<ServerInfo>,
    directory: Arc<K>,
) {
    let mut lookups = PendingLookups::<K::Record>::default();
    let mut tasks: JoinSet<(String, Answer<K::Record>)> = JoinSet::new();
    loop {
        tokio::select! {
            request = K::Record::next(&server_info) => lookups.add(request),
            Some(done) = tasks.join_next(), if !tasks.is_empty() => match done {
                Ok((user, answer)) => lookups.complete(&user, &answer),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
        }
        while let Some(user) = lookups.next() {
            let directory = Arc::clone(&directory);
            tasks.spawn(async move {
                let answer = tokio::time::timeout(LIMIT, directory.look_up(&user)).await;
                let answer = answer.unwrap_or_else(|_| Err(too_late()));
                (user, answer)
            });
        }
    }
}

fn too_late() -> LookupError {
    let limit_ms = LIMIT.as_millis();
    LookupError::Unavailable(format!(
        "user lookup not answered by any server within {limit_ms} ms"
    ))
}

/// Sessions that wait, by the user that they look up.
#[derive(Debug)]
struct PendingLookups<A> {
    users: BTreeMap<String, Waiting<A>>,
    /// Users to look up, in order of arrival.
    queue: VecDeque<String>,
    running: usize,
    waiting: usize,
}

#[derive(Debug)]
struct Waiting<A> {
    /// Sessions that wait for the lookup in progress. `None`: there is none.
    running: Option<Vec<Reply<A>>>,
    /// Sessions that arrived after that lookup was sent. They need a new one: the password may have
    /// changed before they arrived.
    next: Vec<Reply<A>>,
}

impl<A> Default for PendingLookups<A> {
    fn default() -> Self {
        Self {
            users: BTreeMap::new(),
            queue: VecDeque::new(),
            running: 0,
            waiting: 0,
        }
    }
}

impl<A> Default for Waiting<A> {
    fn default() -> Self {
        Self {
            running: None,
            next: Vec::new(),
        }
    }
}

impl<A: Clone> PendingLookups<A> {
    fn add(&mut self, request: LookupRequest<A>) {
        let LookupRequest { user, reply } = request;
        if self.waiting >= WAITING_MAX {
            let why = format!("too many user lookups pending ({WAITING_MAX})");
            // A disconnected session needs no reply.
            let _ = reply.try_send(Err(LookupError::Unavailable(why)));
            return;
        }
        self.waiting += 1;
        let waiting = self.users.entry(user.clone()).or_default();
        if waiting.next.is_empty() && waiting.running.is_none() {
            self.queue.push_back(user);
        }
        waiting.next.push(reply);
    }

    /// Returns the next user to look up. `None` also while `RUNNING_MAX` lookups are running.
    fn next(&mut self) -> Option<String> {
        if self.running >= RUNNING_MAX {
            return None;
        }
        let user = self.queue.pop_front()?;
        let waiting = self.users.get_mut(&user)?;
        waiting.running = Some(std::mem::take(&mut waiting.next));
        self.running += 1;
        Some(user)
    }

    fn complete(&mut self, user: &str, answer: &Answer<A>) {
        self.running -= 1;
        let Some(waiting) = self.users.get_mut(user) else {
            return;
        };
        let replies = waiting.running.take().unwrap_or_default();
        self.waiting -= replies.len();
        match waiting.next.is_empty() {
            true => {
                self.users.remove(user);
            }
            false => self.queue.push_back(user.to_owned()),
        }
        for reply in replies {
            let _ = reply.try_send(answer.clone());
        }
    }
}

/// Queries one server for a user's authentication record.
pub(super) trait AuthBackend: Send + Sync + 'static {
    type Record: AuthRecord;

    fn look_up(
        &self,
        target: &Target,
        user: &str,
        limit: Duration,
    ) -> impl Future<Output = Answer<Self::Record>> + Send;
}

impl AuthBackend for PostgresAuthQuery {
    type Record = PostgresAuthRecord;

    async fn look_up(
        &self,
        target: &Target,
        user: &str,
        limit: Duration,
    ) -> Answer<PostgresAuthRecord> {
        self.ask(target, user, limit).await
    }
}

impl AuthBackend for MysqlAuthQuery {
    type Record = MysqlAuthRecords;

    async fn look_up(
        &self,
        target: &Target,
        user: &str,
        limit: Duration,
    ) -> Answer<MysqlAuthRecords> {
        self.ask(target, user, limit).await
    }
}

/// Servers of a service. The primary is queried first, then the other live servers.
pub(super) struct Servers<A> {
    pub(super) backends: Vec<(MonitoredServer, A)>,
    pub(super) membership: watch::Receiver<Membership>,
    /// Longest time that a login waits while no server is live.
    pub(super) wait: Duration,
}

impl<A: AuthBackend> AuthDirectory for Servers<A> {
    type Record = A::Record;

    async fn look_up(&self, user: &str) -> Answer<A::Record> {
        if self.backends.is_empty() {
            let why = "no account configured for user lookups: set user in [service.auth], \
                       [service.monitor] or [cluster.monitor]";
            return Err(LookupError::Unavailable(why.to_owned()));
        }
        let order = self.order().await;
        let mut answer = Err(LookupError::Unavailable(self.fault()));
        let last = order.len().saturating_sub(1);
        for (index, id) in order.into_iter().enumerate() {
            // The last server gets the full limit: if no other server is left, a busy one is worth
            // waiting for.
            let limit = if index == last { LIMIT } else { ANSWER_LIMIT };
            answer = tokio::select! {
                answer = self.query(id, user, limit) => answer,
                () = self.role_lost(id), if index != last => continue,
            };
            if !matches!(answer, Err(LookupError::Unavailable(_))) {
                break;
            }
        }
        answer
    }
}

impl<A: AuthBackend> Servers<A> {
    /// Returns why no server can be queried.
    fn fault(&self) -> String {
        let membership = self.membership.borrow();
        let fault = membership.fault.as_ref();
        fault.map_or_else(
            || "no server available".to_owned(),
            |fault| fault.why.to_string(),
        )
    }

    /// Returns the servers to query, in order. While no server is live the login waits, like
    /// statements that need a primary, unless that is useless. Empty if there is no server.
    async fn order(&self) -> Vec<u64> {
        let mut membership = self.membership.clone();
        let any_server = membership
            .wait_for(|membership| !membership.up.is_empty() || membership.has_lasting_fault());
        match tokio::time::timeout(self.wait, any_server).await {
            Ok(Ok(membership)) => membership.by_preference(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }

    /// Returns when a server is no longer the primary, or not up: a stopping server may accept
    /// connections for another second without responding.
    async fn role_lost(&self, server_id: u64) {
        let mut membership = self.membership.clone();
        let was_primary = membership.borrow().primary == Some(server_id);
        let role_lost = membership.wait_for(|membership| {
            let is_up = membership.up.contains(&server_id);
            !is_up || (was_primary && membership.primary != Some(server_id))
        });
        if role_lost.await.is_err() {
            // The control plane has dropped the sender: no further changes arrive.
            std::future::pending::<()>().await;
        }
    }

    async fn query(&self, server_id: u64, user: &str, limit: Duration) -> Answer<A::Record> {
        let mut backends = self.backends.iter();
        let found = backends.find(|(listed, _)| listed.id() == server_id);
        let target = found.and_then(|(listed, backend)| Some((listed, listed.target()?, backend)));
        let Some((listed, target, backend)) = target else {
            let why = "server host name not resolved".to_owned();
            return Err(LookupError::Unavailable(why));
        };
        let answer = AuthBackend::look_up(backend, &target, user, limit).await;
        answer.map_err(|error| match error {
            LookupError::Unavailable(why) => {
                LookupError::Unavailable(format!("{}: {why}", listed.server.name))
            }
            LookupError::NoSuchUser => LookupError::NoSuchUser,
        })
    }
}

#[cfg(test)]
mod tests;

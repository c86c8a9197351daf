//! Queues the requests of sessions for authentication records. Each login makes a new request;
//! nothing is cached.

use std::fmt;

use tokio::sync::oneshot;
use zeroize::Zeroizing;

/// Maximum number of queued requests; further ones fail immediately.
const REQUESTS_WAITING_MAX: usize = 4_096;

/// A PostgreSQL user's authentication record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresAuthRecord {
    /// Stored verifier of the password.
    pub verifier: Verifier,
    /// True if the role may log in (`rolcanlogin`).
    pub can_login: bool,
    /// True if VALID UNTIL has passed, by the server's clock.
    pub expired: bool,
    /// Opaque text that changes when the role is replaced or its default settings change.
    pub role_fingerprint: String,
    /// Databases that accept no connections.
    pub closed_databases: Vec<String>,
    /// Databases that the role may not connect to.
    pub forbidden_databases: Vec<String>,
}

/// A password as a server stores it (`pg_authid.rolpassword`). Wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub enum Verifier {
    /// `SCRAM-SHA-256$…`.
    Scram(Zeroizing<String>),
    /// `md5…`.
    Md5(Zeroizing<String>),
    /// No password, or one in an unknown form.
    None,
}

impl Verifier {
    /// Parses the stored text.
    #[must_use]
    pub fn of_text(text: Option<String>) -> Verifier {
        let Some(text) = text.map(Zeroizing::new) else {
            return Verifier::None;
        };
        match text.as_str() {
            scram if scram.starts_with("SCRAM-SHA-256$") => Verifier::Scram(text),
            md5 if md5.starts_with("md5") && md5.len() == 35 => Verifier::Md5(text),
            _ => Verifier::None,
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verifier::Scram(_) => "Scram(hidden)",
            Verifier::Md5(_) => "Md5(hidden)",
            Verifier::None => "None",
        })
    }
}

/// Reason why there is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No such user at the servers.
    #[error("no such user")]
    NoSuchUser,
    /// Lookup not possible: for the log, not for the client.
    #[error("{0}")]
    Unavailable(String),
}

/// A session's request for a user's record: a [`PostgresAuthRecord`], or MySQL's
/// [`MysqlAuthRecords`](super::MysqlAuthRecords).
#[derive(Debug)]
pub struct LookupRequest<A> {
    /// Name of the user.
    pub user: String,
    /// Receiver of the result.
    pub reply: oneshot::Sender<Result<A, LookupError>>,
}

/// Queue of the sessions' requests.
#[derive(Debug)]
pub(super) struct LookupQueue<A> {
    requests: (
        flume::Sender<LookupRequest<A>>,
        flume::Receiver<LookupRequest<A>>,
    ),
}

impl<A> Default for LookupQueue<A> {
    fn default() -> Self {
        Self {
            requests: flume::bounded(REQUESTS_WAITING_MAX),
        }
    }
}

impl<A> LookupQueue<A> {
    pub(super) async fn look_up(&self, user: &str) -> Result<A, LookupError> {
        loop {
            let (reply, result) = oneshot::channel();
            let user = user.to_owned();
            let request = LookupRequest { user, reply };
            if self.requests.0.try_send(request).is_err() {
                let why = "too many user lookups pending";
                return Err(LookupError::Unavailable(why.to_owned()));
            }
            // The lookup task drops requests when a reload replaces it: send the request to the
            // new task.
            if let Ok(result) = result.await {
                return result;
            }
        }
    }

    pub(super) async fn next(&self) -> LookupRequest<A> {
        loop {
            match self.requests.1.recv_async().await {
                Ok(request) if request.reply.is_closed() => {}
                Ok(request) => return request,
                // Never closed: the queue itself holds a sender.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dropped_request_is_sent_again() {
        let queue = LookupQueue::<u32>::default();
        let answering = async {
            drop(queue.next().await);
            let again = queue.next().await;
            assert_eq!(again.user, "app");
            again.reply.send(Ok(7)).unwrap();
        };
        let (answer, ()) = tokio::join!(queue.look_up("app"), answering);
        assert_eq!(answer, Ok(7));
    }
}

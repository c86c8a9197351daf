//! What a server has of a user: asked for at each login, never kept here.

use std::fmt;

use tokio::sync::oneshot;
use zeroize::Zeroizing;

/// So many logins may wait to be asked for; who comes then is told so at once.
const REQUESTS_WAITING_MAX: usize = 4_096;

/// A user's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresAuthRecord {
    /// What is kept of the password.
    pub verifier: Verifier,
    /// Whether it may log in at all (`rolcanlogin`).
    pub can_login: bool,
    /// VALID UNTIL has passed, by the server's clock.
    pub expired: bool,
    /// Who it is beside its name, and what connections of its begin with, in no particular form.
    pub settings: String,
    /// Databases that take no connections.
    pub closed: Vec<String>,
    /// Databases that it may not connect to.
    pub forbidden: Vec<String>,
}

/// What a server keeps of a password (`pg_authid.rolpassword`). Wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub enum Verifier {
    /// `SCRAM-SHA-256$…`.
    Scram(Zeroizing<String>),
    /// `md5…`.
    Md5(Zeroizing<String>),
    /// No password, or one in a form that nobody here knows.
    None,
}

impl Verifier {
    /// By the form of the text.
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

/// Why there is no row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The servers know no such user.
    #[error("no such user")]
    NoSuchUser,
    /// Nobody can tell: for the log, not for the client.
    #[error("{0}")]
    Unavailable(String),
}

/// A session waits for what a server has of a user: a [`Login`], or MySQL's
/// [`Accounts`](super::Accounts).
#[derive(Debug)]
pub struct LookupRequest<A> {
    /// Who logs in.
    pub user: String,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<A, LookupError>>,
}

/// Where sessions leave their requests.
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
    pub(super) async fn ask(&self, user: &str) -> Result<A, LookupError> {
        loop {
            let (reply, answer) = oneshot::channel();
            let user = user.to_owned();
            let request = LookupRequest { user, reply };
            if self.requests.0.try_send(request).is_err() {
                let why = "too many user lookups pending";
                return Err(LookupError::Unavailable(why.to_owned()));
            }
            // Whoever is replaced by a reload answers nothing: his successor is asked.
            if let Ok(answer) = answer.await {
                return answer;
            }
        }
    }

    pub(super) async fn next(&self) -> LookupRequest<A> {
        loop {
            match self.requests.1.recv_async().await {
                Ok(request) if request.reply.is_closed() => {}
                Ok(request) => return request,
                // This value holds a sender itself.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_that_nobody_answers_any_more_is_asked_again() {
        let desk = LookupQueue::<u32>::default();
        let answering = async {
            drop(desk.next().await);
            let again = desk.next().await;
            assert_eq!(again.user, "app");
            again.reply.send(Ok(7)).unwrap();
        };
        let (answer, ()) = tokio::join!(desk.ask("app"), answering);
        assert_eq!(answer, Ok(7));
    }
}

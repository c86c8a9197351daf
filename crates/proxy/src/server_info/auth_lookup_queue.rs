//! Queues the requests of sessions for authentication records. Each login makes a new request;
//! nothing is cached.

use evenkeel_policy::accounts::LookupError;

/// Maximum number of queued requests; further ones fail immediately.
const REQUESTS_WAITING_MAX: usize = 4_096;

/// A session's request for a user's record: `PostgresAuthRecord`, or MySQL's `MysqlAuthRecords`.
#[derive(Debug)]
pub struct LookupRequest<A> {
    /// Name of the user.
    pub user: String,
    /// Takes the result, once.
    pub reply: flume::Sender<Result<A, LookupError>>,
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
            let (reply, result) = flume::bounded(1);
            let user = user.to_owned();
            let request = LookupRequest { user, reply };
            if self.requests.0.try_send(request).is_err() {
                let why = "too many user lookups pending";
                return Err(LookupError::Unavailable(why.to_owned()));
            }
            // The lookup task drops requests when a reload replaces it: send the request to the
            // new task.
            if let Ok(result) = result.recv_async().await {
                return result;
            }
        }
    }

    pub(super) async fn next(&self) -> LookupRequest<A> {
        loop {
            match self.requests.1.recv_async().await {
                Ok(request) if request.reply.is_disconnected() => {}
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

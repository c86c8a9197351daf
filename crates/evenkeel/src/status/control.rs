//! Defines the requests and commands that the admin endpoints send to the control plane.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_config::ReportedProblem;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::{
    Connections, DigestStatus, Explanation, Question, Status, StatusSelection, TimelineEvent,
};

/// Command that changes the running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Reads the config file again. An invalid file changes nothing.
    Reload,
    /// Stops sending new clients to a server. Existing sessions may finish within the limit.
    Drain {
        /// Name or address, optionally `service/server`.
        server: String,
        /// Time for existing sessions to finish. `None`: the limit of the config file.
        limit_ms: Option<u64>,
    },
    /// Sends new clients to a server again.
    Undrain {
        /// Name or address, optionally `service/server`.
        server: String,
    },
    /// Sets a server's weight until it is changed again or the process exits.
    Weight {
        /// Name or address, optionally `service/server`.
        server: String,
        /// Weight from 0 to 256.
        weight: u32,
    },
    /// Sets the primary of a cluster in which it cannot be determined, or clears that setting.
    Primary {
        /// Name or address, optionally `service/server`.
        server: String,
        /// True if the setting is to be cleared.
        clear: bool,
    },
    /// Makes new transactions of a service's clients wait, and closes its server connections.
    Pause {
        /// Name of the service.
        service: String,
        /// Database to pause. `None`: all.
        database: Option<String>,
    },
    /// Ends a pause.
    Resume {
        /// Name of the service.
        service: String,
        /// Database to resume. `None`: every pause of the service.
        database: Option<String>,
    },
    /// Closes server connections once they are free. New ones are opened when needed.
    Reconnect {
        /// Name of the service.
        service: String,
        /// Database. `None`: all.
        database: Option<String>,
    },
    /// Cancels the statements of clients, and terminates the clients.
    Kill {
        /// Name of the service.
        service: String,
        /// Clients to terminate.
        which: KillWhich,
    },
}

/// Reason for which a certificate is revoked, which the authority publishes (RFC 5280 §5.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum RevocationReason {
    /// None of the others.
    #[default]
    Unspecified,
    /// Others know the private key.
    KeyCompromise,
    /// The names have another owner.
    AffiliationChanged,
    /// Another certificate replaces it.
    Superseded,
    /// The names are no longer served.
    CessationOfOperation,
}

impl RevocationReason {
    /// Returns the word of the command line.
    pub fn name(self) -> &'static str {
        match self {
            RevocationReason::Unspecified => "unspecified",
            RevocationReason::KeyCompromise => "key-compromise",
            RevocationReason::AffiliationChanged => "affiliation-changed",
            RevocationReason::Superseded => "superseded",
            RevocationReason::CessationOfOperation => "cessation-of-operation",
        }
    }
}

/// Selection of a service's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KillWhich {
    /// Client with this id.
    Client(u64),
    /// Client that uses the connection to this process of a server.
    ServerPid(u32),
    /// Clients of a database. `None`: of all.
    Database(Option<String>),
}

/// Reply to a [`Command`], and JSON body of the response to every POST.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// True if the command was executed.
    pub ok: bool,
    /// Result, or the reason for the failure and what to do.
    pub message: String,
    /// Problems of the config file, after a reload.
    pub problems: Vec<ReportedProblem>,
    /// True if an earlier command had already had this effect.
    #[serde(skip)]
    pub unchanged: bool,
}

impl Reply {
    /// Returns a reply for a command that failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    /// Returns a reply for a command that was executed.
    pub fn done(message: impl Into<String>) -> Self {
        Self {
            ok: true,
            message: message.into(),
            ..Self::default()
        }
    }
}

/// Request of the admin server to the control plane, which replies to each.
#[derive(Debug)]
pub enum Request {
    /// Requests the current status of these services and servers.
    Status(StatusSelection, oneshot::Sender<Arc<Status>>),
    /// Requests the events after a given one.
    Events {
        /// Id after which events are returned.
        after: u64,
        /// Receives the events, oldest first.
        answer: oneshot::Sender<Vec<TimelineEvent>>,
    },
    /// Requests the clients and server connections of a service.
    Connections {
        /// Name of the service.
        service: String,
        /// Receives the connections, or the reason why there are none.
        answer: oneshot::Sender<Result<Connections, String>>,
    },
    /// Requests the statement digests of a service.
    Digests {
        /// Name of the service.
        service: String,
        /// Receives the digests, by total time in descending order, or the reason why there are
        /// none.
        answer: oneshot::Sender<Result<Vec<DigestStatus>, String>>,
    },
    /// Requests the routing of a statement, with reasons.
    Explain {
        /// Statement and its circumstances.
        question: Question,
        /// Receives the explanation, or the reason why there is none.
        answer: oneshot::Sender<Result<Explanation, String>>,
    },
    /// Requests the number of a service's open server connections.
    Open {
        /// Name of the service.
        service: String,
        /// Database. `None`: all.
        database: Option<String>,
        /// Receives the number.
        answer: oneshot::Sender<Result<u64, String>>,
    },
    /// Starts an upgrade to a new process.
    Upgrade {
        /// Program of the new process. `None`: this process's own, as its path resolves now.
        binary: Option<PathBuf>,
        /// Time limit from its start to its first client. `None`: the default.
        limit_ms: Option<u64>,
        /// True if the sessions of a draining process are terminated first.
        end_draining: bool,
        /// Receives the outcome.
        answer: oneshot::Sender<Reply>,
    },
    /// Revokes the certificate of a name at its authority.
    Revoke {
        /// Name whose certificate is meant.
        name: String,
        /// Reason that the authority publishes.
        reason: RevocationReason,
        /// True if a new certificate is ordered afterwards.
        orders_again: bool,
        /// Receives the result.
        answer: oneshot::Sender<Reply>,
    },
    /// Executes a command.
    Command(Command, oneshot::Sender<Reply>),
}

/// Error of a request to a control plane that has ended, since the process is exiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process is shutting down")
    }
}

impl std::error::Error for Stopped {}

/// Sends requests to the control plane. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ControlHandle {
    requests: mpsc::Sender<Request>,
}

/// Interval between checks whether a pause is complete.
const PAUSE_POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Limit of a revocation, below the wait of the command line.
const REVOKE_LIMIT: Duration = Duration::from_secs(55);

/// Most requests that may wait concurrently. The admin port has at most 64 connections, so none
/// waits long.
const REQUESTS_WAITING_MAX: usize = 64;

impl ControlHandle {
    /// Returns a handle, and the receiver of its requests.
    pub fn channel() -> (Self, mpsc::Receiver<Request>) {
        let (requests, receiver) = mpsc::channel(REQUESTS_WAITING_MAX);
        (Self { requests }, receiver)
    }

    async fn send<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(request(answer)).await;
        sent.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// Returns the current status of the selected services and servers.
    pub async fn status(&self, selection: StatusSelection) -> Result<Arc<Status>, Stopped> {
        self.send(|answer| Request::Status(selection, answer)).await
    }

    /// Returns the clients and server connections of a service, or the reason why there are none.
    pub async fn connections(&self, service: &str) -> Result<Result<Connections, String>, Stopped> {
        let service = service.to_owned();
        self.send(|answer| Request::Connections { service, answer })
            .await
    }

    /// Returns the digests of a service by total time in descending order, or the reason for none.
    pub async fn digests(
        &self,
        service: &str,
    ) -> Result<Result<Vec<DigestStatus>, String>, Stopped> {
        let service = service.to_owned();
        self.send(|answer| Request::Digests { service, answer })
            .await
    }

    /// Returns the routing of a statement, or the reason why it cannot be determined.
    pub async fn explain(
        &self,
        question: Question,
    ) -> Result<Result<Explanation, String>, Stopped> {
        self.send(|answer| Request::Explain { question, answer })
            .await
    }

    /// Pauses each of these services like [`Self::pause`], or none of them.
    pub async fn pause_all(
        &self,
        services: &[String],
        database: Option<&str>,
        limit: Duration,
    ) -> Result<Reply, Stopped> {
        let (mut messages, mut newly_paused) = (Vec::new(), Vec::new());
        for service in services {
            let reply = self.pause(service, database, limit).await?;
            if !reply.ok {
                for paused in newly_paused {
                    self.resume(paused, database).await?;
                }
                return Ok(reply);
            }
            if !reply.unchanged {
                newly_paused.push(service);
            }
            messages.push(reply.message);
        }
        Ok(Reply::done(messages.join("; ")))
    }

    /// Pauses, and waits until no server connection is open. If that exceeds the limit, the pause
    /// is undone, unless it existed before.
    pub async fn pause(
        &self,
        service: &str,
        database: Option<&str>,
        limit: Duration,
    ) -> Result<Reply, Stopped> {
        let paused = self.begin_pause(service, database).await?;
        if !paused.ok {
            return Ok(paused);
        }
        let until = Instant::now() + limit;
        loop {
            match self.open(service, database).await? {
                Ok(0) => {
                    let message = format!("{}; no server connection is in use", paused.message);
                    return Ok(Reply { message, ..paused });
                }
                Err(why) => return Ok(Reply::failed(why)),
                Ok(open) if Instant::now() >= until => {
                    let outcome = match paused.unchanged {
                        true => "it remains paused",
                        false => "the pause was cancelled",
                    };
                    if !paused.unchanged {
                        self.resume(service, database).await?;
                    }
                    let limit_ms = limit.as_millis();
                    return Ok(Reply::failed(format!(
                        "server connections still in use after {limit_ms} ms ({open}); {outcome}: \
                         retry with a longer limit, or terminate their clients first"
                    )));
                }
                Ok(_) => tokio::time::sleep(PAUSE_POLL_INTERVAL).await,
            }
        }
    }

    async fn begin_pause(&self, service: &str, database: Option<&str>) -> Result<Reply, Stopped> {
        let (service, database) = (service.to_owned(), database.map(str::to_owned));
        self.command(Command::Pause { service, database }).await
    }

    async fn resume(&self, service: &str, database: Option<&str>) -> Result<Reply, Stopped> {
        let (service, database) = (service.to_owned(), database.map(str::to_owned));
        self.command(Command::Resume { service, database }).await
    }

    async fn open(
        &self,
        service: &str,
        database: Option<&str>,
    ) -> Result<Result<u64, String>, Stopped> {
        let (service, database) = (service.to_owned(), database.map(str::to_owned));
        self.send(|answer| Request::Open {
            service,
            database,
            answer,
        })
        .await
    }

    /// Starts an upgrade to a new process. Returns once the outcome is known.
    pub async fn upgrade(
        &self,
        binary: Option<PathBuf>,
        limit_ms: Option<u64>,
        end_draining: bool,
    ) -> Result<Reply, Stopped> {
        self.send(|answer| Request::Upgrade {
            binary,
            limit_ms,
            end_draining,
            answer,
        })
        .await
    }

    /// Revokes the certificate of a name. Returns once the authority has replied, or after a limit:
    /// an order in progress may take longer, and then nothing is revoked.
    pub async fn revoke(
        &self,
        name: String,
        reason: RevocationReason,
        orders_again: bool,
    ) -> Result<Reply, Stopped> {
        let sent = self.send(|answer| Request::Revoke {
            name,
            reason,
            orders_again,
            answer,
        });
        let busy = "the certificate is not revoked: an order is in progress, or was ended by a \
                    reload. Try again";
        match tokio::time::timeout(REVOKE_LIMIT, sent).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(Stopped)) | Err(_) => Ok(Reply::failed(busy)),
        }
    }

    /// Returns the events after this id, oldest first.
    pub async fn events(&self, after: u64) -> Result<Vec<TimelineEvent>, Stopped> {
        self.send(|answer| Request::Events { after, answer }).await
    }

    /// Executes a command.
    pub async fn command(&self, command: Command) -> Result<Reply, Stopped> {
        self.send(|answer| Request::Command(command, answer)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reply to pausing these services, and the commands sent. Clients never leave
    /// `busy`, and `paused` was paused before.
    async fn commands(services: &[&str]) -> (Reply, Vec<Command>) {
        let (control, mut requests) = ControlHandle::channel();
        let control_plane = tokio::spawn(async move {
            let mut commands = Vec::new();
            while let Some(request) = requests.recv().await {
                match request {
                    Request::Open {
                        service, answer, ..
                    } => drop(answer.send(Ok(u64::from(service.contains("busy"))))),
                    Request::Command(command, answer) => {
                        let unchanged = matches!(
                            &command,
                            Command::Pause { service, .. } if service.contains("paused")
                        );
                        let reply = Reply::done("as you wish");
                        drop(answer.send(Reply { unchanged, ..reply }));
                        commands.push(command);
                    }
                    other => panic!("{other:?}"),
                }
            }
            commands
        });
        let services: Vec<String> = services.iter().map(|one| (*one).to_owned()).collect();
        let limit = Duration::from_millis(1);
        let reply = control.pause_all(&services, None, limit).await.unwrap();
        drop(control);
        (reply, control_plane.await.unwrap())
    }

    fn pause(service: &str) -> Command {
        let (service, database) = (service.to_owned(), None);
        Command::Pause { service, database }
    }

    fn resume(service: &str) -> Command {
        let (service, database) = (service.to_owned(), None);
        Command::Resume { service, database }
    }

    #[tokio::test]
    async fn services_are_paused_together_or_not_at_all() {
        let (reply, sent) = commands(&["one", "two"]).await;
        assert!(reply.ok, "{reply:?}");
        assert_eq!(sent, [pause("one"), pause("two")]);
        let (reply, sent) = commands(&["one", "busy"]).await;
        assert!(reply.message.contains("pause was cancelled"), "{reply:?}");
        let all = [pause("one"), pause("busy"), resume("busy"), resume("one")];
        assert_eq!(sent, all);
    }

    #[tokio::test]
    async fn a_pause_that_somebody_else_began_is_not_taken_back() {
        let (reply, sent) = commands(&["paused and busy"]).await;
        assert!(!reply.ok && reply.message.contains("it remains paused"));
        assert_eq!(sent, [pause("paused and busy")]);
        let (reply, sent) = commands(&["paused", "busy"]).await;
        assert!(!reply.ok);
        assert_eq!(sent, [pause("paused"), pause("busy"), resume("busy")]);
    }
}

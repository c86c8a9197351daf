//! How the running process is asked and told: what the admin door hands to the world.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::{Connections, DigestStatus, Explanation, Problem, Question, Status, TimelineEvent};

/// Something to change in the running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the config file again; a wrong file changes nothing.
    Reload,
    /// No new clients for a server; old ones may finish within the limit (the file's when none).
    Drain {
        /// Name or address, optionally `service/server`.
        server: String,
        /// How long old sessions may go on.
        limit_ms: Option<u64>,
    },
    /// Take new clients again.
    Undrain {
        /// Name or address, optionally `service/server`.
        server: String,
    },
    /// Another weight until it is undone or the process ends.
    Weight {
        /// Name or address, optionally `service/server`.
        server: String,
        /// 0..=256.
        weight: u32,
    },
    /// Name the server that takes a cluster's writes, where that cannot be told; none: take it
    /// back.
    Primary {
        /// Name or address, optionally `service/server`.
        server: String,
        /// Take the name back instead.
        clear: bool,
    },
    /// Clients of a service wait, and its server connections close.
    Pause {
        /// The service.
        service: String,
        /// One database; none: all.
        database: Option<String>,
    },
    /// They wait no more.
    Resume {
        /// The service.
        service: String,
        /// One database; none: every pause.
        database: Option<String>,
    },
    /// Server connections are opened anew when nobody uses them.
    Reconnect {
        /// The service.
        service: String,
        /// One database; none: all.
        database: Option<String>,
    },
    /// Cancel what clients do, and end them.
    Kill {
        /// The service.
        service: String,
        /// Which of its clients.
        which: KillWhich,
    },
}

/// Which clients of a service are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KillWhich {
    /// The one with this id.
    Client(u64),
    /// The one that has the connection to this process of a server.
    ServerPid(u32),
    /// All of a database; none: of all.
    Database(Option<String>),
}

/// The answer to a [`Command`], and the JSON body of every answer to a POST.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// Whether it was done.
    pub ok: bool,
    /// What was done, or why not and what to do.
    pub message: String,
    /// The faults of the config file, after a reload.
    pub problems: Vec<Problem>,
    /// It was so before, by somebody else's command.
    #[serde(skip)]
    pub unchanged: bool,
}

impl Reply {
    /// An answer that something was not done.
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    /// An answer that something was done.
    pub fn done(message: impl Into<String>) -> Self {
        Self {
            ok: true,
            message: message.into(),
            ..Self::default()
        }
    }
}

/// What the admin server asks of the control plane; the channel's receiver answers each.
#[derive(Debug)]
pub enum Request {
    /// The status now.
    Status(oneshot::Sender<Arc<Status>>),
    /// The timeline from an event on.
    Events {
        /// Only events with a higher id.
        after: u64,
        /// Takes them, oldest first.
        answer: oneshot::Sender<Vec<TimelineEvent>>,
    },
    /// The clients and server connections of a service.
    Connections {
        /// The service.
        service: String,
        /// Takes them, or why there are none.
        answer: oneshot::Sender<Result<Connections, String>>,
    },
    /// The statements of a service.
    Digests {
        /// The service.
        service: String,
        /// Takes them, those that took most time first; or why there are none.
        answer: oneshot::Sender<Result<Vec<DigestStatus>, String>>,
    },
    /// Where a statement would go, and why.
    Explain {
        /// The statement.
        question: Question,
        /// Takes the explanation, or why there is none.
        answer: oneshot::Sender<Result<Explanation, String>>,
    },
    /// How many server connections of a service are open.
    Open {
        /// The service.
        service: String,
        /// One database; none: all.
        database: Option<String>,
        /// Takes the number.
        answer: oneshot::Sender<Result<u64, String>>,
    },
    /// Have a new process take over.
    Upgrade {
        /// Its program; none: this process's own, as its path says now.
        binary: Option<PathBuf>,
        /// From its start to its first client; none: the default.
        limit_ms: Option<u64>,
        /// Whether the sessions of a process that still drains are terminated first.
        end_draining: bool,
        /// Takes the outcome.
        answer: oneshot::Sender<Reply>,
    },
    /// Change something.
    Command(Command, oneshot::Sender<Reply>),
}

/// The control plane no longer answers: the process is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process is shutting down")
    }
}

impl std::error::Error for Stopped {}

/// Asks the control plane; cheap to clone.
#[derive(Clone, Debug)]
pub struct ControlHandle {
    requests: mpsc::Sender<Request>,
}

/// How often it is looked whether a pause has come about.
const PAUSE_LOOK_INTERVAL: Duration = Duration::from_millis(25);

/// Questions that may wait at once. The admin port has 64 connections at most, so none waits long.
const REQUESTS_WAITING_MAX: usize = 64;

impl ControlHandle {
    /// A handle, and the receiver whose owner answers.
    pub fn channel() -> (Self, mpsc::Receiver<Request>) {
        let (requests, receiver) = mpsc::channel(REQUESTS_WAITING_MAX);
        (Self { requests }, receiver)
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Stopped> {
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(request(answer)).await;
        sent.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// The status now.
    pub async fn status(&self) -> Result<Arc<Status>, Stopped> {
        self.ask(Request::Status).await
    }

    /// The clients and server connections of a service, or why there are none.
    pub async fn connections(&self, service: &str) -> Result<Result<Connections, String>, Stopped> {
        let service = service.to_owned();
        self.ask(|answer| Request::Connections { service, answer })
            .await
    }

    /// The statements of a service, those that took most time first; or why there are none.
    pub async fn digests(
        &self,
        service: &str,
    ) -> Result<Result<Vec<DigestStatus>, String>, Stopped> {
        let service = service.to_owned();
        self.ask(|answer| Request::Digests { service, answer })
            .await
    }

    /// Where a statement would go, or why that cannot be said.
    pub async fn explain(
        &self,
        question: Question,
    ) -> Result<Result<Explanation, String>, Stopped> {
        self.ask(|answer| Request::Explain { question, answer })
            .await
    }

    /// Pauses each of these services as [`Self::pause`] does, or none of them.
    pub async fn pause_all(
        &self,
        services: &[String],
        database: Option<&str>,
        limit: Duration,
    ) -> Result<Reply, Stopped> {
        let (mut said, mut ours) = (Vec::new(), Vec::new());
        for service in services {
            let reply = self.pause(service, database, limit).await?;
            if !reply.ok {
                for paused in ours {
                    self.resume(paused, database).await?;
                }
                return Ok(reply);
            }
            if !reply.unchanged {
                ours.push(service);
            }
            said.push(reply.message);
        }
        Ok(Reply::done(said.join("; ")))
    }

    /// Pauses, and waits until no server connection is open; if that takes longer than the limit,
    /// the pause is taken back, unless somebody else has begun it.
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
                    let what_now = match paused.unchanged {
                        true => "it remains paused",
                        false => "the pause was cancelled",
                    };
                    if !paused.unchanged {
                        self.resume(service, database).await?;
                    }
                    let limit_ms = limit.as_millis();
                    return Ok(Reply::failed(format!(
                        "server connections still in use after {limit_ms} ms ({open}); {what_now}: \
                         retry with a longer limit, or terminate their clients first"
                    )));
                }
                Ok(_) => tokio::time::sleep(PAUSE_LOOK_INTERVAL).await,
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
        self.ask(|answer| Request::Open {
            service,
            database,
            answer,
        })
        .await
    }

    /// Has a new process take over; the answer comes when that is decided.
    pub async fn upgrade(
        &self,
        binary: Option<PathBuf>,
        limit_ms: Option<u64>,
        end_draining: bool,
    ) -> Result<Reply, Stopped> {
        self.ask(|answer| Request::Upgrade {
            binary,
            limit_ms,
            end_draining,
            answer,
        })
        .await
    }

    /// The events after this id, oldest first.
    pub async fn events(&self, after: u64) -> Result<Vec<TimelineEvent>, Stopped> {
        self.ask(|answer| Request::Events { after, answer }).await
    }

    /// Has something changed.
    pub async fn command(&self, command: Command) -> Result<Reply, Stopped> {
        self.ask(|answer| Request::Command(command, answer)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was commanded while these were paused: clients never leave `busy`, and `paused` was
    /// paused before.
    async fn commands(services: &[&str]) -> (Reply, Vec<Command>) {
        let (control, mut requests) = ControlHandle::channel();
        let world = tokio::spawn(async move {
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
        (reply, world.await.unwrap())
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
        let (reply, told) = commands(&["one", "two"]).await;
        assert!(reply.ok, "{reply:?}");
        assert_eq!(told, [pause("one"), pause("two")]);
        let (reply, told) = commands(&["one", "busy"]).await;
        assert!(reply.message.contains("pause was cancelled"), "{reply:?}");
        let all = [pause("one"), pause("busy"), resume("busy"), resume("one")];
        assert_eq!(told, all);
    }

    #[tokio::test]
    async fn a_pause_that_somebody_else_began_is_not_taken_back() {
        let (reply, told) = commands(&["paused and busy"]).await;
        assert!(!reply.ok && reply.message.contains("it remains paused"));
        assert_eq!(told, [pause("paused and busy")]);
        let (reply, told) = commands(&["paused", "busy"]).await;
        assert!(!reply.ok);
        assert_eq!(told, [pause("paused"), pause("busy"), resume("busy")]);
    }
}

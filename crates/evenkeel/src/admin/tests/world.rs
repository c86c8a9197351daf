//! Runs an admin server with a control plane that records its commands.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;

use crate::admin::{AdminSettings, Listeners, bind_socket, sample, serve};
use crate::status::{Command, ControlHandle, Reply, Request, ServiceStatus, Status};

/// Limit for one exchange; a longer wait is a failure.
pub(in crate::admin) const DEADLINE: Duration = Duration::from_secs(20);

pub(in crate::admin) struct World {
    pub(in crate::admin) tcp: SocketAddr,
    pub(in crate::admin) socket: PathBuf,
    /// Address of the console for PostgreSQL clients.
    pub(in crate::admin) postgres: SocketAddr,
    /// Address of the console for MySQL clients.
    pub(in crate::admin) mysql: SocketAddr,
    pub(in crate::admin) control: ControlHandle,
    commands: Arc<Mutex<Vec<Command>>>,
    tasks: [JoinHandle<()>; 2],
    _directory: tempfile::TempDir,
}

impl World {
    pub(in crate::admin) async fn start(token: Option<&str>) -> Self {
        Self::with(token, sample::status()).await
    }

    pub(in crate::admin) async fn with(token: Option<&str>, status: Status) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("run/evenkeel.sock");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = listener.local_addr().unwrap();
        let postgres = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mysql = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let consoles = [&postgres, &mysql].map(|one| one.local_addr().unwrap());
        let settings = AdminSettings {
            token: token.map(str::to_owned),
            allowed_hosts: vec!["lb.example.org".into()],
        };
        let (control, requests) = ControlHandle::channel();
        let handle = control.clone();
        let commands = Arc::default();
        let server = serve(
            Listeners {
                page: Some(listener),
                socket: Some(bind_socket(&socket).unwrap()),
                postgres: Some(postgres),
                mysql: Some(mysql),
            },
            settings,
            control,
            tokio::sync::watch::channel(false).1,
        );
        let tasks = [
            tokio::spawn(server),
            tokio::spawn(control_plane(
                requests,
                Arc::new(status),
                Arc::clone(&commands),
            )),
        ];
        Self {
            tcp,
            socket,
            postgres: consoles[0],
            mysql: consoles[1],
            control: handle,
            commands,
            tasks,
            _directory: directory,
        }
    }

    /// Returns the commands that the control plane has received.
    pub(in crate::admin) fn commands(&self) -> Vec<Command> {
        self.commands.lock().unwrap().clone()
    }

    /// Sends a request over TCP with a valid Host, and the given other headers.
    pub(in crate::admin) async fn tcp(
        &self,
        request: &str,
        headers: &[&str],
        body: &str,
    ) -> Answer {
        let host = format!("host: {}", self.tcp);
        let headers = [&[&*host], headers].concat();
        self.tcp_raw(&raw(request, &headers, body)).await
    }

    pub(in crate::admin) async fn tcp_raw(&self, text: &str) -> Answer {
        exchange(TcpStream::connect(self.tcp).await.unwrap(), text)
            .await
            .unwrap()
    }

    pub(in crate::admin) async fn unix(
        &self,
        request: &str,
        headers: &[&str],
        body: &str,
    ) -> Answer {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        exchange(stream, &raw(request, headers, body))
            .await
            .unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn control_plane(
    mut requests: tokio::sync::mpsc::Receiver<Request>,
    status: Arc<Status>,
    commands: Arc<Mutex<Vec<Command>>>,
) {
    while let Some(request) = requests.recv().await {
        match request {
            Request::Status(selection, answer) => {
                let mut status = Status::clone(&status);
                let is_included = |one: &ServiceStatus| selection.includes(&one.name);
                status.services.retain(is_included);
                drop(answer.send(Arc::new(status)));
            }
            Request::Events { after, answer } => {
                let event = sample::event();
                let events = (event.id > after).then_some(event);
                drop(answer.send(events.into_iter().collect()));
            }
            Request::Connections { answer, .. } => {
                drop(answer.send(Ok(sample::connections())));
            }
            Request::Digests { answer, .. } => drop(answer.send(Ok(sample::digests()))),
            Request::Explain { question, answer } => {
                drop(answer.send(Err(format!("{:?} is not explained here", question.sql))));
            }
            // No transaction is open in "orders"; in every other service there is one.
            Request::Open {
                service, answer, ..
            } => drop(answer.send(Ok(u64::from(service != "orders")))),
            Request::Upgrade { answer, .. } => drop(answer.send(Reply::done("pid 2 serves"))),
            Request::Revoke {
                name,
                reason,
                orders_again,
                answer,
            } => {
                let what = format!("{name}, {}, {orders_again}", reason.name());
                drop(answer.send(Reply::done(what)));
            }
            Request::Command(command, answer) => {
                let unknown = matches!(&command, Command::Undrain { server } if server == "nobody");
                let reply = match unknown {
                    true => Reply::failed("no server is called \"nobody\""),
                    false => Reply::done("as you wish"),
                };
                commands.lock().unwrap().push(command);
                let _ = answer.send(reply);
            }
        }
    }
}

/// Returns the text of a request; the connection closes after the response.
pub(in crate::admin) fn raw(request: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let length = body.len();
    format!(
        "{request} HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

pub(in crate::admin) struct Answer {
    pub(in crate::admin) code: u16,
    pub(in crate::admin) head: String,
    pub(in crate::admin) body: String,
}

impl Answer {
    pub(in crate::admin) fn reply(&self) -> Reply {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not a reply: {}", self.body))
    }

    pub(in crate::admin) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

pub(in crate::admin) async fn exchange<S>(mut stream: S, text: &str) -> io::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let conversation = async {
        // The server may respond and close before it has read everything; only the response
        // matters.
        let _ = stream.write_all(text.as_bytes()).await;
        read_answer(&mut stream).await
    };
    tokio::time::timeout(DEADLINE, conversation).await?
}

async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let text = String::from_utf8(bytes).map_err(io::Error::other)?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let code = code.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Answer {
        code,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

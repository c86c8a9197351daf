//! Sends HTTP requests to the running process over its control socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::status::{
    Connections, DigestStatus, Explanation, Question, Reply, Status, TimelineEvent,
};

/// Longest wait for a response. A reload reads files and resolves names, and a pause may wait for
/// 50 s; a process that takes longer hangs.
const ANSWER_MS_MAX: u64 = 60_000;
/// Maximum size of a response. The status of ten thousand servers with their history is smaller.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Connection parameters of a running process, identified by its control socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// Reason why there is no response, with advice.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens on the socket.
    #[error(
        "cannot reach evenkeel on {}: is it running? Give its control socket with --socket PATH, \
         or its config file with -c FILE",
        .0.display()
    )]
    Nobody(PathBuf),
    /// The socket belongs to another user.
    #[error(
        "permission denied on {}: run this as the user that runs evenkeel, or as root",
        .0.display()
    )]
    NotAllowed(PathBuf),
    /// The process accepted the connection, but did not return a valid response.
    #[error(
        "unexpected response on {}: {what}. Is it the control socket of evenkeel?",
        .socket.display()
    )]
    BadAnswer {
        /// Path of the socket.
        socket: PathBuf,
        /// Description of the failure.
        what: String,
    },
}

impl Client {
    /// Creates a client without connecting.
    pub fn new(socket: PathBuf) -> Client {
        Client { socket }
    }

    /// Returns the status of the process, or the message of a refusal. `query` selects services
    /// and servers, as in a URL; empty: the default.
    pub fn status(&self, query: &str) -> Result<Result<Status, String>, ClientError> {
        self.exchange_json(Method::GET, &status_path(query), String::new())
    }

    /// Returns the status like [`Self::status`], as the JSON text that the process sent.
    pub fn status_json(&self, query: &str) -> Result<Result<String, String>, ClientError> {
        let (ok, text) = self.exchange(Method::GET, &status_path(query), String::new())?;
        if ok {
            return Ok(Ok(text));
        }
        self.refusal(&text).map(Err)
    }

    /// Returns the events with an id greater than `after`, oldest first.
    pub fn events(&self, after: u64) -> Result<Vec<TimelineEvent>, ClientError> {
        let path = format!("/api/v1/events?after={after}");
        let (ok, text) = self.exchange(Method::GET, &path, String::new())?;
        if !ok {
            return Err(self.bad_answer(text.trim()));
        }
        serde_json::from_str(&text).map_err(|error| self.bad_answer(error))
    }

    /// Returns the clients of a service, or the message of a refusal. `service` is the name as
    /// encoded in a URL.
    pub fn connections(&self, service: &str) -> Result<Result<Connections, String>, ClientError> {
        let path = format!("/api/v1/services/{service}/clients");
        self.exchange_json(Method::GET, &path, String::new())
    }

    /// Returns the statements of a service, those with the longest total time first, or the message
    /// of a refusal.
    pub fn digests(&self, service: &str) -> Result<Result<Vec<DigestStatus>, String>, ClientError> {
        let path = format!("/api/v1/services/{service}/digests");
        self.exchange_json(Method::GET, &path, String::new())
    }

    /// Returns the server to which a statement would be routed, or the message of a refusal.
    pub fn explain(&self, question: &Question) -> Result<Result<Explanation, String>, ClientError> {
        let body = serde_json::to_string(question).map_err(|error| self.bad_answer(error))?;
        self.exchange_json(Method::POST, "/api/v1/explain", body)
    }

    /// Sends a request and returns the decoded response, or the message of a refusal.
    fn exchange_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Result<T, String>, ClientError> {
        let (ok, text) = self.exchange(method, path, body)?;
        if ok {
            let answer = serde_json::from_str(&text).map(Ok);
            return answer.map_err(|error| self.bad_answer(error));
        }
        self.refusal(&text).map(Err)
    }

    /// Returns the message of a refusal.
    fn refusal(&self, text: &str) -> Result<String, ClientError> {
        let reply: Result<Reply, _> = serde_json::from_str(text);
        reply
            .map(|reply| reply.message)
            .map_err(|error| self.bad_answer(error))
    }

    /// Sends a command. `Reply::ok` reports whether it was executed.
    pub fn post(&self, path: &str, body: &serde_json::Value) -> Result<Reply, ClientError> {
        let (_, text) = self.exchange(Method::POST, path, body.to_string())?;
        serde_json::from_str(&text).map_err(|error| self.bad_answer(error))
    }

    fn exchange(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<(bool, String), ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| self.bad_answer(error))?;
        runtime.block_on(async {
            let limit = Duration::from_millis(ANSWER_MS_MAX);
            match tokio::time::timeout(limit, self.send(method, path, body)).await {
                Ok(answer) => answer,
                Err(_) => Err(self.bad_answer(format!("no response within {ANSWER_MS_MAX} ms"))),
            }
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<(bool, String), ClientError> {
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|error| no_connection(&self.socket, &error))?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.bad_answer(error))?;
        // The response or the sender's error reports the outcome.
        tokio::spawn(async move { connection.await.ok() });
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| self.bad_answer(error))?;
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| self.bad_answer(error))?;
        let ok = response.status().is_success();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let bytes = body.map_err(|error| self.bad_answer(error))?.to_bytes();
        let text = String::from_utf8(bytes.into()).map_err(|error| self.bad_answer(error))?;
        Ok((ok, text))
    }

    fn bad_answer(&self, what: impl ToString) -> ClientError {
        ClientError::BadAnswer {
            socket: self.socket.clone(),
            what: what.to_string(),
        }
    }
}

fn status_path(query: &str) -> String {
    let mark = if query.is_empty() { "" } else { "?" };
    format!("/api/v1/status{mark}{query}")
}

fn no_connection(socket: &Path, error: &io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => ClientError::NotAllowed(socket.to_owned()),
        _ => ClientError::Nobody(socket.to_owned()),
    }
}

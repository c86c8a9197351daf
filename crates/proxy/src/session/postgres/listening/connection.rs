//! Runs the shared connection of a [`ListenHub`]: executes LISTEN and UNLISTEN one after another,
//! and passes notifications on.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel_engine::timers;
use evenkeel_wire::postgres::backend::{self, Message};
use evenkeel_wire::postgres::{Parsed, build, frame};
use tracing::info;

use super::hub::{ListenHub, NextStep};
use crate::service::Service;
use crate::session::postgres::server::ServerConnection;
use crate::session::postgres::server_login;
use crate::upstream::pool_registry::PoolHandle;
use crate::upstream::worker_pool::PoolableConnection;
use crate::worker::Worker;

/// Time between two checks whether the connection is still needed, and its server the primary.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum length of a message of the server.
const MESSAGE_LENGTH_MAX: u32 = 1024 * 1024;

/// First statements on the connection. `idle_session_timeout` exists from PostgreSQL 14 on.
const SETUP: &[u8] = b"SET client_encoding = 'UTF8'; SET application_name = 'evenkeel listen'; \
    SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings \
    WHERE name = 'idle_session_timeout'";

/// Shared connection of a hub. On drop, the sessions that listen are notified that it is lost.
struct SharedConnection {
    hub: Arc<ListenHub>,
    service: Arc<Service>,
    pool_handle: Arc<PoolHandle>,
    generation: u64,
    /// True once the server has executed the first statements.
    is_set_up: bool,
    /// True while the server executes a statement.
    is_busy: bool,
    has_failed: bool,
}

/// Opens the shared connection with this number on the worker.
pub(super) fn open(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    hub: &Arc<ListenHub>,
    pool_handle: &Arc<PoolHandle>,
    generation: u64,
) {
    let mut shared = SharedConnection {
        hub: Arc::clone(hub),
        service: Arc::clone(service),
        pool_handle: Arc::clone(pool_handle),
        generation,
        is_set_up: false,
        is_busy: false,
        has_failed: false,
    };
    let worker_of_task = Rc::clone(worker);
    worker.spawn(async move {
        if let Err(why) = shared.run(&worker_of_task).await {
            info!(
                service = &*shared.service.name,
                server = &*shared.pool_handle.server.name,
                database = &*shared.pool_handle.pool_user.database,
                "the server connection that listens for clients has ended: {why}"
            );
        }
    });
}

impl SharedConnection {
    /// Runs the connection until no session needs it. The error is the reason for its loss.
    async fn run(&mut self, worker: &Rc<Worker>) -> Result<(), String> {
        let opened = server_login::open(worker, &self.service, &self.pool_handle).await;
        let mut connection = opened.map_err(|error| error.message.to_string())?;
        self.execute(worker, &mut connection, SETUP).await?;
        let mut bytes = Vec::new();
        while self.is_needed()? {
            let waiting =
                poll_fn(|context| self.poll(worker, &mut connection, &mut bytes, context));
            match timers::timeout(CHECK_INTERVAL, waiting).await {
                Ok(Ok(Some(text))) => self.execute(worker, &mut connection, &text).await?,
                Ok(Ok(None)) => {
                    self.read_messages(&mut bytes)?;
                    timers::yield_now().await;
                }
                Ok(Err(why)) => return Err(why),
                Err(_) => {
                    if self.hub.close_unused(self.generation) {
                        break;
                    }
                }
            }
        }
        connection.disconnect("no client listens");
        Ok(())
    }

    /// Returns whether it is still the shared connection.
    fn is_needed(&self) -> Result<bool, String> {
        let view = self.service.snapshot();
        let id = self.pool_handle.server.id;
        let primary = view.database().and_then(|database| database.primary);
        let primary = primary.and_then(|index| view.servers.get(index));
        if !view.lists(id) || primary.is_some_and(|primary| primary.id != id) {
            return Err("the server is no longer the primary".to_owned());
        }
        Ok(self.hub.is_current(self.generation))
    }

    async fn execute(
        &mut self,
        worker: &Rc<Worker>,
        connection: &mut ServerConnection,
        text: &[u8],
    ) -> Result<(), String> {
        let mut out = Vec::new();
        build::query(&mut out, text);
        (self.is_busy, self.has_failed) = (true, false);
        let sent = connection.core.stream.send(worker, &out).await;
        sent.map_err(|error| error.to_string())
    }

    /// Polls for bytes of the server, or for a statement that it is to execute.
    fn poll(
        &self,
        worker: &Rc<Worker>,
        connection: &mut ServerConnection,
        bytes: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Vec<u8>>, String>> {
        match connection.core.stream.poll_chunk(worker, context) {
            Poll::Ready(Ok(Some(chunk))) => {
                bytes.extend_from_slice(chunk.bytes());
                return Poll::Ready(Ok(None));
            }
            Poll::Ready(Ok(None)) => return Poll::Ready(Err("closed by the server".to_owned())),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error.to_string())),
            Poll::Pending => {}
        }
        if self.is_busy {
            return Poll::Pending;
        }
        match self.hub.poll_step(self.generation, context) {
            Poll::Ready(NextStep::Execute(text)) => Poll::Ready(Ok(Some(text))),
            // The loop finds out.
            Poll::Ready(NextStep::Stop) => Poll::Ready(Ok(None)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Processes the whole messages, and removes them.
    fn read_messages(&mut self, bytes: &mut Vec<u8>) -> Result<(), String> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let (frame, length) = match frame::frame(rest, MESSAGE_LENGTH_MAX) {
                Parsed::Frame(frame, length) => (frame, length),
                Parsed::Incomplete { .. } => break,
                Parsed::Invalid(fault) => return Err(fault.to_string()),
            };
            let message = backend::message(frame).map_err(|fault| fault.to_string())?;
            self.read_message(&message, rest.get(..length).unwrap_or_default())?;
            at += length;
        }
        bytes.drain(..at);
        Ok(())
    }

    fn read_message(&mut self, message: &Message<'_>, bytes: &[u8]) -> Result<(), String> {
        match message {
            Message::Notification { channel, .. } => {
                self.hub.notify(self.generation, channel, bytes);
            }
            Message::Error(report) => {
                let text = String::from_utf8_lossy(report.text());
                if report.is_fatal() || !self.is_set_up {
                    return Err(text.into_owned());
                }
                info!(
                    service = &*self.service.name,
                    server = &*self.pool_handle.server.name,
                    database = &*self.pool_handle.pool_user.database,
                    "the client listens on a server connection of its own: {text}"
                );
                self.has_failed = true;
            }
            Message::ReadyForQuery(_) => {
                if std::mem::replace(&mut self.is_set_up, true) {
                    self.hub.executed(self.generation, !self.has_failed);
                }
                self.is_busy = false;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        self.hub.lost(self.generation);
    }
}

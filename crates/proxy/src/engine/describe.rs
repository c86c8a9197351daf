//! What an operator may know of the sessions and server connections that live now: asked of the
//! workers, each of which tells its own.

use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_policy::pins::Pins;

use super::live::Live;
use super::worker::Worker;
use super::{Engine, Order};
use crate::clock;
use crate::session::postgres::card::Card;
pub use crate::session::postgres::card::Doing;

/// A client of a service that lends server connections.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// Names it as long as the process lives.
    pub id: u64,
    /// As it calls itself.
    pub user: String,
    /// The database it asked for.
    pub database: String,
    /// None: it came over a Unix socket.
    pub peer: Option<SocketAddr>,
    /// What it does.
    pub doing: Doing,
    /// How long it has been there, milliseconds.
    pub age_ms: u64,
    /// How long it has done that, milliseconds.
    pub doing_for_ms: u64,
    /// The server whose connection it has.
    pub server: Option<Arc<str>>,
    /// That server's process, as the server numbers them.
    pub server_process: Option<u32>,
    /// What binds it to that connection.
    pub pins: Pins,
    /// Bytes from it.
    pub from_client: u64,
    /// Bytes to it.
    pub to_client: u64,
}

/// A connection to a server that nobody uses now.
#[derive(Debug, Clone)]
pub struct IdleInfo {
    /// As its user is called by clients.
    pub user: String,
    /// Its database.
    pub database: String,
    /// Where it goes.
    pub server: Arc<str>,
    /// The process there, as the server numbers them.
    pub process: Option<u32>,
    /// How long it has been open, milliseconds.
    pub age_ms: u64,
}

/// What one worker has of a service.
#[derive(Debug, Clone, Default)]
pub struct Described {
    /// Its clients, those that are still logging in not among them.
    pub sessions: Vec<SessionInfo>,
    /// Its idle server connections.
    pub idle: Vec<IdleInfo>,
}

impl Engine {
    /// Asks every worker what it has of a service; each answers once, unless it has ended.
    pub fn describe(&self, service_id: u64) -> flume::Receiver<Described> {
        let (reply, answers) = flume::unbounded();
        for orders in &self.shared.orders {
            let reply = reply.clone();
            let _ = orders.send(Order::Describe { service_id, reply });
        }
        answers
    }
}

/// A worker's answer.
pub(super) fn described(worker: &Worker, service_id: u64) -> Described {
    let mut described = Described::default();
    worker.each_session(|live| {
        if let Some(card) = live.card().filter(|_| live.service.id == service_id) {
            described.sessions.push(session(live, &card));
        }
    });
    if let Some(lending) = worker.lending_of(service_id) {
        lending.describe_idle(&mut described.idle);
    }
    described
}

fn session(live: &Live, card: &Card) -> SessionInfo {
    let now_ms = clock::now_ms();
    let target = card.target();
    let age_ms = now_ms.saturating_sub(card.since_ms);
    // Its stamp is the sweeper's, and may be older than the session.
    let doing_for_ms = now_ms.saturating_sub(card.doing_since_ms()).min(age_ms);
    let key = target
        .as_ref()
        .and_then(|target| target.key.borrow().clone());
    SessionInfo {
        id: card.id,
        user: card.account.who.user.clone(),
        database: card.account.who.database.clone(),
        peer: card.peer,
        doing: card.doing(),
        age_ms,
        doing_for_ms,
        server_process: key.map(|(process, _)| process),
        server: target.map(|target| Arc::clone(&target.server.name)),
        pins: card.pins(),
        from_client: live.from_client.get(),
        to_client: live.to_client.get(),
    }
}

/// Counts, twice a second, what a worker's clients do and what binds them.
pub(super) fn take_census(worker: &Worker) {
    worker.each_lending(|lending| lending.begin_census());
    worker.each_session(|live| {
        let Some(card) = live.card() else { return };
        if let Some(lending) = worker.lending_of(live.service.id) {
            lending.count(card.doing(), card.pins());
        }
    });
    worker.each_lending(|lending| lending.publish_census());
}

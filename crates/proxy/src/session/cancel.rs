//! Ends what a session does, or waits for: its client wants it no more, its time is over, or
//! another client of the same user says so.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::card::Card;
use super::{mysql, postgres};
use crate::cancel::Claim;
use crate::engine::Order;
use crate::engine::worker::Worker;
use crate::record::{CutReason, Ending};
use crate::service::Service;
use crate::service::database::Own;

/// A server that has not carried out a cancel request within this does not listen.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// What a client wants of another one.
#[derive(Debug, Clone)]
pub(crate) struct Kill {
    /// Whom it means: the lower half of a session's id.
    pub(crate) id: u64,
    /// Who wants it.
    pub(crate) user: Arc<str>,
    /// The session goes on.
    pub(crate) only_query: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Killed {
    Done,
    /// The session is another user's.
    NotYours,
    /// There is no such session.
    Nobody,
}

/// On the worker that may have the session whose key somebody has shown.
pub(crate) fn carry_out(
    worker: &Rc<Worker>,
    claim: Claim,
    card: &Rc<Card>,
    service: &Arc<Service>,
) {
    if card.secret.is_some_and(|secret| claim.fits(secret)) {
        cancel(worker, card, service);
    }
}

/// Cancels what a session does, or what it waits for.
pub(crate) fn cancel(worker: &Rc<Worker>, card: &Rc<Card>, service: &Arc<Service>) {
    card.cancel();
    let Some(target) = card.target() else {
        return;
    };
    target.begin();
    let (home, service) = (Rc::clone(worker), Arc::clone(service));
    worker.spawn(async move {
        let sending = async {
            let view = service.view_owned();
            match service.database.as_ref().map(|shared| &shared.own) {
                Some(Own::Postgres(_)) => postgres::cancel::send(&home, &view, &target).await,
                Some(Own::MySql(_)) => return mysql::cancel::send(&home, &service, &target).await,
                None => {}
            }
            true
        };
        let is_over = compio::time::timeout(LIMIT, sending).await;
        // One that may still come would hit the next client: the connection is not lent again.
        if is_over.unwrap_or(false) {
            target.end();
        }
    });
}

/// A client wants another one's query, or all of it, ended.
pub(crate) async fn kill(worker: &Worker, service_id: u64, wanted: Kill) -> Killed {
    let (reply, answers) = flume::unbounded();
    for orders in &worker.shared.orders {
        // A worker that is gone has no sessions.
        let _ = orders.send(Order::KillFor {
            service_id,
            wanted: wanted.clone(),
            reply: reply.clone(),
        });
    }
    drop(reply);
    answers.recv_async().await.unwrap_or(Killed::Nobody)
}

/// On a worker that may have the session; it replies only if it has.
pub(crate) fn kill_here(
    worker: &Rc<Worker>,
    service_id: u64,
    wanted: &Kill,
    reply: &flume::Sender<Killed>,
) {
    worker.each_session(|live| {
        let number = |card: &Card| card.id & u64::from(u32::MAX);
        let is_meant = |card: &Rc<Card>| number(card) == wanted.id;
        let card = live.card().filter(is_meant);
        let Some(card) = card.filter(|_| live.service.id == service_id) else {
            return;
        };
        let is_own = card.user == wanted.user;
        if is_own {
            cancel(worker, &card, &live.service);
        }
        if is_own && !wanted.only_query {
            live.cut(Ending::Cut(CutReason::Command));
        }
        // Who asked may have gone.
        let _ = reply.send(if is_own {
            Killed::Done
        } else {
            Killed::NotYours
        });
    });
}

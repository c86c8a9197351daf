//! Ends what a session does, or waits for: its client wants it no more, its time is over, or
//! another client of the same user says so.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::handle::SessionHandle;
use super::{mysql, postgres};
use crate::cancel::{CancelClaim, Keyring};
use crate::engine::live_session::LiveSession;
use crate::engine::worker::Worker;
use crate::engine::{EngineShared, WorkerCommand};
use crate::record::{CutReason, TerminationReason};
use crate::service::Service;
use crate::service::database::ProtocolService;

/// A server that has not carried out a cancel request within this does not listen.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// What a client wants of another one.
#[derive(Debug, Clone)]
pub(crate) struct KillRequest {
    /// Whom it means: the lower half of a session's id.
    pub(crate) id: u64,
    /// Who wants it.
    pub(crate) user: Arc<str>,
    /// The session goes on.
    pub(crate) only_query: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillOutcome {
    Done,
    /// The session is another user's.
    NotYours,
    /// There is no such session.
    Nobody,
}

/// To the worker that may have the session whose key somebody has shown.
pub(crate) fn pass_to_worker(shared: &EngineShared, claim: CancelClaim) {
    if let Some(orders) = shared.orders.get(usize::from(claim.place().worker)) {
        // A worker that is gone has no sessions.
        let _ = orders.send(WorkerCommand::Cancel(claim));
    }
}

/// On the worker that may have the session whose key somebody has shown.
pub(crate) fn carry_out(
    worker: &Rc<Worker>,
    claim: CancelClaim,
    card: &Rc<SessionHandle>,
    service: &Arc<Service>,
) {
    if card.key.as_ref().is_some_and(|key| claim.fits(key)) {
        cancel(worker, card, service);
    }
}

/// Cancels what a session does, or what it waits for.
pub(crate) fn cancel(worker: &Rc<Worker>, card: &Rc<SessionHandle>, service: &Arc<Service>) {
    card.cancel();
    let Some(target) = card.target() else {
        return;
    };
    target.begin();
    let (home, service) = (Rc::clone(worker), Arc::clone(service));
    worker.spawn(async move {
        let sending = async {
            match service.database.as_ref().map(|shared| &shared.own) {
                Some(ProtocolService::Postgres(_)) => {
                    postgres::cancel::send(&home, &service, &target).await
                }
                Some(ProtocolService::MySql(_)) => {
                    return mysql::cancel::send(&home, &service, &target).await;
                }
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
pub(crate) async fn kill(worker: &Worker, service_id: u64, wanted: KillRequest) -> KillOutcome {
    let (reply, answers) = flume::unbounded();
    for orders in &worker.shared.orders {
        // A worker that is gone has no sessions.
        let _ = orders.send(WorkerCommand::KillSession {
            service_id,
            wanted: wanted.clone(),
            reply: reply.clone(),
        });
    }
    drop(reply);
    answers.recv_async().await.unwrap_or(KillOutcome::Nobody)
}

/// Which process this is, of those that have taken over from one another.
pub(crate) fn generation(worker: &Worker) -> u32 {
    let keyring = worker.shared.keyring.get();
    keyring.map_or(0, Keyring::generation)
}

/// The same to the processes that this one has taken over from, whose clients have numbers of
/// theirs. True: one of them takes it; what comes of it, it does not say.
pub(crate) fn forward_kill(worker: &Worker, service: &Service, wanted: &KillRequest) -> bool {
    let Ok(number) = u32::try_from(wanted.id) else {
        return false;
    };
    if mysql::id::is_of(number, generation(worker)) {
        return false;
    }
    let former = worker.shared.former.load();
    let words = ForwardedKill::write(&service.name, wanted);
    former.as_ref().is_some_and(|pass| pass(number, words))
}

/// A KILL that has come from a process which has taken over from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForwardedKill {
    number: u32,
    only_query: bool,
    whose: Whose,
}

/// A service and a user of it, however long their names are.
type Whose = [u8; 32];

/// No secret of a cancel request is as long.
const PASSED_LENGTH: usize = 2 + size_of::<Whose>();
const PASSED_MARK: u8 = b'K';

impl ForwardedKill {
    /// In the place of a cancel request's secret.
    fn write(service: &str, wanted: &KillRequest) -> Vec<u8> {
        let mut words = vec![PASSED_MARK, u8::from(wanted.only_query)];
        words.extend(whose(service, &wanted.user));
        words
    }

    /// None: it is a cancel request.
    pub(crate) fn read(number: u32, words: &[u8]) -> Option<Self> {
        let words: &[u8; PASSED_LENGTH] = words.try_into().ok()?;
        let [PASSED_MARK, only_query, whose @ ..] = words else {
            return None;
        };
        Some(Self {
            number,
            only_query: *only_query != 0,
            whose: *whose,
        })
    }
}

fn whose(service: &str, user: &str) -> Whose {
    let mut hash = Sha256::new();
    // No name of a service has a zero in it.
    hash.update([service.as_bytes(), b"\0", user.as_bytes()].concat());
    hash.finalize().into()
}

/// On a worker that may have the session.
pub(crate) fn kill_passed(worker: &Rc<Worker>, passed: &ForwardedKill) {
    worker.each_session(|live| {
        let is_meant = |card: &Rc<SessionHandle>| {
            number(card) == u64::from(passed.number)
                && whose(&live.service.name, &card.user) == passed.whose
        };
        if let Some(card) = live.card().filter(is_meant) {
            end(worker, live, &card, passed.only_query);
        }
    });
}

/// On a worker that may have the session; it replies only if it has.
pub(crate) fn kill_here(
    worker: &Rc<Worker>,
    service_id: u64,
    wanted: &KillRequest,
    reply: &flume::Sender<KillOutcome>,
) {
    worker.each_session(|live| {
        let is_meant = |card: &Rc<SessionHandle>| number(card) == wanted.id;
        let card = live.card().filter(is_meant);
        let Some(card) = card.filter(|_| live.service.id == service_id) else {
            return;
        };
        let is_own = card.user == wanted.user;
        if is_own {
            end(worker, live, &card, wanted.only_query);
        }
        // Who asked may have gone.
        let _ = reply.send(if is_own {
            KillOutcome::Done
        } else {
            KillOutcome::NotYours
        });
    });
}

/// As clients know it.
fn number(card: &SessionHandle) -> u64 {
    card.id & u64::from(u32::MAX)
}

fn end(worker: &Rc<Worker>, live: &LiveSession, card: &Rc<SessionHandle>, only_query: bool) {
    cancel(worker, card, &live.service);
    if !only_query {
        live.cut(TerminationReason::Cut(CutReason::Command));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(user: &str) -> KillRequest {
        KillRequest {
            id: 7,
            user: user.into(),
            only_query: true,
        }
    }

    #[test]
    fn a_kill_arrives_as_it_was_passed_on_and_is_no_cancel_request() {
        let words = ForwardedKill::write("shop", &wanted("ann"));
        let passed = ForwardedKill::read(7, &words).unwrap();
        assert_eq!((passed.number, passed.only_query), (7, true));
        assert_eq!(passed.whose, whose("shop", "ann"));
        for (service, user) in [("shop", "bob"), ("sho", "pann"), ("other", "ann")] {
            assert_ne!(passed.whose, whose(service, user));
        }
        // Secrets of cancel requests, also such as were passed on.
        for length in [4, 5, 32, 33] {
            assert_eq!(ForwardedKill::read(7, &words[..length]), None);
        }
    }
}

//! Cancels the work or the wait of a session: on a cancel request, after a timeout, or after a
//! `KILL` by another session of the same user.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::handle::{Login, SessionEvent, SessionHandle};
use super::mysql;
use crate::cancel::{CancelClaim, Keyring, SessionOwner};
use crate::record::{CutReason, TerminationReason};
use crate::service::Service;
use crate::shared::DataPlaneShared;
use crate::worker::Worker;

/// Time within which a server must have processed a cancel request.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// Request of one client to end the query or the session of another.
#[derive(Debug, Clone)]
pub(crate) struct KillRequest {
    /// Lower half of the id of the session to end.
    pub(crate) id: u64,
    /// User that requests it.
    pub(crate) user: Arc<str>,
    /// True if only the query ends and the session continues.
    pub(crate) only_query: bool,
}

/// Result of a [`KillRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillOutcome {
    Done,
    /// Session belongs to another user.
    NotYours,
    /// No such session exists.
    Nobody,
}

/// Passes a cancel request to the worker that may have the session with this key, and cancels it
/// there.
pub(crate) fn pass_to_worker(shared: &DataPlaneShared, claim: CancelClaim) {
    pass_signal(shared, claim, true);
}

/// Result of a signal to the session with a process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignalOutcome {
    Sent,
    /// No session of this process has the id, or it belongs to another user.
    Nobody,
}

/// Ends the query (`only_query`) or the session with this process id, if it is the same user's.
pub(crate) fn signal(
    worker: &Worker,
    (service, user): (u64, &Arc<str>),
    process: u32,
    only_query: bool,
) -> SignalOutcome {
    let user = Arc::clone(user);
    let owner = SessionOwner { service, user };
    let keyring = worker.shared.keyring.get();
    match keyring.and_then(|keyring| keyring.session_of(process, &owner)) {
        Some(claim) => {
            pass_signal(&worker.shared, claim, only_query);
            SignalOutcome::Sent
        }
        None => SignalOutcome::Nobody,
    }
}

fn pass_signal(shared: &DataPlaneShared, claim: CancelClaim, only_query: bool) {
    let place = claim.place();
    shared
        .workers
        .run(usize::from(place.worker), move |worker| {
            let session = worker.session(place.slot as usize);
            let is_meant = |login: &Login| login.key.as_ref().is_some_and(|key| claim.fits(key));
            if let Some(session) = session.filter(|session| session.is_login(is_meant)) {
                end(worker, &session, only_query);
            }
        });
}

/// Cancels the current work of a session, or its wait.
pub(crate) fn cancel(worker: &Rc<Worker>, session: &SessionHandle) {
    session.notify(SessionEvent::Cancelled);
    let Some(target) = session.target() else {
        return;
    };
    target.begin();
    let service = Arc::clone(&session.service);
    worker.spawn(target.cancel(Rc::clone(worker), service, LIMIT));
}

/// Ends the query or the session of another client. Returns the result.
pub(crate) async fn kill(worker: &Worker, service_id: u64, wanted: KillRequest) -> KillOutcome {
    let (reply, answers) = flume::unbounded();
    worker
        .shared
        .workers
        .run_on_all(move |worker| kill_here(worker, service_id, &wanted, &reply));
    answers.recv_async().await.unwrap_or(KillOutcome::Nobody)
}

/// Returns the generation number of this process in a sequence of upgrades.
pub(crate) fn generation(worker: &Worker) -> u32 {
    let keyring = worker.shared.keyring.get();
    keyring.map_or(0, Keyring::generation)
}

/// Forwards a `KILL` to the predecessor processes, whose sessions have numbers of their own.
/// Returns whether one of them accepts it; its result is not reported.
pub(crate) fn forward_kill(worker: &Worker, service: &Service, wanted: &KillRequest) -> bool {
    let Ok(number) = u32::try_from(wanted.id) else {
        return false;
    };
    if mysql::id::is_of(number, generation(worker)) {
        return false;
    }
    let former = worker.shared.predecessor.load();
    let words = ForwardedKill::write(&service.name, wanted);
    former.as_ref().is_some_and(|pass| pass(number, words))
}

/// `KILL` request that was forwarded by a successor process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForwardedKill {
    number: u32,
    only_query: bool,
    owner: Owner,
}

/// Hash of a service name and a user name, of fixed length.
type Owner = [u8; 32];

/// Length of a forwarded `KILL`. No secret of a cancel request has this length.
const PASSED_LENGTH: usize = 2 + size_of::<Owner>();
const PASSED_MARK: u8 = b'K';

impl ForwardedKill {
    /// Encodes the request for the field that holds a cancel request's secret.
    fn write(service: &str, wanted: &KillRequest) -> Vec<u8> {
        let mut words = vec![PASSED_MARK, u8::from(wanted.only_query)];
        words.extend(owner(service, &wanted.user));
        words
    }

    /// Decodes a forwarded `KILL`. Returns `None` if it is a cancel request.
    pub(crate) fn read(number: u32, words: &[u8]) -> Option<Self> {
        let words: &[u8; PASSED_LENGTH] = words.try_into().ok()?;
        let [PASSED_MARK, only_query, owner @ ..] = words else {
            return None;
        };
        Some(Self {
            number,
            only_query: *only_query != 0,
            owner: *owner,
        })
    }
}

fn owner(service: &str, user: &str) -> Owner {
    let mut hash = Sha256::new();
    // Service names contain no zero byte.
    hash.update([service.as_bytes(), b"\0", user.as_bytes()].concat());
    hash.finalize().into()
}

/// Ends the session or query named by a forwarded `KILL`, if it is on this worker.
pub(crate) fn kill_passed(worker: &Rc<Worker>, passed: &ForwardedKill) {
    worker.each_session(|session| {
        let is_meant = |login: &Login| {
            number(login) == u64::from(passed.number)
                && owner(&session.service.name, &login.user) == passed.owner
        };
        if session.is_login(is_meant) {
            end(worker, session, passed.only_query);
        }
    });
}

/// Ends the session or query if it is on this worker, and replies only in that case.
fn kill_here(
    worker: &Rc<Worker>,
    service_id: u64,
    wanted: &KillRequest,
    reply: &flume::Sender<KillOutcome>,
) {
    worker.each_session(|session| {
        if session.service.id != service_id || !session.is_login(|login| number(login) == wanted.id)
        {
            return;
        }
        let is_owner = session.is_login(|login| login.user == wanted.user);
        if is_owner {
            end(worker, session, wanted.only_query);
        }
        // The requesting session may have ended.
        let _ = reply.send(if is_owner {
            KillOutcome::Done
        } else {
            KillOutcome::NotYours
        });
    });
}

/// Returns the session number that clients see.
fn number(login: &Login) -> u64 {
    login.id & u64::from(u32::MAX)
}

fn end(worker: &Rc<Worker>, session: &SessionHandle, only_query: bool) {
    cancel(worker, session);
    if !only_query {
        session.cut(TerminationReason::Cut(CutReason::Command));
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
        assert_eq!(passed.owner, owner("shop", "ann"));
        for (service, user) in [("shop", "bob"), ("sho", "pann"), ("other", "ann")] {
            assert_ne!(passed.owner, owner(service, user));
        }
        // Lengths of secrets in cancel requests, forwarded ones included.
        for length in [4, 5, 32, 33] {
            assert_eq!(ForwardedKill::read(7, &words[..length]), None);
        }
    }
}

//! Runs the orders of all names while this process owns the storage, and follows another owner
//! otherwise.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel_config::plan::AcmeChallenge;
use evenkeel_proxy::http::ChallengeAnswers;
use evenkeel_tls::TlsIdentity;
use tokio::sync::{mpsc, oneshot};

use super::challenge::{self, Answer, Way};
use super::order::{self, OrderError};
use super::revocation::{Revocation, revoke};
use super::schedule::{Attempts, renew_s};
use super::storage::{Ownership, Storage};
use super::{Attempt, Event, Outlet, Settings};
use crate::status::Reply;

/// Interval at which a process that is not the owner reads the storage.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// Time that other processes get to read the answer to a challenge.
const SHARE_TIME: Duration = Duration::from_millis(2_500);

/// Longest wait of the owner: the clock of the machine may be set.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Interval between attempts to use a storage that cannot be used.
const STORAGE_RETRY: Duration = Duration::from_secs(10);

/// Reason of an attempt whose end the process did not see.
const INTERRUPTED: &str = "the process ended during the order";

/// Running thread. Dropping it ends the thread and its ownership.
#[derive(Debug)]
pub(crate) struct Runner {
    _stop: oneshot::Sender<()>,
    revocations: mpsc::UnboundedSender<Revocation>,
}

impl Runner {
    /// Revokes a certificate after the order in progress. The requester gets the reply.
    pub(crate) fn revoke(&self, revocation: Revocation) {
        // A thread that has ended drops the request, and with it the channel of its reply.
        let _ = self.revocations.send(revocation);
    }
}

/// Starts the thread.
pub(crate) fn start(settings: Settings, outlet: Outlet) -> io::Result<Runner> {
    let (stop, stopped) = oneshot::channel::<()>();
    let (revocations, requests) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let storage = Storage::new(&settings.plan);
    let run = async move {
        let mut work = Work {
            settings,
            storage,
            outlet,
            seen: HashMap::new(),
            revocations: requests,
        };
        tokio::select! {
            () = work.run() => {}
            _ = stopped => {}
        }
    };
    let thread = thread::Builder::new().name("acme".to_owned());
    thread.spawn(move || {
        runtime.block_on(run);
        // A name lookup that hangs must not keep the thread.
        runtime.shutdown_background();
    })?;
    Ok(Runner {
        _stop: stop,
        revocations,
    })
}

struct Work {
    settings: Settings,
    storage: Storage,
    outlet: Outlet,
    /// Times at which the certificates that the control plane knows were stored.
    seen: HashMap<String, Option<SystemTime>>,
    revocations: mpsc::UnboundedReceiver<Revocation>,
}

impl Work {
    async fn run(&mut self) {
        let mut reported = String::new();
        loop {
            let Err(error) = self.work().await;
            let why = format!("{}: {error}", self.storage.path().display());
            if why != reported {
                self.outlet.report(Event::StorageFailed(why.clone()));
                reported = why;
            }
            self.refuse_revocations("the storage of [acme] cannot be used, see the log");
            tokio::time::sleep(STORAGE_RETRY).await;
        }
    }

    /// Works until the storage cannot be used.
    async fn work(&mut self) -> Result<std::convert::Infallible, io::Error> {
        self.storage.prepare()?;
        for name in self.settings.names.clone() {
            self.adopt_certificate(&name)?;
            self.report_attempt(&name, &self.storage.attempts(&name)?)?;
        }
        let mut is_reported = false;
        let ownership = loop {
            if let Some(ownership) = self.storage.own()? {
                break ownership;
            }
            if !std::mem::replace(&mut is_reported, true) {
                self.outlet.report(Event::Owner(false));
            }
            self.follow()?;
            self.refuse_revocations(
                "another process orders the certificates of [acme]: run the command there",
            );
            tokio::time::sleep(FOLLOW_INTERVAL).await;
        };
        self.outlet.report(Event::Owner(true));
        self.order_all(&ownership).await
    }

    /// Adopts what the owner has stored.
    fn follow(&mut self) -> io::Result<()> {
        self.set_answers(&self.storage.answers()?)?;
        for name in self.settings.names.clone() {
            self.adopt_certificate(&name)?;
        }
        Ok(())
    }

    /// Passes a certificate to the control plane, unless it has it already.
    fn adopt_certificate(&mut self, name: &str) -> io::Result<()> {
        let time = self.storage.certificate_time(name);
        if self.seen.get(name) == Some(&time) {
            return Ok(());
        }
        if let Some(identity) = self.storage.certificate(name)? {
            let event = Event::Certificate(name.to_owned(), identity);
            self.outlet.report(event);
        }
        self.seen.insert(name.to_owned(), time);
        Ok(())
    }

    fn set_answers(&self, answers: &BTreeMap<String, Answer>) -> io::Result<()> {
        let answers = challenge::for_workers(answers).map_err(io::Error::other)?;
        self.outlet.challenges.set(answers);
        Ok(())
    }

    /// Orders certificates as they become due, one after the other.
    async fn order_all(
        &mut self,
        _ownership: &Ownership,
    ) -> Result<std::convert::Infallible, io::Error> {
        // Those of an owner that has ended.
        for name in self.storage.answers()?.keys() {
            self.storage.remove_answer(name)?;
        }
        self.outlet.challenges.set(ChallengeAnswers::default());
        loop {
            let mut next: Option<(u64, String)> = None;
            for name in &self.settings.names {
                let due_s = self.due_s(name, &self.storage.attempts(name)?)?;
                if next.as_ref().is_none_or(|(other_s, _)| due_s < *other_s) {
                    next = Some((due_s, name.clone()));
                }
            }
            let now_s = now_s();
            match next {
                Some((due_s, name)) if due_s <= now_s => self.attempt(&name, now_s).await?,
                Some((due_s, _)) => {
                    let wait = Duration::from_secs(due_s - now_s);
                    self.wait(wait.min(WAIT_MAX)).await?;
                }
                None => self.wait(WAIT_MAX).await?,
            }
        }
    }

    /// Waits for this time, or until a certificate was revoked.
    async fn wait(&mut self, time: Duration) -> io::Result<()> {
        let request = tokio::time::timeout(time, self.revocations.recv()).await;
        match request {
            // The requester has the reply that nothing is revoked.
            Ok(Some(revocation)) if revocation.answer.is_closed() => Ok(()),
            Ok(Some(revocation)) => self.revoke(revocation).await,
            Ok(None) | Err(_) => Ok(()),
        }
    }

    async fn revoke(&self, revocation: Revocation) -> io::Result<()> {
        let revoked = revoke(&self.settings, &self.storage, &revocation).await;
        let reply = match revoked {
            Ok(what) => {
                self.outlet.report(Event::Revoked(what.clone()));
                let attempts = self.storage.attempts(&revocation.name)?;
                self.report_attempt(&revocation.name, &attempts)?;
                Reply::done(what)
            }
            Err(why) => Reply::failed(why),
        };
        // The requester may be gone.
        let _ = revocation.answer.send(reply);
        Ok(())
    }

    /// Refuses the requests of a process that orders nothing.
    fn refuse_revocations(&mut self, why: &str) {
        while let Ok(revocation) = self.revocations.try_recv() {
            let _ = revocation.answer.send(Reply::failed(why));
        }
    }

    /// Returns when the certificate of a name is to be ordered.
    fn due_s(&self, name: &str, attempts: &Attempts) -> io::Result<u64> {
        let identity = self.storage.certificate(name)?;
        Ok(attempts.due_s(identity.as_ref().and_then(renewal_s)))
    }

    /// Orders the certificate of a name. The failure is stored before the order begins, so that a
    /// process that ends during each order does not repeat it at each start.
    async fn attempt(&mut self, name: &str, began_s: u64) -> io::Result<()> {
        let before = self.storage.attempts(name)?;
        let interrupted = before.failed(began_s, INTERRUPTED.to_owned());
        self.storage.set_attempts(name, &interrupted)?;
        let outcome = self.order(name, self.way(before.failures)).await;
        let now_s = now_s();
        self.storage.remove_answer(name)?;
        self.outlet.challenges.set(ChallengeAnswers::default());
        let after = match outcome {
            Ok(identity) => Attempts::succeeded(now_s, life_s(&identity)),
            Err(error) => before.failed(now_s, error.to_string()),
        };
        self.storage.set_attempts(name, &after)?;
        self.adopt_certificate(name)?;
        self.report_attempt(name, &after)
    }

    fn report_attempt(&self, name: &str, attempts: &Attempts) -> io::Result<()> {
        let attempt = Attempt {
            failures: attempts.failures,
            error: attempts.error.clone(),
            next_s: self.due_s(name, attempts)?,
        };
        self.outlet.report(Event::Attempt(name.to_owned(), attempt));
        Ok(())
    }

    async fn order(&self, name: &str, way: Way) -> Result<TlsIdentity, OrderError> {
        let account = order::account(&self.settings.plan, &self.storage).await?;
        let publish = async |answer| self.publish(name, answer).await;
        let pem = order::certificate(&account, name, way, publish).await?;
        let identity = TlsIdentity::from_pem("[acme]", pem.as_bytes(), pem.as_bytes())?;
        self.storage.set_certificate(name, &pem)?;
        Ok(identity)
    }

    /// Makes an answer known to all workers, and to the other processes.
    async fn publish(&self, name: &str, answer: Answer) -> Result<(), OrderError> {
        self.storage.set_answer(name, &answer)?;
        self.set_answers(&BTreeMap::from([(name.to_owned(), answer)]))?;
        tokio::time::sleep(SHARE_TIME).await;
        Ok(())
    }

    /// Returns the way by which a name is verified after this number of failures.
    fn way(&self, failures: u32) -> Way {
        let first = match self.settings.plan.challenge {
            AcmeChallenge::Http => return Way::Http,
            AcmeChallenge::TlsAlpn => return Way::TlsAlpn,
            AcmeChallenge::Auto if self.settings.is_tls_only => Way::TlsAlpn,
            AcmeChallenge::Auto => Way::Http,
        };
        match failures % 2 {
            0 => first,
            _ => first.other(),
        }
    }
}

/// Returns when a certificate is to be renewed, in seconds of Unix time.
fn renewal_s(identity: &TlsIdentity) -> Option<u64> {
    Some(renew_s(&identity.validity()?, &identity.sha256()))
}

/// Returns the lifetime of a certificate in seconds.
fn life_s(identity: &TlsIdentity) -> u64 {
    let validity = identity.validity();
    validity.map_or(0, |validity| {
        validity.end().saturating_sub(*validity.start())
    })
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

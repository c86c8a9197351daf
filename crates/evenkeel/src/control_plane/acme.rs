//! Adopts certificates that come by ACME, and reports their state.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use evenkeel_config::plan::{Listen, Plan, ServicePlan};
use evenkeel_proxy::http::{ChallengeAnswers, Challenges};
use evenkeel_tls::TlsIdentity;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::ControlPlane;
use super::clock::now_unix_ms;
use super::timeline::NewEvent;
use crate::acme::{self, Attempt, Event, Outlet, Revocation, Runner, Settings, Storage};
use crate::status::{AcmeStatus, CertificateStatus, EventKind, Reply, Severity};

/// Port of http-01 (RFC 8555 §8.3).
const HTTP_PORT: u16 = 80;

/// Port of tls-alpn-01 (RFC 8737 §3).
const TLS_PORT: u16 = 443;

/// Certificates that have come, by name.
pub(super) type Certificates = HashMap<String, TlsIdentity>;

/// State of certificates that come by ACME.
#[derive(Debug)]
pub(super) struct Acme {
    challenges: Arc<Challenges>,
    certificates: Certificates,
    attempts: BTreeMap<String, Attempt>,
    /// Secret of all processes with the storage. Empty without `[acme]`.
    secret: Zeroizing<Vec<u8>>,
    /// True if this process orders certificates, and no other one.
    is_owner: bool,
    running: Option<(Settings, Runner)>,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
}

impl Default for Acme {
    fn default() -> Self {
        Self {
            challenges: Arc::default(),
            certificates: HashMap::new(),
            attempts: BTreeMap::new(),
            secret: Zeroizing::default(),
            is_owner: false,
            running: None,
            events: mpsc::unbounded_channel().1,
        }
    }
}

impl Acme {
    /// Applies a plan: reads the certificates that are stored, and starts the orders. Orders under
    /// unchanged settings go on.
    pub(super) fn adopt(&mut self, plan: &Plan) {
        let settings = settings(plan);
        let running = self.running.as_ref();
        if running.map(|(settings, _)| settings) == settings.as_ref() {
            return;
        }
        self.stop();
        self.certificates.clear();
        self.attempts.clear();
        let Some(settings) = settings else { return };
        let storage = Storage::new(&settings.plan);
        match storage.secret() {
            Ok(secret) => self.secret = secret,
            Err(error) => tracing::error!("cannot use the storage of [acme]: {error}"),
        }
        for name in &settings.names {
            match storage.certificate(name) {
                Ok(None) => {}
                Ok(Some(identity)) => {
                    self.certificates.insert(name.clone(), identity);
                }
                Err(error) => tracing::error!("cannot read the certificate of {name}: {error}"),
            }
        }
        let (sender, events) = mpsc::unbounded_channel();
        self.events = events;
        let outlet = Outlet {
            challenges: Arc::clone(&self.challenges),
            events: sender,
        };
        match acme::start(settings.clone(), outlet) {
            Ok(runner) => self.running = Some((settings, runner)),
            Err(error) => tracing::error!("cannot start the orders of certificates: {error}"),
        }
    }

    /// Ends the orders of this process, so that another one may order.
    pub(super) fn stop(&mut self) {
        self.running = None;
        self.is_owner = false;
        self.events = mpsc::unbounded_channel().1;
        self.challenges.set(ChallengeAnswers::default());
    }

    /// Passes the request to revoke a certificate to the orders, which reply.
    pub(super) fn revoke(&self, revocation: Revocation) {
        match &self.running {
            Some((_, runner)) => runner.revoke(revocation),
            None => {
                let why = "no certificate comes by ACME: no service has names in `acme`";
                // The requester may be gone.
                let _ = revocation.answer.send(Reply::failed(why));
            }
        }
    }

    /// Returns the answers to challenges. `None`: no certificate comes by ACME.
    pub(super) fn challenges(&self) -> Option<Arc<Challenges>> {
        self.running.as_ref().map(|_| Arc::clone(&self.challenges))
    }

    /// Returns the certificates that have come.
    pub(super) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Returns a secret that all processes with the storage share. Empty without one.
    pub(super) fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// Returns the state of all names. `None`: no certificate comes by ACME.
    pub(super) fn status(&self) -> Option<AcmeStatus> {
        let (settings, _) = self.running.as_ref()?;
        let certificate = |name: &String| {
            let identity = self.certificates.get(name);
            let validity = identity.and_then(TlsIdentity::validity);
            let attempt = self.attempts.get(name).cloned().unwrap_or_default();
            CertificateStatus {
                name: name.clone(),
                expires_at_unix_ms: validity.map(|validity| validity.end() * 1_000),
                next_order_at_unix_ms: attempt.next_s * 1_000,
                failures: attempt.failures,
                error: attempt.error,
            }
        };
        Some(AcmeStatus {
            is_owner: self.is_owner,
            certificates: settings.names.iter().map(certificate).collect(),
        })
    }
}

impl ControlPlane {
    /// Adopts a report of the orders.
    pub(super) fn handle_acme(&mut self, event: Event) {
        match event {
            Event::Certificate(name, identity) => self.adopt_certificate(&name, identity),
            Event::Attempt(name, attempt) => {
                if let Some(error) = &attempt.error {
                    let severity = match self.acme.certificates.contains_key(&name) {
                        true => Severity::Warning,
                        false => Severity::Error,
                    };
                    let what = format!("no new certificate for {name}");
                    let event = NewEvent::new(EventKind::Problem, severity, what);
                    let wait_s = attempt.next_s.saturating_sub(now_unix_ms() / 1_000);
                    let cause = format!("{error}; the next attempt follows in {wait_s} s");
                    self.record_event(event.cause(cause));
                }
                self.acme.attempts.insert(name, attempt);
            }
            Event::Revoked(what) => {
                let what = format!("operator command: {what}");
                self.record_event(NewEvent::new(EventKind::Command, Severity::Info, what));
            }
            Event::Owner(is_owner) => {
                self.acme.is_owner = is_owner;
                match is_owner {
                    true => tracing::info!("this process orders the certificates of [acme]"),
                    false => tracing::info!(
                        "another process orders the certificates of [acme]: it holds the lock in \
                         the storage"
                    ),
                }
            }
            Event::StorageFailed(why) => {
                self.acme.is_owner = false;
                let what = "the storage of [acme] cannot be used";
                let event = NewEvent::new(EventKind::Problem, Severity::Error, what);
                self.record_event(event.cause(why));
            }
        }
    }

    /// Uses a certificate for new clients of all services that have its name.
    fn adopt_certificate(&mut self, name: &str, identity: TlsIdentity) {
        let known = self.acme.certificates.get(name);
        if known.is_some_and(|known| known.sha256() == identity.sha256()) {
            return;
        }
        let what = format!("new certificate for {name}");
        self.acme.certificates.insert(name.to_owned(), identity);
        for index in 0..self.services.len() {
            let service = &mut self.services[index];
            if service.plan.acme_names().iter().any(|one| one == name) {
                service.adopt_tls(self.acme.certificates(), &self.ticket_keys);
                self.publish(index);
            }
        }
        self.record_event(NewEvent::new(EventKind::Config, Severity::Info, what));
    }
}

/// Returns the settings of a plan. `None`: no service has names.
fn settings(plan: &Plan) -> Option<Settings> {
    let acme = plan.acme.as_ref()?;
    let mut names: Vec<String> = Vec::new();
    for name in plan.services.iter().flat_map(ServicePlan::acme_names) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let has = |port: u16| {
        let http = plan.services.iter().filter(|one| one.http().is_some());
        let mut listen = http.flat_map(|one| &one.listen);
        listen.any(|listen| match listen {
            Listen::Tcp(address) => address.port() == port,
            Listen::Any(other) => *other == port,
            Listen::Unix(_) => false,
        })
    };
    (!names.is_empty()).then(|| Settings {
        plan: acme.clone(),
        names,
        is_tls_only: has(TLS_PORT) && !has(HTTP_PORT),
    })
}

//! Orders and renews certificates by ACME (RFC 8555), on a thread of its own: its storage may be a
//! slow file system.

mod challenge;
mod client;
mod order;
mod revocation;
mod runner;
mod schedule;
mod storage;

use std::sync::Arc;

use evenkeel_config::plan::AcmePlan;
use evenkeel_proxy::http::Challenges;
use evenkeel_tls::TlsIdentity;

pub(crate) use self::revocation::Revocation;
pub(crate) use self::runner::{Runner, start};
pub(crate) use self::storage::Storage;

/// Settings of a runner, which ends when they change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) plan: AcmePlan,
    /// Names of all services, each once.
    pub(crate) names: Vec<String>,
    /// True if the authority can reach port 443 only: no HTTP service listens on port 80.
    pub(crate) is_tls_only: bool,
}

/// Report of the runner to the control plane.
#[derive(Debug)]
pub(crate) enum Event {
    /// A certificate has come, here or at the owner.
    Certificate(String, TlsIdentity),
    /// An attempt for this name has ended, or is due at another time.
    Attempt(String, Attempt),
    /// The certificate of this name was revoked, as described.
    Revoked(String),
    /// This process has become the owner of the storage, or another one is.
    Owner(bool),
    /// The storage cannot be used, for this reason.
    StorageFailed(String),
}

/// State of the orders for a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Failed attempts since the last certificate.
    pub(crate) failures: u32,
    /// Reason of the last failure.
    pub(crate) error: Option<String>,
    /// Unix time in seconds at which the next order is due.
    pub(crate) next_s: u64,
}

/// Connection of a runner to the rest of the process.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) events: tokio::sync::mpsc::UnboundedSender<Event>,
}

impl Outlet {
    fn report(&self, event: Event) {
        // The control plane that does not listen any more has stopped the runner, too.
        let _ = self.events.send(event);
    }
}

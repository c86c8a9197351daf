//! Classifies the reason why a server cannot be used.

use evenkeel_monitor::WatchError;
use evenkeel_policy::health::HealthState;

use super::ManagedServer;

/// Kind of the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control_plane) enum FaultKind {
    /// Only a change of the configuration, or at the server, ends the fault.
    Lasting,
    /// The server is down, and has been since this process began.
    NeverUp,
    /// The fault may end by itself, as a failover does.
    Passing,
}

impl ManagedServer {
    /// Returns whether the reason for an unknown role lasts until a change of the account or the
    /// server. An account that has read the role before has the privileges for it.
    pub(in crate::control_plane) fn lasts(&self, error: &WatchError) -> bool {
        match error {
            WatchError::Away(_) => false,
            WatchError::CannotTell(_) => !self.has_reported_role,
            WatchError::LoginRefused(_) | WatchError::NoDatabase(_) => true,
        }
    }

    /// Records why the server does not report its role. Returns `false` for a server that is down.
    /// `lasts`: only a change of a configuration helps.
    pub(in crate::control_plane) fn record_hidden_role(&mut self, why: &str, lasts: bool) -> bool {
        if self.health.state() == HealthState::Down {
            return false;
        }
        if self.role_problem.as_deref() != Some(why) {
            tracing::error!(server = %self.address, "cannot determine server role: {why}");
            self.role_problem = Some(why.to_owned());
            self.is_role_problem_lasting = lasts;
        }
        true
    }

    /// Queries the role again immediately, over a new connection.
    pub(in crate::control_plane) fn verify_role(&self) {
        if let Some(role_task) = &self.role_task {
            role_task.verify(true);
        }
    }

    /// Returns why the server cannot be used.
    pub(in crate::control_plane) fn fault(&self) -> Option<(FaultKind, String)> {
        if let Some(why) = &self.misconfigured {
            return Some((FaultKind::Lasting, why.clone()));
        }
        if self.health.state() == HealthState::Down {
            let kind = match self.has_been_up {
                true => FaultKind::Passing,
                false => FaultKind::NeverUp,
            };
            return Some((kind, self.health.reason().to_owned()));
        }
        let role_problem = self.role_problem.as_deref();
        match (self.health.monitor_problem(), self.is_role_problem_lasting) {
            (Some(why), _) => Some((FaultKind::Lasting, why.to_owned())),
            (None, true) => role_problem.map(|why| (FaultKind::Lasting, why.to_owned())),
            (None, false) => role_problem.map(|why| (FaultKind::Passing, why.to_owned())),
        }
    }
}

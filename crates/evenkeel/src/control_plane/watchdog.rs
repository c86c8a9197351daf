//! Sends the status text to the service manager, once a second.

use super::ControlPlane;
use crate::notify;

impl ControlPlane {
    pub(super) fn ping_watchdog(&self) {
        let text = if self.stop_by_ms.is_some() {
            format!(
                "shutting down: {} left",
                counted(self.sessions(), "session")
            )
        } else {
            let services = counted(self.services.len(), "service");
            let serving = self
                .servers
                .values()
                .filter(|server| server.takes_clients());
            let (serving, servers) = (serving.count(), self.servers.len());
            format!(
                "{services}; {serving} of {} accepting clients",
                counted(servers, "server")
            )
        };
        notify::ping_watchdog(&text);
    }
}

pub(super) fn counted(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

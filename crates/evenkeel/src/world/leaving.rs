//! Services and servers that left the configuration: their sessions may finish within a limit.

use std::sync::Arc;

use evenkeel_proxy::record::CutReason;
use evenkeel_proxy::{Server, Service, now_ms};

use super::World;

/// A service, or one server of a service, that new clients no longer see.
pub(super) struct Leaving {
    pub(super) service: Arc<Service>,
    /// `None`: the whole service leaves.
    pub(super) server: Option<Arc<Server>>,
    pub(super) since_ms: u64,
    until_ms: u64,
}

impl Leaving {
    pub(super) fn new(service: &Arc<Service>, server: Option<&Arc<Server>>, limit_ms: u64) -> Self {
        let since_ms = now_ms();
        Self {
            service: Arc::clone(service),
            server: server.map(Arc::clone),
            since_ms,
            until_ms: since_ms.saturating_add(limit_ms),
        }
    }

    pub(super) fn next_due_ms(&self) -> u64 {
        self.until_ms
    }

    fn is_empty(&self) -> bool {
        let on_server = self.server.as_ref().map(|server| server.load.active());
        self.service.active() == 0 || on_server == Some(0)
    }
}

impl World {
    /// Cuts what is left of drained servers and of what left the configuration, once the limit is over.
    pub(super) fn cut_what_overstayed(&mut self, now_ms: u64) {
        for state in self.servers.values_mut() {
            let Some(drain) = state.drain.as_mut() else {
                continue;
            };
            if now_ms >= drain.until_ms && !drain.cut {
                drain.cut = true;
                self.engine
                    .cut(None, Some(state.server.id), CutReason::DrainLimit);
            }
        }
        let engine = &self.engine;
        self.leaving.retain(|leaving| {
            let over = now_ms >= leaving.until_ms;
            if over {
                let server_id = leaving.server.as_ref().map(|server| server.id);
                engine.cut(Some(leaving.service.id), server_id, CutReason::Removed);
            }
            !over && !leaving.is_empty()
        });
    }
}

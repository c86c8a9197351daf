//! Holds the compiled routes of a TCP service, by the server name in the first message of TLS.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_policy::http::route::{RouteRequest, RouteTable};

use super::Service;

/// Routes of a TCP service, and the limit of what they wait for.
#[derive(Debug)]
pub struct TlsRoutes {
    /// Routes with their targets, in the order of the file. Their only conditions are hosts.
    pub table: RouteTable<TlsRouteTarget>,
    /// Time in which a client must send its ClientHello.
    pub hello_timeout: Duration,
}

/// Target of the clients of a route.
#[derive(Debug)]
pub enum TlsRouteTarget {
    /// The servers of the route's own service.
    Own,
    /// The servers of another service.
    Service(Weak<Service>),
}

impl TlsRoutes {
    /// Returns the target for a server name. `None`: no route matches.
    pub(crate) fn find(&self, server_name: &str) -> Option<&TlsRouteTarget> {
        let request = RouteRequest {
            host: server_name.as_bytes(),
            path: b"/",
            method: b"",
        };
        let index = self.table.find(&request, |_| false)?;
        Some(&self.table.routes()[index].target)
    }
}

impl TlsRouteTarget {
    /// Returns the service whose servers are used, `own` for the route's own. `None`: it was
    /// removed.
    pub(crate) fn service(&self, own: &Arc<Service>) -> Option<Arc<Service>> {
        match self {
            Self::Own => Some(Arc::clone(own)),
            Self::Service(service) => service.upgrade(),
        }
    }
}

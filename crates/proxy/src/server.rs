//! Holds a server for the data plane: its address, load and counters.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use evenkeel_policy::load::Load;

use crate::counters::ServerCounters;

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A server, shared by all services that list its address; lives as long as one of them does.
#[derive(Debug)]
pub struct Server {
    /// Unique in this process, never reused.
    pub id: u64,
    /// Address as written in the configuration.
    pub name: Arc<str>,
    /// Sessions and latency across all workers.
    pub load: Arc<Load>,
    /// Counters of the server.
    pub counters: ServerCounters,
    endpoints: ArcSwap<Vec<Endpoint>>,
    next_endpoint: AtomicUsize,
}

impl Server {
    /// Creates a server without endpoints (its name is not resolved): connects to it fail.
    pub fn new(id: u64, name: Arc<str>, load: Arc<Load>, workers: usize) -> Self {
        Self {
            id,
            name,
            load,
            counters: ServerCounters::new(workers),
            endpoints: ArcSwap::default(),
            next_endpoint: AtomicUsize::new(0),
        }
    }

    /// Replaces the addresses to which the server's name resolves.
    pub fn set_endpoints(&self, endpoints: Vec<Endpoint>) {
        self.endpoints.store(Arc::new(endpoints));
    }

    /// Returns the addresses from the last resolution.
    pub fn endpoints(&self) -> Arc<Vec<Endpoint>> {
        self.endpoints.load_full()
    }

    /// Returns the endpoint to connect to: the first that did not fail last.
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        let endpoints = self.endpoints.load();
        let next_endpoint = self.next_endpoint.load(Relaxed) % endpoints.len().max(1);
        endpoints.get(next_endpoint).cloned()
    }

    /// Makes the next connect use another address of the name.
    pub(crate) fn endpoint_failed(&self) {
        self.next_endpoint.fetch_add(1, Relaxed);
    }
}

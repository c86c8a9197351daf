//! A `listen` of a service: one or two sockets, kept over reloads.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use evenkeel_proxy::Service;
use evenkeel_proxy::engine::Engine;
use evenkeel_proxy::listen::{ListenAddress, ListenError, Listener};
use evenkeel_proxy::settings::Keepalive;

use crate::config::Listen;

/// The sockets of one `listen`, accepting for a service.
pub(super) struct Listening {
    pub(super) listen: Listen,
    sockets: Vec<(Listener, u64)>,
}

impl Listening {
    pub(super) fn start(bound: Bound, engine: &Engine, service: &Arc<Service>) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for listener in bound.listeners {
            let id = engine.listen(&listener, service)?;
            sockets.push((listener, id));
        }
        Ok(Self {
            listen: bound.listen,
            sockets,
        })
    }

    /// The addresses it has; port 0 has become a real one.
    pub(super) fn addresses(&self) -> impl Iterator<Item = String> {
        self.sockets
            .iter()
            .map(|(listener, _)| listener.address().to_string())
    }

    pub(super) fn stop(self, engine: &Engine) {
        for (_, id) in &self.sockets {
            engine.unlisten(*id);
        }
    }

    /// Lets go of the service, but keeps the sockets and the clients the kernel holds for them.
    pub(super) fn release(self, engine: &Engine) -> Bound {
        for (_, id) in &self.sockets {
            engine.unlisten(*id);
        }
        let listeners = self
            .sockets
            .into_iter()
            .map(|(listener, _)| listener)
            .collect();
        Bound {
            listen: self.listen,
            listeners,
        }
    }
}

/// Sockets that nobody accepts from yet.
pub(super) struct Bound {
    pub(super) listen: Listen,
    listeners: Vec<Listener>,
}

impl Bound {
    pub(super) fn bind(listen: &Listen, keepalive: &Keepalive) -> Result<Self, ListenError> {
        let mut listeners = Vec::new();
        for (address, optional) in addresses(listen) {
            match Listener::bind(&address, keepalive) {
                Ok(listener) => listeners.push(listener),
                // A machine without IPv6 is no reason to refuse `*:port`.
                Err(ListenError::NotOurs(_) | ListenError::Other(..)) if optional => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            listen: listen.clone(),
            listeners,
        })
    }
}

fn addresses(listen: &Listen) -> Vec<(ListenAddress, bool)> {
    match listen {
        Listen::Tcp(address) => vec![(ListenAddress::Tcp(*address), false)],
        Listen::Unix(path) => vec![(ListenAddress::Unix(path.clone()), false)],
        Listen::Any(port) => {
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, *port));
            let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port));
            vec![
                (ListenAddress::Tcp(v4), false),
                (ListenAddress::Tcp(v6), true),
            ]
        }
    }
}

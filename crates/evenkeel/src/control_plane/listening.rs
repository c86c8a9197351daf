//! Manages the sockets of one `listen` of a service. There are one or two, kept over reloads.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use evenkeel_config::plan::Listen;
use evenkeel_engine::listen::{ListenAddress, ListenError, Listener};
use evenkeel_engine::socket::Keepalive;
use evenkeel_proxy::Service;
use evenkeel_proxy::data_plane::DataPlane;

use crate::upgrade::predecessor::InheritedSockets;
use crate::upgrade::state::Purpose;

/// Sockets of one `listen` that accept clients for a service.
pub(super) struct Listening {
    pub(super) listen: Listen,
    sockets: Vec<(Listener, u64)>,
}

impl Listening {
    pub(super) fn start(
        bound: Bound,
        data_plane: &DataPlane,
        service: &Arc<Service>,
    ) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for (listener, accepting) in bound.sockets {
            let id = match accepting {
                None => data_plane.listen(&listener, service)?,
                Some(id) => {
                    data_plane.reassign(id, service);
                    id
                }
            };
            sockets.push((listener, id));
        }
        Ok(Self {
            listen: bound.listen,
            sockets,
        })
    }

    /// Returns the actual addresses: port 0 is replaced by the assigned port.
    pub(super) fn addresses(&self) -> impl Iterator<Item = String> {
        self.sockets
            .iter()
            .map(|(listener, _)| listener.address().to_string())
    }

    pub(super) fn listeners(&self) -> impl Iterator<Item = &Listener> {
        self.sockets.iter().map(|(listener, _)| listener)
    }

    /// Stops accepting. Clients wait in the kernel until [`Self::resume`], or until another process
    /// accepts.
    pub(super) fn pause(&self, data_plane: &DataPlane) {
        for (_, id) in &self.sockets {
            data_plane.stop_listening(*id);
        }
    }

    /// Returns whether an accept is still in progress.
    pub(super) fn is_accepting(&self, data_plane: &DataPlane) -> bool {
        self.sockets
            .iter()
            .any(|(_, id)| data_plane.is_accepting(*id))
    }

    pub(super) fn resume(
        &mut self,
        data_plane: &DataPlane,
        service: &Arc<Service>,
    ) -> io::Result<()> {
        for (listener, id) in &mut self.sockets {
            *id = data_plane.listen(listener, service)?;
        }
        Ok(())
    }

    /// Applies keepalive settings to clients accepted from now on.
    pub(super) fn keep_alive(&self, keepalive: &Keepalive) {
        for listener in self.listeners() {
            if let Err(error) = listener.keep_alive(keepalive) {
                tracing::warn!(listen = %self.listen, "cannot apply [service.keepalive]: {error}");
            }
        }
    }

    /// Marks sockets that were inherited from another process as owned by this one, so that they
    /// are closed with it.
    pub(super) fn make_own(&mut self) {
        for (listener, _) in &mut self.sockets {
            listener.make_own();
        }
    }

    /// Marks the sockets as shared with another process, which may serve with them even if this one
    /// fails.
    pub(super) fn lend(&mut self) {
        for (listener, _) in &mut self.sockets {
            listener.lend();
        }
    }

    /// Stops accepting. Keeps the sockets taken by another process, until [`Self::resume`]; the
    /// others are closed. `None`: no socket was taken.
    pub(super) fn leave(
        mut self,
        data_plane: &DataPlane,
        is_taken: impl Fn(String) -> bool,
    ) -> Option<Self> {
        for (mut listener, id) in std::mem::take(&mut self.sockets) {
            data_plane.stop_listening(id);
            if is_taken(listener.asked_for().to_string()) {
                self.sockets.push((listener, id));
            } else {
                listener.make_own();
            }
        }
        (!self.sockets.is_empty()).then_some(self)
    }

    pub(super) fn stop(self, data_plane: &DataPlane) {
        for (_, id) in &self.sockets {
            data_plane.stop_listening(*id);
        }
    }

    /// Frees the sockets for another service. Until then they accept for this one, so that no
    /// client is lost.
    pub(super) fn release(self) -> Bound {
        let sockets = self.sockets.into_iter();
        Bound {
            listen: self.listen,
            sockets: sockets.map(|(listener, id)| (listener, Some(id))).collect(),
        }
    }
}

/// Sockets that are not assigned to a service yet: new ones, or those of another service.
pub(super) struct Bound {
    pub(super) listen: Listen,
    /// Listeners, with the engine's id if they still accept clients.
    sockets: Vec<(Listener, Option<u64>)>,
}

impl Bound {
    /// Binds the sockets of a `listen`, except those inherited from the predecessor process.
    pub(super) fn bind(
        listen: &Listen,
        keepalive: &Keepalive,
        inherited: &mut InheritedSockets,
    ) -> Result<Self, ListenError> {
        let mut sockets = Vec::new();
        for (address, optional) in addresses(listen) {
            let opened = match inherited.take(Purpose::Clients(address.to_string())) {
                Some(socket) => Listener::passed(socket, &address, keepalive),
                None => Listener::bind(&address, keepalive),
            };
            match opened {
                Ok(listener) => sockets.push((listener, None)),
                // `*:port` must work on a machine without IPv6.
                Err(ListenError::NotOurs(_) | ListenError::Other(..)) if optional => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            listen: listen.clone(),
            sockets,
        })
    }

    /// Closes sockets that no service uses.
    pub(super) fn close(self, data_plane: &DataPlane) {
        for (_, id) in &self.sockets {
            id.iter().for_each(|id| data_plane.stop_listening(*id));
        }
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

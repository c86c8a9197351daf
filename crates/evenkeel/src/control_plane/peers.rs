//! Resolves the addresses of the other Evenkeel instances in `[peers]`. Cancel requests for their
//! clients that reach this instance are forwarded to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_config::plan::Address;
use evenkeel_policy::load::Load;
use evenkeel_proxy::data_plane::DataPlane;
use evenkeel_proxy::{Endpoint, Server};
use tokio::task::JoinHandle;

use super::endpoint::resolve;

/// Interval between two resolutions of a name.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(10);

/// Peers of the configuration.
#[derive(Default)]
pub(super) struct Peers {
    known: BTreeMap<u16, (Address, Arc<Server>)>,
    resolving: Vec<JoinHandle<()>>,
}

impl Peers {
    /// Applies the addresses of a new configuration.
    pub(super) fn adopt(&mut self, addresses: &BTreeMap<u16, Address>, data_plane: &DataPlane) {
        let same = |(number, address): (&u16, &Address)| {
            let known = self.known.get(number);
            known.is_some_and(|(known, _)| known == address)
        };
        if self.known.len() == addresses.len() && addresses.iter().all(same) {
            return;
        }
        *self = Peers::default();
        for (number, address) in addresses {
            let name = address.to_string().into();
            let load = Arc::new(Load::new(None));
            let server = Server::new(data_plane.new_id(), name, load, data_plane.workers());
            let server = Arc::new(server);
            self.find(address, &server);
            self.known.insert(*number, (address.clone(), server));
        }
    }

    fn find(&mut self, address: &Address, server: &Arc<Server>) {
        let (host, port) = match address {
            Address::Unix(path) => {
                return server.set_endpoints(vec![Endpoint::Unix(path.clone())]);
            }
            Address::Tcp { host, port } => (host.clone(), *port),
        };
        if let Some(literal) = address.socket_addr() {
            return server.set_endpoints(vec![Endpoint::Tcp(literal)]);
        }
        let server = Arc::clone(server);
        self.resolving.push(tokio::spawn(async move {
            loop {
                match resolve(&host, port).await {
                    Ok(endpoints) => server.set_endpoints(endpoints),
                    // The previous addresses stay in use.
                    Err(error) => tracing::debug!("peer {}: {error}", server.name),
                }
                tokio::time::sleep(RESOLVE_INTERVAL).await;
            }
        }));
    }

    /// Returns the peers by number, for the data plane.
    pub(super) fn servers(&self) -> HashMap<u16, Arc<Server>> {
        let known = self.known.iter();
        known
            .map(|(number, (_, server))| (*number, Arc::clone(server)))
            .collect()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.resolving.iter().for_each(JoinHandle::abort);
    }
}

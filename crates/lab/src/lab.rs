//! Manages a lab: a directory with the servers in it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Result;

use crate::network::{Link, Network};
use crate::port::free_port;
use crate::process::{Launch, Process};
use crate::scratch::Scratch;
use crate::server::{Kind, Membership, Role, Server};

/// A set of servers; on drop, or when its process dies, they and their data are removed.
pub struct Lab {
    servers: Mutex<Vec<Server>>,
    network: Option<Network>,
    scratch: Scratch,
}

impl Lab {
    /// Creates an empty lab; its directory's name contains `name`.
    pub fn new(name: &str) -> Result<Lab> {
        Ok(Lab {
            servers: Mutex::new(Vec::new()),
            network: None,
            scratch: Scratch::new(name)?,
        })
    }

    /// Creates a lab in which every server has its own network namespace, with an address in
    /// 10.77.0.0/16 that this machine reaches over a bridge. Servers can be isolated. Needs root.
    pub fn in_namespaces(name: &str) -> Result<Lab> {
        let mut lab = Lab::new(name)?;
        lab.network = Some(Network::new(lab.path())?);
        Ok(lab)
    }

    /// Returns the hosts of clients as the servers see them, in the notation of MariaDB's accounts.
    pub(crate) fn client_hosts(&self) -> String {
        self.network
            .as_ref()
            .map_or("127.0.0.1".to_owned(), Network::hosts_pattern)
    }

    /// Returns the network of the servers' namespaces, if there is one.
    pub(crate) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Returns the network's addresses as `10.77.1.0/24`, if the lab has a network.
    pub(crate) fn network_range(&self) -> Option<String> {
        self.network.as_ref().map(Network::range)
    }

    /// Returns the lab's directory, which is removed at the end.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns all servers started so far, in that order.
    pub fn servers(&self) -> Vec<Server> {
        self.registry().clone()
    }

    /// Returns the server with this name.
    pub fn server(&self, name: &str) -> Option<Server> {
        self.registry()
            .iter()
            .find(|server| server.name == name)
            .cloned()
    }

    /// Returns the name, with a number appended if it is already in use.
    pub(crate) fn unused_name(&self, name: &str) -> String {
        let mut candidate = name.to_owned();
        let mut number = 1;
        while self.server(&candidate).is_some() {
            number += 1;
            candidate = format!("{name}-{number}");
        }
        candidate
    }

    /// Reserves a name, a port and a directory that does not exist yet for a new server.
    pub(crate) fn allocate_slot(&self, name: &str) -> ServerSlot {
        let name = self.unused_name(name);
        let directory = self.path().join(&name);
        let link = self.network.as_ref().map(Network::link);
        let host = link.as_ref().map_or(Ipv4Addr::LOCALHOST, Link::address);
        ServerSlot {
            name,
            address: SocketAddr::from((host, free_port())),
            directory,
            link,
        }
    }

    /// Adds a server without starting it.
    pub(crate) fn enlist(
        &self,
        slot: &ServerSlot,
        role: Role,
        launch: Launch,
        kind: Arc<dyn Kind>,
    ) -> Server {
        let launch = Launch {
            name: slot.name.clone(),
            log: slot.directory.join("log"),
            note: self.scratch.note(&slot.name),
            namespace: slot.link.as_ref().map(Link::namespace),
            ..launch
        };
        let server = Server {
            name: slot.name.clone(),
            address: slot.address,
            process: Arc::new(Process::new(launch)),
            kind,
            work_dir: self.path().to_owned(),
            membership: Arc::new(Mutex::new(Membership {
                role,
                cluster: None,
            })),
            link: slot.link.clone(),
        };
        self.registry().push(server.clone());
        server
    }

    fn registry(&self) -> MutexGuard<'_, Vec<Server>> {
        self.servers.lock().expect("no holder of the lock panics")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for server in self.registry().iter() {
            let _ = server.kill();
        }
    }
}

/// Name, address and directory of a server.
#[derive(Clone)]
pub(crate) struct ServerSlot {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) directory: PathBuf,
    pub(crate) link: Option<Link>,
}

/// Runs a step for several servers concurrently and returns the first error.
pub(crate) fn for_each_at_once(
    servers: &[Server],
    step: impl Fn(&Server) -> Result<()> + Sync,
) -> Result<()> {
    std::thread::scope(|scope| {
        let running: Vec<_> = servers
            .iter()
            .map(|server| scope.spawn(|| step(server)))
            .collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a step does not panic"))
    })
}

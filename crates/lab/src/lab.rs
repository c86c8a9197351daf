//! A lab: a directory of its own and the servers that live in it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Result;

use crate::network::{Link, Network};
use crate::port::free_port;
use crate::process::{Launch, Process};
use crate::scratch::Scratch;
use crate::server::{Kind, Role, Server, Standing};

/// Owns servers; when it is dropped, or its process dies, they and their data are gone.
pub struct Lab {
    servers: Mutex<Vec<Server>>,
    network: Option<Network>,
    scratch: Scratch,
}

impl Lab {
    /// An empty lab; the name appears in its directory's name.
    pub fn new(name: &str) -> Result<Lab> {
        Ok(Lab {
            servers: Mutex::new(Vec::new()),
            network: None,
            scratch: Scratch::new(name)?,
        })
    }

    /// A lab in which every server lives in a network namespace of its own, at an address of
    /// 10.77.0.0/16 that this machine reaches over a bridge: servers can be cut off. Needs root.
    pub fn in_namespaces(name: &str) -> Result<Lab> {
        let mut lab = Lab::new(name)?;
        lab.network = Some(Network::new(lab.path())?);
        Ok(lab)
    }

    /// From where the servers see their clients come, as MariaDB's accounts write it.
    pub(crate) fn client_hosts(&self) -> String {
        self.network
            .as_ref()
            .map_or("127.0.0.1".to_owned(), Network::hosts_pattern)
    }

    /// What its servers' namespaces are joined by, if they have any.
    pub(crate) fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The network's addresses as `10.77.1.0/24`, if the lab has one.
    pub(crate) fn network_range(&self) -> Option<String> {
        self.network.as_ref().map(Network::range)
    }

    /// The lab's directory, removed at the end.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// All servers started so far, in that order.
    pub fn servers(&self) -> Vec<Server> {
        self.registry().clone()
    }

    /// The server of this name.
    pub fn server(&self, name: &str) -> Option<Server> {
        self.registry()
            .iter()
            .find(|server| server.name == name)
            .cloned()
    }

    /// The name, with a number behind it when it is already in use.
    pub(crate) fn unused_name(&self, name: &str) -> String {
        let mut candidate = name.to_owned();
        let mut number = 1;
        while self.server(&candidate).is_some() {
            number += 1;
            candidate = format!("{name}-{number}");
        }
        candidate
    }

    /// A new server's place: a name, a port and a directory that does not exist yet.
    pub(crate) fn place(&self, name: &str) -> Place {
        let name = self.unused_name(name);
        let directory = self.path().join(&name);
        let link = self.network.as_ref().map(Network::link);
        let host = link.as_ref().map_or(Ipv4Addr::LOCALHOST, Link::address);
        Place {
            name,
            address: SocketAddr::from((host, free_port())),
            directory,
            link,
        }
    }

    /// Takes a server in without starting it.
    pub(crate) fn enlist(
        &self,
        place: &Place,
        role: Role,
        launch: Launch,
        kind: Arc<dyn Kind>,
    ) -> Server {
        let launch = Launch {
            name: place.name.clone(),
            log: place.directory.join("log"),
            note: self.scratch.note(&place.name),
            namespace: place.link.as_ref().map(Link::namespace),
            ..launch
        };
        let server = Server {
            name: place.name.clone(),
            address: place.address,
            process: Arc::new(Process::new(launch)),
            kind,
            room: self.path().to_owned(),
            standing: Arc::new(Mutex::new(Standing {
                role,
                cluster: None,
            })),
            link: place.link.clone(),
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

/// Where a server will live.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) directory: PathBuf,
    pub(crate) link: Option<Link>,
}

/// Runs the same step for several servers at once and gives the first error.
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

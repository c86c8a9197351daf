//! Listening sockets, and the path of a client from the kernel to its worker.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arc_swap::ArcSwap;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use thiserror::Error;

use crate::engine::accepting::Accepting;
use crate::engine::event::Event;
use crate::engine::worker::Worker;
use crate::engine::{WorkerCommand, timers};
use crate::relay::yield_now;
use crate::service::{self, Service};
use crate::session;
use crate::settings::Keepalive;
use crate::socket::keep_alive;

/// Clients that the kernel queues until they are accepted; net.core.somaxconn may limit it further.
const BACKLOG: i32 = 4096;

/// Maximum number of consecutive accepts before the worker's sessions run, under heavy load.
const ACCEPTS_IN_A_ROW: u32 = 16;

/// Pause after an accept failed because of missing descriptors or memory.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Surplus of sessions over the least loaded worker at which an accepted client is handed over; a
/// quarter of that worker's sessions if that is more. The handover costs a wake-up, which short
/// connections would notice.
const SESSIONS_AHEAD_MAX: usize = 2;

/// Address on which a service listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix stream socket, created by Evenkeel.
    Unix(PathBuf),
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Error of listening on an address.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The address is in use.
    #[error("{0} is in use: stop the program that listens there, or choose another port")]
    InUse(String),
    /// Permission to use the address is missing.
    #[error("{0}: permission denied: ports below 1024 need root or CAP_NET_BIND_SERVICE")]
    Denied(String),
    /// The address does not belong to this machine.
    #[error("{0} is not an address of this machine")]
    NotOurs(String),
    /// Another error.
    #[error("cannot listen on {0}: {1}")]
    Other(String, io::Error),
}

impl ListenError {
    fn new(address: &ListenAddress, error: io::Error) -> Self {
        let address = address.to_string();
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::PermissionDenied => Self::Denied(address),
            io::ErrorKind::AddrNotAvailable => Self::NotOurs(address),
            _ => Self::Other(address, error),
        }
    }
}

/// Socket that is listening but not accepting yet. Dropping it removes a Unix socket's file.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: ListenAddress,
    /// True if another process serves clients on the same socket, so it must not be shut down here.
    core: bool,
}

impl Listener {
    /// Binds and listens. Keepalive is set here, because accepted sockets inherit it.
    pub fn bind(address: &ListenAddress, keepalive: &Keepalive) -> Result<Self, ListenError> {
        let socket = match address {
            ListenAddress::Tcp(tcp) => bind_tcp(*tcp, keepalive),
            ListenAddress::Unix(path) => bind_unix(path),
        };
        let socket = socket.map_err(|error| ListenError::new(address, error))?;
        Ok(Self {
            socket,
            address: address.clone(),
            core: false,
        })
    }

    /// Creates a listener from a socket on which another process listens. The socket belongs to
    /// that process until [`Self::make_own`].
    pub fn passed(
        socket: OwnedFd,
        address: &ListenAddress,
        keepalive: &Keepalive,
    ) -> Result<Self, ListenError> {
        let listener = Self {
            socket: Socket::from(socket),
            address: address.clone(),
            core: true,
        };
        let prepared = listener.keep_alive(keepalive);
        prepared.map_err(|error| ListenError::new(address, error))?;
        Ok(listener)
    }

    /// Sets the keepalive of clients that are accepted from now on.
    pub fn keep_alive(&self, keepalive: &Keepalive) -> io::Result<()> {
        match self.address {
            ListenAddress::Tcp(_) => keep_alive(&socket2::SockRef::from(&self.socket), keepalive),
            ListenAddress::Unix(_) => Ok(()),
        }
    }

    /// Takes ownership: dropping the listener shuts the socket down from now on.
    pub fn make_own(&mut self) {
        self.core = false;
    }

    /// Shares the socket with another process, which may continue with it. Until
    /// [`Self::make_own`], dropping the listener does not shut it down.
    pub fn lend(&mut self) {
        self.core = true;
    }

    /// Returns the configured address; its port 0 is not replaced by the actual port.
    pub fn asked_for(&self) -> &ListenAddress {
        &self.address
    }

    /// Returns a duplicate of the descriptor, for another process.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone().map(Into::into)
    }

    /// Returns the actual address; the kernel has chosen the port if the configured one is 0.
    pub fn address(&self) -> ListenAddress {
        match self
            .socket
            .local_addr()
            .ok()
            .and_then(|address| address.as_socket())
        {
            Some(tcp) => ListenAddress::Tcp(tcp),
            None => self.address.clone(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.core {
            return;
        }
        // The socket is shut down immediately; the workers close their descriptors a little later.
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
        if let ListenAddress::Unix(path) = &self.address {
            // The file may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind_tcp(address: SocketAddr, keepalive: &Keepalive) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_tcp_nodelay(true)?;
    keep_alive(&socket2::SockRef::from(&socket), keepalive)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn bind_unix(path: &Path) -> io::Result<Socket> {
    remove_if_nobody_answers(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Removes a socket file whose owner no longer accepts; never a file that is not a socket.
fn remove_if_nobody_answers(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if metadata.file_type().is_socket() && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Listener and its service, shared by all workers.
pub(crate) struct ListenerShared {
    pub(crate) id: u64,
    socket: Socket,
    service: ArcSwap<Service>,
}

impl ListenerShared {
    /// Assigns clients that are accepted from now on to this service.
    pub(crate) fn reassign(&self, service: &Arc<Service>) {
        self.service.store(Arc::clone(service));
    }

    pub(crate) fn new(id: u64, listener: &Listener, service: Arc<Service>) -> io::Result<Self> {
        let socket = listener.socket.try_clone()?;
        Ok(Self {
            id,
            socket,
            service: ArcSwap::new(service),
        })
    }
}

/// Client that was accepted and has no session yet.
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    /// The client's address; `None` on a Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) service: Arc<Service>,
}

/// Accepts the clients of one listener on one worker until `stop` has no sender. A client that the
/// kernel has accepted by then is still served. Another process may continue with the socket, but
/// would not get that client.
pub(crate) async fn accept_clients(
    worker: Rc<Worker>,
    listener: Arc<ListenerShared>,
    stop: flume::Receiver<()>,
) {
    let Some(socket) = own_descriptor(&worker, &listener, &stop).await else {
        return;
    };
    let mut in_a_row = 0_u32;
    while !stop.is_disconnected() {
        let mut accepting = match Accepting::start(&worker, &socket) {
            Ok(accepting) => accepting,
            Err(error) => {
                accept_failed(&worker, &error);
                timers::sleep(PAUSE_AFTER_FAILURE).await;
                continue;
            }
        };
        while let Some(accepted) = accepting.next(&stop).await {
            match accepted {
                Ok(client) => welcome_client(&worker, &listener, client),
                // The listener was shut down.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                // The client disconnected while it was queued.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    accept_failed(&worker, &error);
                    timers::sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
            in_a_row = in_a_row.wrapping_add(1);
            if in_a_row.is_multiple_of(ACCEPTS_IN_A_ROW) {
                yield_now().await;
            }
        }
    }
}

/// Duplicates the descriptor for one worker: the socket closes when the last worker closes its own.
async fn own_descriptor(
    worker: &Worker,
    listener: &ListenerShared,
    stop: &flume::Receiver<()>,
) -> Option<Rc<Socket>> {
    while !stop.is_disconnected() {
        let cloned = listener.socket.try_clone().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        match cloned {
            Ok(socket) => return Some(Rc::new(socket)),
            Err(error) => accept_failed(worker, &error),
        }
        timers::sleep(PAUSE_AFTER_FAILURE).await;
    }
    None
}

fn welcome_client(worker: &Rc<Worker>, listener: &ListenerShared, client: OwnedFd) {
    // Fails if the client has reset the connection.
    let Ok(peer) = socket2::SockRef::from(&client).peer_addr() else {
        return;
    };
    let service = listener.service.load_full();
    welcome(
        worker,
        Accepted {
            socket: client,
            peer: peer.as_socket(),
            service,
        },
    );
}

fn accept_failed(worker: &Worker, error: &io::Error) {
    let advice = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => ": raise the limit of file descriptors (ulimit -n)",
        _ => "",
    };
    worker.shared.report_event(Event::AcceptFailed(format!(
        "cannot accept clients: {error}{advice}"
    )));
}

/// Keeps the client or hands it to the worker with the fewest sessions.
fn welcome(worker: &Rc<Worker>, accepted: Accepted) {
    let sessions = &worker.shared.sessions;
    let shared = &worker.shared;
    let weight = |index: usize| match accepted.service.protocol {
        service::Protocol::Sql(_) => shared.pooled_weight(index),
        service::Protocol::Tcp => sessions[index].load(Relaxed),
    };
    let own = weight(worker.index);
    let (idlest, fewest) = (0..sessions.len())
        .map(|index| (index, weight(index)))
        .min_by_key(|(_, weight)| *weight)
        .unwrap_or((worker.index, own));
    // Long sessions justify a wake-up. Among equally loaded workers the first one is chosen.
    if accepted.service.database().is_some() {
        sessions[idlest].fetch_add(1, Relaxed);
        match idlest == worker.index {
            true => start(worker, accepted),
            false => drop(shared.commands[idlest].send(WorkerCommand::Adopt(accepted))),
        }
    } else if own < fewest + SESSIONS_AHEAD_MAX.max(fewest / 4) {
        sessions[worker.index].fetch_add(1, Relaxed);
        start(worker, accepted);
    } else {
        // Counted immediately, so that the next client takes this one into account.
        sessions[idlest].fetch_add(1, Relaxed);
        let _ = worker.shared.commands[idlest].send(WorkerCommand::Adopt(accepted));
    }
}

/// Serves a client that another worker has accepted and counted.
pub(crate) fn adopt(worker: &Rc<Worker>, accepted: Accepted) {
    start(worker, accepted);
}

fn start(worker: &Rc<Worker>, accepted: Accepted) {
    worker.spawn(session::serve(Rc::clone(worker), accepted));
}

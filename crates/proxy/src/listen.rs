//! Listening sockets and the way of a client from the kernel to its worker.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arc_swap::ArcSwap;
use compio::driver::SharedFd;
use compio::driver::op::Accept;
use futures_util::future::{Either, select};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use thiserror::Error;

use crate::engine::WorkerCommand;
use crate::engine::event::Event;
use crate::engine::worker::Worker;
use crate::relay::yield_now;
use crate::service::Service;
use crate::session;
use crate::settings::Keepalive;
use crate::socket::keep_alive;

/// Clients the kernel holds until we accept them; net.core.somaxconn may hold it lower.
const BACKLOG: i32 = 4096;

/// Accepts in a row before the sessions of the worker get their turn, in a flood.
const ACCEPTS_IN_A_ROW: u32 = 16;

/// After an accept failed for want of descriptors or memory.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// A worker keeps a client it accepted unless it has more sessions than the idlest one by this
/// many, or by a quarter: handing over costs a wake-up, which short connections would feel.
const SESSIONS_AHEAD_MAX: usize = 2;

/// Where a service listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix stream socket, created by us.
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

/// Why an address cannot be listened on.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Somebody has it.
    #[error("{0} is in use: stop the program that listens there, or choose another port")]
    InUse(String),
    /// We may not.
    #[error("{0}: permission denied: ports below 1024 need root or CAP_NET_BIND_SERVICE")]
    Denied(String),
    /// The machine does not have it.
    #[error("{0} is not an address of this machine")]
    NotOurs(String),
    /// Anything else.
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

/// A bound socket that does not accept yet; a Unix socket's file goes with it.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: ListenAddress,
    /// Another process has the same socket and serves its clients: it must not be shut down here.
    lent: bool,
}

impl Listener {
    /// Binds and listens. Keepalive is set here: accepted sockets inherit it from this one.
    pub fn bind(address: &ListenAddress, keepalive: &Keepalive) -> Result<Self, ListenError> {
        let socket = match address {
            ListenAddress::Tcp(tcp) => bind_tcp(*tcp, keepalive),
            ListenAddress::Unix(path) => bind_unix(path),
        };
        let socket = socket.map_err(|error| ListenError::new(address, error))?;
        Ok(Self {
            socket,
            address: address.clone(),
            lent: false,
        })
    }

    /// The very socket that another process listens on; it stays that process's until
    /// [`Self::make_own`].
    pub fn passed(
        socket: OwnedFd,
        address: &ListenAddress,
        keepalive: &Keepalive,
    ) -> Result<Self, ListenError> {
        let listener = Self {
            socket: Socket::from(socket),
            address: address.clone(),
            lent: true,
        };
        let prepared = listener.keep_alive(keepalive);
        prepared.map_err(|error| ListenError::new(address, error))?;
        Ok(listener)
    }

    /// Clients that are accepted from now on have this keepalive.
    pub fn keep_alive(&self, keepalive: &Keepalive) -> io::Result<()> {
        match self.address {
            ListenAddress::Tcp(_) => keep_alive(&socket2::SockRef::from(&self.socket), keepalive),
            ListenAddress::Unix(_) => Ok(()),
        }
    }

    /// From now on it ends with us.
    pub fn make_own(&mut self) {
        self.lent = false;
    }

    /// Another process has the socket too, and may go on with it: until [`Self::make_own`] it is
    /// closed here without a word.
    pub fn lend(&mut self) {
        self.lent = true;
    }

    /// The address that was asked for: with port 0, not the one it has.
    pub fn asked_for(&self) -> &ListenAddress {
        &self.address
    }

    /// The descriptor once more, for another process.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone().map(Into::into)
    }

    /// Where it is bound; the port is the kernel's choice if 0 was asked for.
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
        if self.lent {
            return;
        }
        // At once, though the workers let go of their descriptors a little later.
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
        if let ListenAddress::Unix(path) = &self.address {
            // Gone already is as good.
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

/// A socket file that its owner left behind; never a file that is no socket.
fn remove_if_nobody_answers(path: &Path) -> io::Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if metadata.file_type().is_socket() && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// A listener and its service, held by all workers.
pub(crate) struct ListenerShared {
    pub(crate) id: u64,
    socket: Socket,
    service: ArcSwap<Service>,
}

impl ListenerShared {
    /// Clients accepted from now on belong to this service.
    pub(crate) fn hand_over(&self, service: &Arc<Service>) {
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

/// A client between its accept and its session.
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    /// None on a Unix socket.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) service: Arc<Service>,
}

/// Accepts the clients of one listener on one worker until `stop` has no sender any more. A client
/// whose accept is under way then is still served: another process may go on with the socket, and
/// would never hear of it.
pub(crate) async fn accept_clients(
    worker: Rc<Worker>,
    listener: Arc<ListenerShared>,
    stop: flume::Receiver<()>,
) {
    let Some(socket) = own_descriptor(&worker, &listener, &stop).await else {
        return;
    };
    let socket = SharedFd::new(socket);
    let mut in_a_row = 0_u32;
    while !stop.is_disconnected() {
        let accept = pin!(compio::runtime::submit(Accept::new(socket.clone())));
        // The accept is asked first: it is given up only while it has nobody.
        let accept = match select(accept, pin!(stop.recv_async())).await {
            Either::Left((accept, _)) => accept,
            Either::Right(_) => return,
        };
        match accept.0 {
            Ok(_) => {
                let (client, peer) = compio::buf::IntoInner::into_inner(accept.1);
                let service = listener.service.load_full();
                welcome(
                    &worker,
                    Accepted {
                        socket: client.into(),
                        peer: peer.as_socket(),
                        service,
                    },
                );
            }
            // The listener is gone.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
            // The client left while it waited.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                accept_failed(&worker, &error);
                compio::time::sleep(PAUSE_AFTER_FAILURE).await;
            }
        }
        in_a_row = in_a_row.wrapping_add(1);
        if in_a_row.is_multiple_of(ACCEPTS_IN_A_ROW) {
            yield_now().await;
        }
    }
}

/// A descriptor of its own for each worker: the socket closes when the last has let go.
async fn own_descriptor(
    worker: &Worker,
    listener: &ListenerShared,
    stop: &flume::Receiver<()>,
) -> Option<Socket> {
    while !stop.is_disconnected() {
        let cloned = listener.socket.try_clone().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        match cloned {
            Ok(socket) => return Some(socket),
            Err(error) => accept_failed(worker, &error),
        }
        compio::time::sleep(PAUSE_AFTER_FAILURE).await;
    }
    None
}

fn accept_failed(worker: &Worker, error: &io::Error) {
    let advice = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => ": raise the limit of file descriptors (ulimit -n)",
        _ => "",
    };
    worker.shared.tell(Event::AcceptFailed(format!(
        "cannot accept clients: {error}{advice}"
    )));
}

/// Keeps the client or hands it to the worker with the fewest sessions.
fn welcome(worker: &Rc<Worker>, accepted: Accepted) {
    let sessions = &worker.shared.sessions;
    let shared = &worker.shared;
    let weight = |index: usize| match accepted.service.database {
        Some(_) => shared.weight_of_pooled(index),
        None => sessions[index].load(Relaxed),
    };
    let own = weight(worker.index);
    let (idlest, fewest) = (0..sessions.len())
        .map(|index| (index, weight(index)))
        .min_by_key(|(_, weight)| *weight)
        .unwrap_or((worker.index, own));
    // Those who stay long are worth a wake-up; of equals the first worker comes first.
    if accepted.service.database.is_some() {
        sessions[idlest].fetch_add(1, Relaxed);
        match idlest == worker.index {
            true => start(worker, accepted),
            false => drop(shared.orders[idlest].send(WorkerCommand::Adopt(accepted))),
        }
    } else if own < fewest + SESSIONS_AHEAD_MAX.max(fewest / 4) {
        sessions[worker.index].fetch_add(1, Relaxed);
        start(worker, accepted);
    } else {
        // Counted at once, so that the next client does not follow this one blindly.
        sessions[idlest].fetch_add(1, Relaxed);
        let _ = worker.shared.orders[idlest].send(WorkerCommand::Adopt(accepted));
    }
}

/// Serves a client that another worker has accepted and counted.
pub(crate) fn adopt(worker: &Rc<Worker>, accepted: Accepted) {
    start(worker, accepted);
}

fn start(worker: &Rc<Worker>, accepted: Accepted) {
    worker.spawn(session::serve(Rc::clone(worker), accepted));
}

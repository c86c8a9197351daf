//! Opens listening sockets, and accepts their clients on each worker.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use thiserror::Error;

use crate::accepting::Accepting;
use crate::socket::{Keepalive, keep_alive};
use crate::timers::{self, yield_now};
use crate::worker::Worker;

/// Clients that the kernel queues until they are accepted; net.core.somaxconn may limit it further.
const BACKLOG: i32 = 4096;

/// Maximum number of consecutive accepts before the worker's other tasks run, under heavy load.
const ACCEPTS_IN_A_ROW: u32 = 16;

/// Pause after an accept failed because of missing descriptors or memory.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

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

/// A listening socket as the workers have it. It closes when the last holder is dropped and the
/// [`Listener`], too.
#[derive(Debug)]
pub struct ListenerHandle(Socket);

impl Listener {
    /// Returns a handle for the workers.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub fn handle(&self) -> io::Result<ListenerHandle> {
        self.socket.try_clone().map(ListenerHandle)
    }
}

/// A client that was accepted.
pub struct AcceptedClient {
    /// The client's socket.
    pub socket: OwnedFd,
    /// The client's address; `None` on a Unix socket.
    pub peer: Option<SocketAddr>,
}

/// Accepts the clients of one listener on one worker until `stop` has no sender. Clients that the
/// kernel has queued by then are still welcomed: another process may continue with the socket, but
/// the kernel may have reported them to this worker only. `failed` is called at each failure, at
/// most ten times a second.
pub async fn accept_clients(
    worker: &Worker,
    listener: &ListenerHandle,
    stop: flume::Receiver<()>,
    welcome: impl Fn(AcceptedClient),
    failed: impl Fn(String),
) {
    let Some(socket) = own_descriptor(listener, &stop, &failed).await else {
        return;
    };
    let mut in_a_row = 0_u32;
    while !stop.is_disconnected() {
        let mut accepting = match Accepting::start(worker, &socket) {
            Ok(accepting) => accepting,
            Err(error) => {
                pause_after(&error, &failed).await;
                continue;
            }
        };
        while let Some(accepted) = accepting.next(&stop).await {
            match accepted {
                Ok(client) => pass_on(client, &welcome),
                // The listener was shut down.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                // The client disconnected while it was queued.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => pause_after(&error, &failed).await,
            }
            in_a_row = in_a_row.wrapping_add(1);
            if in_a_row.is_multiple_of(ACCEPTS_IN_A_ROW) {
                yield_now().await;
            }
        }
    }
    accept_queued(&socket, &welcome).await;
}

/// Accepts the clients in the kernel's queue without waiting for more.
///
/// The kernel reports a new client to one of the waiting workers, of all processes. If that worker
/// is about to stop, no other worker accepts the client before the next one connects.
async fn accept_queued(socket: &Socket, welcome: &impl Fn(AcceptedClient)) {
    for _ in 0..BACKLOG.cast_unsigned().div_ceil(ACCEPTS_IN_A_ROW) {
        for _ in 0..ACCEPTS_IN_A_ROW {
            match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
                Ok(client) => pass_on(client, welcome),
                Err(rustix::io::Errno::CONNABORTED) => {}
                // The queue is empty, the listener was shut down, or there is no descriptor left.
                Err(_) => return,
            }
        }
        yield_now().await;
    }
}

/// Duplicates the descriptor for one worker: the socket closes when the last worker closes its own.
async fn own_descriptor(
    listener: &ListenerHandle,
    stop: &flume::Receiver<()>,
    failed: &impl Fn(String),
) -> Option<Rc<Socket>> {
    while !stop.is_disconnected() {
        let cloned = listener.0.try_clone().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        match cloned {
            Ok(socket) => return Some(Rc::new(socket)),
            Err(error) => pause_after(&error, failed).await,
        }
    }
    None
}

fn pass_on(socket: OwnedFd, welcome: &impl Fn(AcceptedClient)) {
    // Fails if the client has reset the connection.
    if let Ok(peer) = socket2::SockRef::from(&socket).peer_addr() {
        let peer = peer.as_socket();
        welcome(AcceptedClient { socket, peer });
    }
}

async fn pause_after(error: &io::Error, failed: &impl Fn(String)) {
    let advice = match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => ": raise the limit of file descriptors (ulimit -n)",
        _ => "",
    };
    failed(format!("cannot accept clients: {error}{advice}"));
    timers::sleep(PAUSE_AFTER_FAILURE).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::engine::Driver;

    /// Accepts on a worker; while its poller waits for clients, one connects and accepting stops.
    fn a_client_that_connects_at_the_stop_is_accepted(driver: Driver) {
        let Ok(worker) = Worker::new(0, driver) else {
            return println!("skipped: no {} here", driver.name());
        };
        let any_port = ListenAddress::Tcp("127.0.0.1:0".parse().unwrap());
        let keepalive = Keepalive {
            idle: Duration::from_secs(60),
            interval: Duration::from_secs(10),
            probes: 3,
            user_timeout: Duration::ZERO,
        };
        let listener = Listener::bind(&any_port, &keepalive).unwrap();
        let ListenAddress::Tcp(address) = listener.address() else {
            unreachable!()
        };
        let (keep_open, stop) = flume::bounded(0);
        let accepted = Rc::new(Cell::new(0));
        let is_over = Rc::new(Cell::new(false));
        worker.spawn({
            let (worker, handle) = (Rc::clone(&worker), listener.handle().unwrap());
            let (accepted, is_over) = (Rc::clone(&accepted), Rc::clone(&is_over));
            async move {
                let welcome = |_| accepted.set(accepted.get() + 1);
                accept_clients(&worker, &handle, stop, welcome, |why| panic!("{why}")).await;
                is_over.set(true);
            }
        });
        worker.run_ready();
        worker.poller.poll_once(Some(Duration::ZERO));
        let _client = std::net::TcpStream::connect(address).unwrap();
        drop(keep_open);
        for _ in 0..20 {
            worker.run_ready();
            worker.poller.poll_once(Some(Duration::from_millis(1)));
        }
        assert!(is_over.get());
        assert_eq!(accepted.get(), 1);
    }

    #[test]
    fn a_client_that_connects_at_the_stop_is_accepted_on_io_uring() {
        a_client_that_connects_at_the_stop_is_accepted(Driver::IoUring);
    }

    #[test]
    fn a_client_that_connects_at_the_stop_is_accepted_on_epoll() {
        a_client_that_connects_at_the_stop_is_accepted(Driver::Epoll);
    }
}

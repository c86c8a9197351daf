//! Opens one connection to one server within the connect timeout.

use std::io;

use evenkeel_engine::socket::Socket;
use evenkeel_engine::timers;
#[cfg(not(test))]
use socket2::{Domain, Protocol, SockAddr, Type};

use crate::server::Endpoint;
use crate::settings::ServiceSettings;
use crate::worker::Worker;

/// Reason why a socket could not be connected.
pub(crate) struct SocketConnectError {
    pub(crate) why: String,
    /// True if this machine ran out of descriptors, ports or memory: not a fault of the server.
    pub(crate) is_resource_exhausted: bool,
}

impl SocketConnectError {
    fn of_server(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            is_resource_exhausted: false,
        }
    }

    #[cfg(not(test))]
    fn of_ours(error: &io::Error) -> Self {
        Self {
            why: explain(error),
            is_resource_exhausted: true,
        }
    }

    fn connecting(error: &io::Error) -> Self {
        let ours = [
            libc::EMFILE,
            libc::ENFILE,
            libc::EADDRNOTAVAIL,
            libc::ENOBUFS,
            libc::ENOMEM,
        ];
        let ours = error
            .raw_os_error()
            .is_some_and(|code| ours.contains(&code));
        Self {
            why: explain(error),
            is_resource_exhausted: ours,
        }
    }
}

/// Connects to an endpoint of a server; `None`: its name is not resolved.
pub(crate) async fn connect(
    worker: &Worker,
    endpoint: Option<&Endpoint>,
    settings: &ServiceSettings,
) -> Result<Socket, SocketConnectError> {
    let unresolved = || SocketConnectError::of_server("host name not resolved");
    let (socket, is_connected) = begin(worker, endpoint.ok_or_else(unresolved)?)?;
    if is_connected {
        return Ok(socket);
    }
    match timers::timeout(settings.connect_timeout, socket.connected()).await {
        Ok(Ok(())) => Ok(socket),
        Ok(Err(error)) => Err(SocketConnectError::connecting(&error)),
        Err(_) => {
            let limit_ms = settings.connect_timeout.as_millis();
            Err(SocketConnectError::of_server(format!(
                "no response within {limit_ms} ms (connect_timeout_ms)"
            )))
        }
    }
}

/// Begins to connect. Returns the socket, and whether it is connected already.
#[cfg(not(test))]
fn begin(worker: &Worker, endpoint: &Endpoint) -> Result<(Socket, bool), SocketConnectError> {
    let of_ours = |error| SocketConnectError::of_ours(&error);
    let (domain, protocol, address) =
        parts(endpoint).map_err(|error| SocketConnectError::of_server(error.to_string()))?;
    let socket = open(domain, protocol).map_err(of_ours)?;
    let is_connected = match socket.connect(&address) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => false,
        // Unix sockets only; for TCP, this error would concern local ports.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && domain == Domain::UNIX => {
            return Err(SocketConnectError::of_server("listen backlog is full"));
        }
        Err(error) => return Err(SocketConnectError::connecting(&error)),
    };
    let socket = Socket::new(worker, socket).map_err(of_ours)?;
    Ok((socket, is_connected))
}

/// Begins to connect to the script of a test.
#[cfg(test)]
fn begin(_: &Worker, endpoint: &Endpoint) -> Result<(Socket, bool), SocketConnectError> {
    Ok((crate::testing::connect(endpoint), false))
}

#[cfg(not(test))]
fn parts(endpoint: &Endpoint) -> io::Result<(Domain, Option<Protocol>, SockAddr)> {
    Ok(match endpoint {
        Endpoint::Tcp(address) => (
            Domain::for_address(*address),
            Some(Protocol::TCP),
            SockAddr::from(*address),
        ),
        Endpoint::Unix(path) => (Domain::UNIX, None, SockAddr::unix(path)?),
    })
}

#[cfg(not(test))]
fn open(domain: Domain, protocol: Option<Protocol>) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(domain, Type::STREAM.nonblocking(), protocol)?;
    if protocol.is_some() {
        socket.set_tcp_nodelay(true)?;
    }
    Ok(socket)
}

/// Formats the error, with advice for errors that the operator of Evenkeel can resolve.
fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            format!("{error}: raise the file descriptor limit (ulimit -n)")
        }
        Some(libc::EADDRNOTAVAIL) => {
            format!("{error}: no local port is free (net.ipv4.ip_local_port_range)")
        }
        _ => error.to_string(),
    }
}

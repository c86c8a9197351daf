//! Opens one connection to one server within the connect timeout.

use std::io;

use evenkeel_engine::socket::Socket;
use evenkeel_engine::timers;
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
    let (domain, protocol, address) = parts(endpoint.ok_or_else(unresolved)?)
        .map_err(|error| SocketConnectError::of_server(error.to_string()))?;
    let socket = open(domain, protocol).map_err(|error| SocketConnectError::of_ours(&error))?;
    let begun = socket.connect(&address);
    match begun {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        // Unix sockets only; for TCP, this error would concern local ports.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && domain == Domain::UNIX => {
            return Err(SocketConnectError::of_server("listen backlog is full"));
        }
        Err(error) => return Err(SocketConnectError::connecting(&error)),
        Ok(()) => {
            return Socket::new(worker, socket)
                .map_err(|error| SocketConnectError::of_ours(&error));
        }
    }
    let socket =
        Socket::new(worker, socket).map_err(|error| SocketConnectError::of_ours(&error))?;
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

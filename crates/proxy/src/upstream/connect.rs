//! Opens one connection to one server within the connect timeout.

use std::io;

use compio::driver::SharedFd;
use compio::driver::op::Connect;
use socket2::{Domain, Protocol, SockAddr, Type};

use crate::engine::worker::Worker;
use crate::server::{Endpoint, Server};
use crate::settings::Settings;
use crate::socket::Socket;

/// Connects to the server's current endpoint.
pub(super) async fn connect(
    worker: &Worker,
    server: &Server,
    settings: &Settings,
) -> Result<Socket, String> {
    let endpoint = server.endpoint().ok_or("its name is not resolved")?;
    let (domain, protocol, address) = parts(&endpoint).map_err(|error| error.to_string())?;
    let socket = open(worker, domain, protocol).map_err(|error| explain(&error))?;
    let shared = SharedFd::new(socket);
    let connecting = compio::runtime::submit(Connect::new(shared.clone(), address));
    match compio::time::timeout(settings.connect_timeout, connecting).await {
        Ok(result) => result.0.map_err(|error| explain(&error))?,
        Err(_) => {
            return Err(format!(
                "no answer for {} ms",
                settings.connect_timeout.as_millis()
            ));
        }
    };
    Socket::new(worker, shared).map_err(|error| explain(&error))
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

fn open(
    worker: &Worker,
    domain: Domain,
    protocol: Option<Protocol>,
) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(domain, Type::STREAM, protocol)?;
    socket.set_nonblocking(worker.reactor.is_some())?;
    if protocol.is_some() {
        socket.set_tcp_nodelay(true)?;
    }
    Ok(socket)
}

/// The error, and for those that are ours to mend, what to do.
fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => {
            format!("{error}: raise the limit of file descriptors (ulimit -n)")
        }
        Some(libc::EADDRNOTAVAIL) => {
            format!("{error}: no local port is free (net.ipv4.ip_local_port_range)")
        }
        _ => error.to_string(),
    }
}

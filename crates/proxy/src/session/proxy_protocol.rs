//! Reads PROXY headers from listed peers, and builds those for servers.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_engine::socket::Socket;
use evenkeel_engine::timers;
use evenkeel_wire::proxy_header::{self, Header, LENGTH_MAX, Parsed, ProxyVersion};

use crate::record::{Record, TerminationReason};
use crate::session::handle::SessionHandle;
use crate::settings::ServiceSettings;

/// Returns whether the peer must send a header first.
pub(super) fn expects_proxy_header(settings: &ServiceSettings, peer: Option<SocketAddr>) -> bool {
    let listed = &settings.accept_proxy_from;
    peer.is_some_and(|peer| {
        let address = peer.ip().to_canonical();
        listed.iter().any(|net| net.contains(&address))
    })
}

/// Records the address of a database client if a listed peer sends it.
pub(super) async fn read_client_address(
    handle: &SessionHandle,
    socket: &Socket,
    record: &mut Record,
) -> Result<(), TerminationReason> {
    let view = handle.service.snapshot_owned();
    if !expects_proxy_header(&view.settings, record.client) {
        return Ok(());
    }
    let header =
        Box::pin(handle.run_interruptible(receive(socket, view.settings.connect_timeout))).await;
    let (client, _) = header.map_err(|interrupt| interrupt.ending())??;
    record.client = client.or(record.client);
    Ok(())
}

/// Reads the header that a listed peer must send first, and no byte more.
pub(super) async fn receive(
    socket: &Socket,
    limit: Duration,
) -> Result<(Option<SocketAddr>, Option<SocketAddr>), TerminationReason> {
    match timers::timeout(limit, header_of(socket)).await {
        Ok(Ok(header)) => Ok((header.source, header.destination)),
        Ok(Err(why)) => Err(TerminationReason::ProxyHeader(why)),
        Err(_) => Err(TerminationReason::ProxyHeader(format!(
            "not received within {} ms",
            limit.as_millis()
        ))),
    }
}

async fn header_of(socket: &Socket) -> Result<Header, String> {
    let mut held = Vec::new();
    loop {
        socket.readable().await.map_err(|error| error.to_string())?;
        let before = held.len();
        held.resize(LENGTH_MAX, 0);
        // Bytes are peeked first and then taken, because those after the header belong to the
        // server.
        let count = match socket.peek_now(&mut held[before..]) {
            Ok(0) => return Err("peer closed the connection before sending it".to_owned()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.to_string()),
        };
        held.truncate(before + count);
        let parsed = proxy_header::parse(&held);
        let end = match parsed {
            Parsed::Frame(_, length) => length,
            Parsed::Incomplete => held.len(),
            Parsed::Invalid(fault) => return Err(fault.to_string()),
        };
        take(socket, &mut held[before..end])?;
        if let Parsed::Frame(header, _) = parsed {
            return Ok(header);
        }
    }
}

/// Takes bytes that a peek has shown to be available.
fn take(socket: &Socket, bytes: &mut [u8]) -> Result<(), String> {
    if bytes.is_empty() {
        return Ok(());
    }
    match socket.receive_now(bytes) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err("short read".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Builds the header that gives the client's address to a server.
pub(super) fn header(
    version: ProxyVersion,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) -> Vec<u8> {
    match (version, source.zip(destination)) {
        (ProxyVersion::V1, Some((source, destination))) => {
            proxy_header::encode_v1(source, destination)
        }
        (ProxyVersion::V2, Some((source, destination))) => {
            proxy_header::encode_v2(source, destination)
        }
        (ProxyVersion::V1, None) => proxy_header::encode_v1_unknown().to_vec(),
        (ProxyVersion::V2, None) => proxy_header::encode_v2_local().to_vec(),
    }
}

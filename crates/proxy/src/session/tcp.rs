//! Serves sessions of `protocol = "tcp"`: reads the PROXY header, connects to a server, and relays.

mod routing;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_engine::relay::{self, OpeningCheck, RelayError, SilentClose};
use evenkeel_engine::socket::Socket;
use evenkeel_policy::balance::key_of;

use super::{lingering_close, proxy_header_guard, proxy_protocol};
use crate::event::{Event, PassiveFailure};
use crate::record::{Record, TerminationReason};
use crate::server::Server;
use crate::service::{ClientPermit, Service, ServiceSnapshot};
use crate::session::handle::{Interrupt, Relayed, RelayedServer, SessionHandle};
use crate::settings::ServiceSettings;
use crate::upstream::{self, ConnectAttempts, ConnectRequest, Upstream};
use crate::worker::Worker;

/// Client of a TCP session.
struct TcpClient {
    socket: Socket,
    /// Boxed, because most sessions have none.
    details: Option<Box<ClientDetails>>,
    /// True if the client must not send a PROXY header.
    is_untrusted: bool,
}

/// Facts of clients of services with PROXY headers or routes.
#[derive(Default)]
struct ClientDetails {
    /// Address that the client connected to, if the server receives it.
    destination: Option<SocketAddr>,
    /// Permit at the service that a route leads to.
    routed: Option<ClientPermit>,
}

impl TcpClient {
    fn destination(&self) -> Option<SocketAddr> {
        self.details.as_ref()?.destination
    }

    /// Assigns the client to the service of a route, whose servers may receive its address.
    fn route_to(&mut self, permit: ClientPermit) {
        let sends_header = permit.service().snapshot().settings.send_proxy.is_some();
        let local = match sends_header {
            true => self.socket.local_address(),
            false => None,
        };
        let details = self.details.get_or_insert_default();
        details.destination = details.destination.or(local);
        details.routed = Some(permit);
    }
}

/// Outcome of a relay.
enum RelayOutcome {
    /// The session has ended, too.
    Over(TerminationReason),
    /// The client has not noticed anything.
    Silent(SilentClose),
}

impl RelayOutcome {
    fn of(ended: Result<(), RelayError>, relayed: &Relayed<'_>) -> Self {
        Self::Over(match ended {
            Ok(()) if relayed.client_ended_first() => TerminationReason::ClientClosed,
            Ok(()) => TerminationReason::ServerClosed,
            Err(RelayError::Silent(silent)) => return Self::Silent(silent),
            Err(RelayError::Client(error)) => TerminationReason::ResetByClient(error.to_string()),
            Err(RelayError::Server(error)) => TerminationReason::ResetByServer(error.to_string()),
            Err(RelayError::Forbidden(why)) => TerminationReason::ProxyHeader(why),
        })
    }
}

/// Serves one session and returns the reason for its end.
pub(super) async fn serve_session(
    worker: &Rc<Worker>,
    permit: &ClientPermit,
    handle: &SessionHandle,
    socket: Socket,
    record: &mut Record,
) -> TerminationReason {
    // Boxed, because these futures end before the long part, the relay, begins.
    let client =
        match Box::pin(handle.run_interruptible(greet(worker, permit, socket, record))).await {
            Ok(Ok(client)) => client,
            Ok(Err(ending)) => return ending,
            Err(interrupt) => return interrupt.ending(),
        };
    let observer = client.socket.observer();
    let client_left = || observer.has_left();
    let request = ConnectRequest {
        worker,
        service: service_of(&client.details, permit),
        key: source_key(record.client),
        has_client_left: &client_left,
    };
    let mut search = ConnectAttempts::default();
    loop {
        let found = find_server(&request, &client, &mut search, record);
        let (upstream, view) = match Box::pin(handle.run_interruptible(found)).await {
            Ok(Ok(found)) => found,
            Ok(Err(ending)) => {
                lingering_close::close_gracefully(worker, client.socket);
                return ending;
            }
            Err(interrupt) => return interrupt.ending(),
        };
        let at = RelayedServer {
            server: Arc::clone(upstream.lease.server()),
            service_id: request.service.id,
            view,
            client: client.socket.observer(),
            upstream: upstream.socket.observer(),
        };
        let relayed = Relayed::start(handle, worker, at);
        let outcome = relay_through(&relayed, &client, &upstream).await;
        record.first_byte_us = relayed.first_byte_us();
        drop(relayed);
        let silent = match outcome {
            RelayOutcome::Over(ending) => return ending,
            RelayOutcome::Silent(silent) => silent,
        };
        if !search.failed(
            &request,
            upstream.lease.server(),
            silent.why.clone(),
            record,
        ) {
            return give_up(&request, worker, client.socket, silent);
        }
    }
}

/// Returns the service whose servers a client uses: its own, or the one that a route leads to.
fn service_of<'a>(
    details: &'a Option<Box<ClientDetails>>,
    own: &'a ClientPermit,
) -> &'a Arc<Service> {
    let routed = details.as_ref().and_then(|details| details.routed.as_ref());
    routed.unwrap_or(own).service()
}

/// Connects to a server and sends it the PROXY header.
async fn find_server(
    request: &ConnectRequest<'_>,
    client: &TcpClient,
    search: &mut ConnectAttempts,
    record: &mut Record,
) -> Result<(Upstream, Arc<ServiceSnapshot>), TerminationReason> {
    loop {
        let (upstream, view) = upstream::reach(request, search, record).await?;
        let server = upstream.lease.server();
        let mut why = None;
        if let Some(version) = view.settings.send_proxy {
            let header = proxy_protocol::header(version, record.client, client.destination());
            let sent = upstream.socket.send_all(&header).await;
            why = sent.err().map(|error| error.to_string());
        }
        if why.is_some() {
            server.counters.resets.add(1);
            let sign = PassiveFailure::ClosedBeforeAnyByte;
            request.worker.shared.report_event(Event::Sign {
                server_id: server.id,
                sign,
            });
        } else if request.service.snapshot().offers(server.id) {
            return Ok((upstream, view));
        }
        // A command to reset the sessions of a demoted primary does not reach a session that is
        // connecting.
        let stopped = || "server stopped accepting clients during connect".to_owned();
        let why = why.unwrap_or_else(stopped);
        if !search.failed(request, server, why.clone(), record) {
            request.service.counters.connect_failed.add(1);
            return Err(TerminationReason::ConnectFailed(why));
        }
    }
}

/// Relays until the session ends, or the server closes the connection before sending a byte.
async fn relay_through(
    relayed: &Relayed<'_>,
    client: &TcpClient,
    upstream: &Upstream,
) -> RelayOutcome {
    let (handle, worker) = (relayed.handle, relayed.worker);
    let server = upstream.lease.server();
    let guard: &OpeningCheck<'_> = &proxy_header_guard::check;
    let relaying = relay::relay(
        worker,
        &client.socket,
        &upstream.socket,
        relayed,
        client.is_untrusted.then_some(guard),
    );
    let outcome = match handle.run_interruptible(relaying).await {
        Ok(ended) => RelayOutcome::of(ended, relayed),
        // The session has not run since the order, so still no byte was relayed.
        Err(Interrupt::Elsewhere(why)) if relayed.is_untouched() => {
            RelayOutcome::Silent(SilentClose { why, reset: false })
        }
        Err(interrupt) => {
            let ending = interrupt.ending();
            end_from_outside(&ending, relayed, &client.socket, &upstream.socket);
            RelayOutcome::Over(ending)
        }
    };
    report_signs(relayed, server, &outcome);
    outcome
}

/// Ends the session like the last candidate server, which also closed without sending a byte.
fn give_up(
    request: &ConnectRequest<'_>,
    worker: &Rc<Worker>,
    client: Socket,
    silent: SilentClose,
) -> TerminationReason {
    request.service.counters.connect_failed.add(1);
    if silent.reset {
        client.reset_on_close();
    } else {
        lingering_close::close_gracefully(worker, client);
    }
    TerminationReason::ConnectFailed(silent.why)
}

/// Determines the client's address, and the service that its route leads to.
async fn greet(
    worker: &Worker,
    permit: &ClientPermit,
    socket: Socket,
    record: &mut Record,
) -> Result<TcpClient, TerminationReason> {
    let view = permit.service().snapshot_owned();
    let mut client = identify(&view.settings, socket, record).await?;
    let Some(routes) = &view.tls_routes else {
        return Ok(client);
    };
    // Boxed, so that clients of services without routes need no memory for it.
    let choosing = Box::pin(routing::choose(
        permit.service(),
        &view,
        routes,
        &client.socket,
    ));
    match choosing.await {
        Ok(None) => {}
        Ok(Some(routed)) => client.route_to(routed),
        Err(ending) => {
            lingering_close::close_gracefully(worker, client.socket);
            return Err(ending);
        }
    }
    Ok(client)
}

/// Determines the client's address: from its PROXY header if it is a listed peer, else from its
/// socket. The record gets it.
async fn identify(
    settings: &ServiceSettings,
    socket: Socket,
    record: &mut Record,
) -> Result<TcpClient, TerminationReason> {
    // Only a header uses the address that the client connected to.
    let headers = !settings.accept_proxy_from.is_empty() || settings.send_proxy.is_some();
    let local = if headers {
        socket.local_address()
    } else {
        None
    };
    if !proxy_protocol::expects_proxy_header(settings, record.client) {
        return Ok(TcpClient {
            socket,
            details: details(local),
            // If either side uses headers, a server would trust one from an untrusted client.
            is_untrusted: headers,
        });
    }
    let limit = settings.connect_timeout;
    let (source, destination) = proxy_protocol::receive(&socket, limit).await?;
    record.client = source.or(record.client);
    Ok(TcpClient {
        socket,
        details: details(destination.or(local)),
        is_untrusted: false,
    })
}

fn details(destination: Option<SocketAddr>) -> Option<Box<ClientDetails>> {
    destination.map(|destination| {
        Box::new(ClientDetails {
            destination: Some(destination),
            routed: None,
        })
    })
}

fn canonical(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

/// Returns the hash key for the `source` algorithm: the client's address without its port.
fn source_key(source: Option<SocketAddr>) -> u64 {
    match source.map(canonical) {
        Some(IpAddr::V4(ip)) => key_of(&ip.octets()),
        Some(IpAddr::V6(ip)) => key_of(&ip.octets()),
        None => 0,
    }
}

/// Resets both connections, so that no peer takes a partial reply for a complete one. A timeout
/// with no data left to deliver is an ordinary close.
fn end_from_outside(
    ending: &TerminationReason,
    relayed: &Relayed<'_>,
    client: &Socket,
    server: &Socket,
) {
    let timeout = matches!(
        ending,
        TerminationReason::IdleTimeout | TerminationReason::HalfCloseTimeout
    );
    if !timeout || relayed.is_stalled() {
        client.reset_on_close();
        server.reset_on_close();
    }
}

fn report_signs(relayed: &Relayed<'_>, server: &Server, outcome: &RelayOutcome) {
    if matches!(
        outcome,
        RelayOutcome::Over(TerminationReason::ResetByServer(_))
            | RelayOutcome::Silent(SilentClose { reset: true, .. })
    ) {
        server.counters.resets.add(1);
    }
    if let Some(sign) = closed_before_any_byte(relayed.handle, outcome) {
        server.counters.early_closes.add(1);
        relayed.worker.shared.report_event(Event::Sign {
            server_id: server.id,
            sign,
        });
    }
}

/// Returns a passive failure if the server ended the connection before sending any byte while its
/// client was waiting for a reply.
fn closed_before_any_byte(
    handle: &SessionHandle,
    outcome: &RelayOutcome,
) -> Option<PassiveFailure> {
    let server_first = match outcome {
        RelayOutcome::Silent(_) => return Some(PassiveFailure::ClosedBeforeAnyByte),
        RelayOutcome::Over(ending) => {
            matches!(
                ending,
                TerminationReason::ServerClosed | TerminationReason::ResetByServer(_)
            )
        }
    };
    // If the client has sent nothing, an end of the server connection says nothing about the
    // server.
    let unanswered = handle.bytes_from_client() > 0 && handle.bytes_to_client() == 0;
    (server_first && unanswered).then_some(PassiveFailure::ClosedBeforeAnyByte)
}

#[cfg(test)]
mod tests;

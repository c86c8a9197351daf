//! Finds the endpoints of servers by their host names, for probes and sessions.

use evenkeel_monitor::probe::Target;
use evenkeel_proxy::Endpoint;

/// Returns the endpoints of a host name, in a stable order.
pub(super) async fn resolve(host: &str, port: u16) -> Result<Vec<Endpoint>, String> {
    let mut endpoints: Vec<_> = match tokio::net::lookup_host((host, port)).await {
        Ok(found) => found.map(Endpoint::Tcp).collect(),
        Err(error) => return Err(format!("cannot resolve host name {host}: {error}")),
    };
    if endpoints.is_empty() {
        return Err(format!("host name {host} has no address"));
    }
    // Round-robin DNS shuffles its responses: the same set must not look like a change.
    endpoints.sort_by_key(ToString::to_string);
    endpoints.dedup();
    Ok(endpoints)
}

/// Returns an endpoint as probes use it.
pub(super) fn target(endpoint: &Endpoint) -> Target {
    match endpoint {
        Endpoint::Tcp(address) => Target::tcp(*address),
        Endpoint::Unix(path) => Target::unix(path.clone()),
    }
}

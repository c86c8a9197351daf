//! Status of an HTTP service: its requests and its connections to servers.

use serde::{Deserialize, Serialize};

use super::{CountStatus, Histogram};

/// Part of a service's status that only HTTP services have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpStatus {
    /// Requests answered, in all classes.
    pub requests_total: u64,
    /// Responses in each class of the status, `1xx` to `5xx`; `1xx` counts tunnels.
    pub responses: Vec<CountStatus>,
    /// Responses that Evenkeel made itself.
    pub own_responses_total: u64,
    /// Requests sent again after a failure.
    pub retried_total: u64,
    /// Requests refused because they violate the protocol or a limit.
    pub refused_total: u64,
    /// Requests that ended before their response was complete.
    pub aborted_total: u64,
    /// Connections that became tunnels, such as WebSockets.
    pub tunnels_total: u64,
    /// Connections to each listed server.
    pub pools: Vec<HttpPoolStatus>,
    /// Sums over all servers, listed or not, and the longest wait. `server` is empty.
    pub all_pools: HttpPoolStatus,
    /// Requests of each route, in the order of the file.
    pub routes: Vec<HttpRouteStatus>,
    /// Times from the head of a request to the end of its response, in microseconds.
    pub request_us: Histogram,
    /// Times from the send of a request to the head of its response, in microseconds.
    pub first_byte_us: Histogram,
}

/// Requests of the routes of one name, since the process has begun.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpRouteStatus {
    /// Name of the route.
    pub route: String,
    /// Requests answered, in all classes.
    pub requests_total: u64,
    /// Responses in each class of the status, `1xx` to `5xx`.
    pub responses: Vec<CountStatus>,
    /// Times from the head of a request to the end of its response, in microseconds.
    pub request_us: Histogram,
    /// Copies of requests for the mirror of the route: `answered`, `failed` and `dropped`.
    pub copies: Vec<CountStatus>,
}

/// Connections to one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HttpPoolStatus {
    /// Name of the server.
    pub server: String,
    /// Number of requests in progress, tunnels included.
    pub requests: u64,
    /// Number of connections, including those being opened or closed.
    pub connections: u64,
    /// Number of idle connections.
    pub idle: u64,
    /// Number of connections being opened.
    pub opening: u64,
    /// Number of requests that wait for a connection.
    pub waiting: u64,
    /// Wait time of the request that has waited longest.
    pub longest_wait_ms: u64,
}

impl HttpPoolStatus {
    /// Adds the connections to another server.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.connections += other.connections;
        self.idle += other.idle;
        self.opening += other.opening;
        self.waiting += other.waiting;
        self.longest_wait_ms = self.longest_wait_ms.max(other.longest_wait_ms);
    }
}

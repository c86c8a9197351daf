//! Selects the services and servers that a status lists, so that its size has a limit.

use serde::{Deserialize, Serialize};

/// Number of servers, over all services, up to which a status lists all of them by default.
pub const SERVERS_LISTED_MAX: usize = 500;

/// Number of servers per service that a shortened status lists.
pub const SERVERS_SHOWN_MAX: usize = 20;

/// Selection of the services and servers in a status. Also the query of `GET /api/v1/status` and
/// `GET /metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusSelection {
    /// Name of the only service to list. `None`: all services.
    pub service: Option<String>,
    /// Servers to list. `None`: all servers of a named service, otherwise the default.
    servers: Option<ServerSelection>,
}

/// Servers of a service in a status. They are always counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerSelection {
    /// All servers, or those with a problem if there are more than [`SERVERS_LISTED_MAX`].
    #[default]
    Default,
    /// All servers, however many there are.
    All,
    /// No server.
    None,
}

impl StatusSelection {
    /// Selects all services and all their servers.
    pub fn all() -> Self {
        Self {
            service: None,
            servers: Some(ServerSelection::All),
        }
    }

    /// Selects all services without their servers.
    pub fn without_servers() -> Self {
        Self {
            service: None,
            servers: Some(ServerSelection::None),
        }
    }

    /// Selects one service and all its servers.
    pub fn service(name: impl Into<String>) -> Self {
        Self {
            service: Some(name.into()),
            servers: None,
        }
    }

    /// Returns the servers to list.
    pub fn servers(&self) -> ServerSelection {
        match (self.servers, &self.service) {
            (Some(servers), _) => servers,
            (None, Some(_)) => ServerSelection::All,
            (None, None) => ServerSelection::Default,
        }
    }

    /// Returns whether a service is listed.
    pub fn includes(&self, service: &str) -> bool {
        self.service.as_ref().is_none_or(|name| name == service)
    }
}

/// Number of servers of a service, in all and in each state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerCounts {
    /// Number of servers of the service, without removed ones.
    pub total: u64,
    /// Number of servers that take new clients.
    pub up: u64,
    /// Number of servers that are down.
    pub down: u64,
    /// Number of servers without a result yet.
    pub starting: u64,
    /// Number of servers whose existing sessions may finish.
    pub draining: u64,
    /// Number of servers that this status does not list.
    pub omitted: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_service_lists_all_its_servers() {
        assert_eq!(
            StatusSelection::default().servers(),
            ServerSelection::Default
        );
        let one = StatusSelection::service("orders");
        assert_eq!(one.servers(), ServerSelection::All);
        assert!(one.includes("orders") && !one.includes("reports"));
        let asked = StatusSelection {
            servers: Some(ServerSelection::None),
            ..one
        };
        assert_eq!(asked.servers(), ServerSelection::None);
    }
}

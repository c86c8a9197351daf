//! Status of clusters: the primary, and the role and lag of each server.

use serde::{Deserialize, Serialize};

/// Servers that services with a role list together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    /// Names of the services that the cluster serves.
    pub services: Vec<String>,
    /// Name of the server that takes writes. `None`: no server may.
    pub primary: Option<String>,
    /// Time since when the primary is unchanged.
    pub since_unix_ms: u64,
    /// Server that an operator has set as the primary (`evenkeel primary`), while that holds.
    pub operator_override: Option<String>,
    /// Problems for the operator, such as the reason for a missing primary, or rejected servers.
    pub problems: Vec<String>,
}

/// Role of a server in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoleStatus {
    /// Role of the server.
    pub role: RoleName,
    /// Reason why the server has no role, or could not report it. Empty if there is none.
    pub reason: String,
    /// Lag of a replica in milliseconds. `None`: unknown.
    pub lag_ms: Option<u64>,
    /// Lag in bytes of WAL (PostgreSQL). `None`: unknown.
    pub lag_bytes: Option<u64>,
    /// Time when the server got this role.
    pub since_unix_ms: u64,
}

/// Role of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    /// The server has not been queried yet, or is down.
    #[default]
    Unknown,
    /// The server takes writes.
    Primary,
    /// The server replicates from the primary.
    Replica,
    /// The server is alive, but may be used neither for writes nor for reads.
    #[serde(rename = "unusable")]
    Unfit,
}

impl RoleName {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Primary, Self::Replica, Self::Unfit];

    /// Returns the word used in JSON, in metrics and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Unfit => "unusable",
        }
    }
}

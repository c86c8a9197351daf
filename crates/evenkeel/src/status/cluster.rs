//! What is known of clusters: who is primary, who replicates and how far behind.

use serde::{Deserialize, Serialize};

/// The servers that services with a role list together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    /// The services that it serves, by name.
    pub services: Vec<String>,
    /// The name of the server that takes writes; none while nobody may.
    pub primary: Option<String>,
    /// Since when the primary is what it is.
    pub since_unix_ms: u64,
    /// The server that an operator has named (`evenkeel primary`), while that holds.
    pub operator_override: Option<String>,
    /// What an operator should know: why there is no primary, who was refused.
    pub problems: Vec<String>,
}

/// What a server is in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoleStatus {
    /// The role.
    pub role: RoleName,
    /// Why it has none, or could not tell; empty when there is nothing to say.
    pub reason: String,
    /// How far a replica is behind; none is unknown.
    pub lag_ms: Option<u64>,
    /// The same in bytes of WAL, of PostgreSQL.
    pub lag_bytes: Option<u64>,
    /// When it came into this role.
    pub since_unix_ms: u64,
}

/// The role of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    /// Not asked yet, or down.
    #[default]
    Unknown,
    /// Takes writes.
    Primary,
    /// Follows the primary.
    Replica,
    /// Alive, and to be used as neither.
    #[serde(rename = "unusable")]
    Unfit,
}

impl RoleName {
    /// Every role, for those who list them.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Primary, Self::Replica, Self::Unfit];

    /// The word used in JSON, metrics and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Unfit => "unusable",
        }
    }
}

//! Defines the role in a cluster that a service requires of its servers.

use crate::setting::words;

/// Role that a server must have to serve the clients of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Any role.
    Any,
    /// The primary, which takes writes.
    Primary {
        /// Treatment of sessions on the previous primary. Default cut.
        on_change: OnPrimaryChange,
    },
    /// A replica of the primary.
    Replica {
        /// Maximum lag of a replica, up to a day. `None`: no limit.
        lag_ms_max: Option<u64>,
        /// Server for clients while no replica can serve. Default none.
        fallback: Fallback,
    },
}

impl Role {
    /// Returns the word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Role::Any => "any",
            Role::Primary { .. } => "primary",
            Role::Replica { .. } => "replica",
        }
    }
}

words! {
    /// Treatment of sessions on a server that is no longer the primary.
    pub enum OnPrimaryChange {
        /// Sessions are reset, so that clients reconnect to the new primary.
        Cut = "cut",
        /// Sessions continue until one side ends them.
        Leave = "leave",
    }
}

words! {
    /// Server for reads while no replica can serve.
    pub enum Fallback {
        /// None: clients are not served.
        Nobody = "nobody", // tidy: a value of the configuration
        /// The primary.
        Primary = "primary",
    }
}

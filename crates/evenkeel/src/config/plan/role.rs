//! The part of a cluster that a service wants.

/// The part of a cluster that serves the clients of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Every server, whatever it is.
    Any,
    /// The one that takes writes.
    Primary {
        /// The sessions on the former one. Default cut.
        on_change: OnPrimaryChange,
    },
    /// Those that follow it.
    Replica {
        /// The most that one may be behind, up to a day. `None`: as far as it likes.
        lag_ms_max: Option<u64>,
        /// Who serves while no replica can. Default nobody.
        fallback: Fallback,
    },
}

impl Role {
    /// The word used in the file.
    pub fn name(self) -> &'static str {
        match self {
            Role::Any => "any",
            Role::Primary { .. } => "primary",
            Role::Replica { .. } => "replica",
        }
    }
}

/// The sessions on a server that is no longer the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnPrimaryChange {
    /// They are reset, so that clients come again and find the new one.
    Cut,
    /// They go on until one side ends them.
    Leave,
}

/// Who serves reads while no replica can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Nobody.
    Nobody,
    /// The primary.
    Primary,
}

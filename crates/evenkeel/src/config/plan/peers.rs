//! Defines the other Evenkeel instances that serve the same clients.

use std::collections::BTreeMap;

use super::Address;

/// `[peers]`: number of this Evenkeel instance, and addresses of the others. A cancel request uses
/// a new connection, which may reach any instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersPlan {
    /// Number of this instance, 1 to 1 023. Default 1.
    pub instance: u16,
    /// Addresses that receive cancel requests for clients of the other instances, by number. Never
    /// contains this instance.
    pub addresses: BTreeMap<u16, Address>,
}

impl Default for PeersPlan {
    fn default() -> PeersPlan {
        PeersPlan {
            instance: 1,
            addresses: BTreeMap::new(),
        }
    }
}

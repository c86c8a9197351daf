//! Several Evenkeels before the same clients.

use std::collections::BTreeMap;

use super::Address;

/// `[peers]`: which of several Evenkeels this one is, and where the others are. A request to cancel
/// comes over a new connection, which may reach any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersPlan {
    /// This one's number, 1 to 1 023. Default 1.
    pub instance: u16,
    /// Where cancel requests of the others' clients go, by number; never this one's own.
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

//! Defines the other Evenkeel instances that serve the same clients.

use std::collections::BTreeMap;

use super::Address;
use crate::setting::{number, settings};

/// Highest instance number: ten bits of a cancel key contain the instance that issued it. 0 means
/// none.
pub(crate) const INSTANCE_MAX: u64 = 1_023;

settings! {
    /// `[peers]`: number of this Evenkeel instance, and addresses of the others. A cancel request
    /// uses a new connection, which may reach any instance.
    pub struct PeersPlan {
        /// Number of this instance; different in each.
        instance: u16 = 1, number(1, INSTANCE_MAX);
    } also {
        /// Addresses that receive cancel requests for clients of the other instances, by number.
        /// Never contains this instance.
        addresses: BTreeMap<u16, Address> = BTreeMap::new();
    }
}

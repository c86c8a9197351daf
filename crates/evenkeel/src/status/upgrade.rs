//! After an upgrade: the old process as long as it drains.

use serde::{Deserialize, Serialize};

/// A process that this one has taken over from. Its sessions count in those of services and
/// servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpgradeStatus {
    /// Its process id.
    pub draining_pid: u32,
    /// Sessions that it still has.
    pub sessions_left: u64,
    /// Then the rest of them is cut.
    pub left_ms: u64,
}

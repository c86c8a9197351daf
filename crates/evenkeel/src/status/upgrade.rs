//! Status of an upgrade: the old process while it drains.

use serde::{Deserialize, Serialize};

/// A process that this one has taken over from. Its sessions are included in those of services and
/// servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpgradeStatus {
    /// Process id.
    pub draining_pid: u32,
    /// Number of its remaining sessions.
    pub sessions_left: u64,
    /// Age of its oldest session in milliseconds. `None` without a session.
    pub oldest_session_ms: Option<u64>,
    /// Time in milliseconds until the remaining sessions are terminated.
    pub left_ms: u64,
}

/// Formats a duration with up to two units.
pub fn age(age_ms: u64) -> String {
    let seconds = age_ms / 1_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

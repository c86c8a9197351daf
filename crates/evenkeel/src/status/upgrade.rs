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
    /// Age of the oldest of them.
    pub oldest_session_ms: Option<u64>,
    /// Then the rest of them is terminated.
    pub left_ms: u64,
}

/// Writes a time for people, in two units at most.
pub fn age(age_ms: u64) -> String {
    let seconds = age_ms / 1_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

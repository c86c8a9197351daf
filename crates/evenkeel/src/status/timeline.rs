//! Timeline of all changes of state, role, primary and configuration, from which the course of a
//! failover can be read.

use serde::{Deserialize, Serialize};

/// A change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimelineEvent {
    /// Id, which increases by one with each event of the process.
    pub id: u64,
    /// Time of the change.
    pub at_unix_ms: u64,
    /// Kind of the change.
    pub kind: EventKind,
    /// Severity of the change.
    pub severity: Severity,
    /// Server concerned.
    pub server: Option<String>,
    /// Service concerned.
    pub service: Option<String>,
    /// Description of the change.
    pub what: String,
    /// Cause of the change. Empty if unknown.
    pub cause: String,
    /// Number of sessions terminated as a consequence. `None` if none could be.
    pub sessions_terminated: Option<u64>,
    /// Number of clients that waited for a server at that time, in the services concerned.
    pub queued: u64,
}

/// Kind of an event's change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A server went up or down, or is being retried. A service changed its state with it.
    #[default]
    State,
    /// A server changed its role.
    Role,
    /// A cluster has another primary, or none.
    Primary,
    /// A problem that needs an operator, or its resolution.
    Problem,
    /// The configuration was reloaded, or rejected.
    Config,
    /// An operator's command.
    Command,
    /// The process started, stops, or hands over.
    Process,
    /// A kind that only another version knows.
    #[serde(other)]
    Other,
}

impl EventKind {
    /// Returns the word used in JSON and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Role => "role",
            Self::Primary => "primary",
            Self::Problem => "problem",
            Self::Config => "config",
            Self::Command => "command",
            Self::Process => "process",
            Self::Other => "other",
        }
    }
}

/// Severity of an event, and level of its log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Information.
    #[default]
    Info,
    /// Needs attention soon.
    Warning,
    /// Needs attention now. Also used for a severity that only another version knows.
    #[serde(other)]
    Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_only_another_version_knows_is_an_event_all_the_same() {
        let text = r#"{"id": 7, "kind": "later", "severity": "worse", "what": "w"}"#;
        let event: TimelineEvent = serde_json::from_str(text).unwrap();
        assert_eq!((event.id, event.kind), (7, EventKind::Other));
        assert_eq!(event.severity, Severity::Error);
    }
}

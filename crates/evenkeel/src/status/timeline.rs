//! The timeline: every change of state, role, primary and config, so that a failover reads as a
//! story.

use serde::{Deserialize, Serialize};

/// Something that changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimelineEvent {
    /// Rises by one with each event of the process.
    pub id: u64,
    /// When it happened.
    pub at_unix_ms: u64,
    /// What kind of change it is.
    pub kind: EventKind,
    /// How much it matters.
    pub severity: Severity,
    /// The server it is about.
    pub server: Option<String>,
    /// The service it is about.
    pub service: Option<String>,
    /// What changed.
    pub what: String,
    /// Why; empty when nobody knows more.
    pub cause: String,
    /// Sessions that were cut because of it; none when none could be.
    pub sessions_terminated: Option<u64>,
    /// Clients that waited for a server at that moment, in the services concerned.
    pub queued: u64,
}

/// What kind of change an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A server came up, went down, or is tried again; a service came or went with it.
    #[default]
    State,
    /// A server changed its role.
    Role,
    /// A cluster has another primary, or none.
    Primary,
    /// Something that an operator should look at, or its end.
    Problem,
    /// The config was read again, or refused.
    Config,
    /// An operator's command.
    Command,
    /// The process started, stops, or hands over.
    Process,
    /// One that another version knows and this one does not.
    #[serde(other)]
    Other,
}

impl EventKind {
    /// The word used in JSON and on the page.
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

/// How much an event matters: the level of its line in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    #[default]
    Info,
    /// Needs somebody soon.
    Warning,
    /// Needs somebody now; also a severity that only another version knows.
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

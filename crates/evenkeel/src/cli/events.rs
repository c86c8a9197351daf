//! Implements `evenkeel events`: prints the timeline of the running process, as text or as JSON
//! lines.

use std::process::ExitCode;
use std::time::Duration;

use super::EventsArgs;
use super::requests::{client, fail, print};
use crate::log::rfc3339;
use crate::status::{Severity, TimelineEvent};

/// Interval between two requests for new events.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(300);

pub(super) fn run(args: &EventsArgs) -> ExitCode {
    let Some(client) = client(&args.process) else {
        return ExitCode::FAILURE;
    };
    let mut after = 0;
    loop {
        let events = match client.events(after) {
            Ok(events) => events,
            Err(error) => return fail(&error.to_string()),
        };
        for event in &events {
            after = event.id;
            let line = match args.json {
                true => serde_json::to_string(event).unwrap_or_default(),
                false => line(event),
            };
            // The reader has closed the output.
            if print(&line) == ExitCode::FAILURE {
                return ExitCode::SUCCESS;
            }
        }
        if !args.follow {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// Returns one event as a line: time, severity, change, cause and effect.
pub(super) fn line(event: &TimelineEvent) -> String {
    let severity = match event.severity {
        Severity::Info => " ",
        Severity::Warning => "!",
        Severity::Error => "X",
    };
    let mut line = format!("{} {severity} ", rfc3339(event.at_unix_ms));
    if let Some(service) = &event.service {
        line.push_str(&format!("[{service}] "));
    }
    line.push_str(&event.what);
    if !event.cause.is_empty() {
        line.push_str(&format!(": {}", event.cause));
    }
    let mut consequences = Vec::new();
    if let Some(cut) = event.sessions_terminated.filter(|cut| *cut > 0) {
        consequences.push(format!("sessions terminated: {cut}"));
    }
    if event.queued > 0 {
        consequences.push(format!("clients waiting: {}", event.queued));
    }
    if !consequences.is_empty() {
        line.push_str(&format!(" ({})", consequences.join(", ")));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::EventKind;

    #[test]
    fn an_event_is_one_line_with_its_cause_and_its_consequences() {
        let event = TimelineEvent {
            id: 7,
            at_unix_ms: 1_772_323_199_042,
            kind: EventKind::Primary,
            severity: Severity::Warning,
            service: Some("orders".to_owned()),
            what: "db2 is the primary, replacing db1".to_owned(),
            cause: "db1 is down".to_owned(),
            sessions_terminated: Some(3),
            queued: 2,
            ..TimelineEvent::default()
        };
        assert_eq!(
            line(&event),
            "2026-02-28T23:59:59.042Z ! [orders] db2 is the primary, replacing db1: db1 is down \
             (sessions terminated: 3, clients waiting: 2)"
        );
    }
}

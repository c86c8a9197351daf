//! Reads the events of a change of primary from `evenkeel events`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use evenkeel_lab::scenario::How;
use evenkeel_lab::{Balancer, Server};
use serde_json::Value;

/// Returns all events after this id, oldest first.
pub(super) fn after(balancer: &Balancer, id: u64) -> Result<Vec<Value>> {
    let output = balancer.command(&["events", "--json"])?;
    let text = String::from_utf8(output.stdout)?;
    let events: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let mut events = events.context("evenkeel events --json prints no JSON")?;
    events.retain(|event| event["id"].as_u64().is_some_and(|one| one > id));
    Ok(events)
}

pub(super) fn last_id(balancer: &Balancer) -> Result<u64> {
    let events = after(balancer, 0)?;
    let last = events.last().and_then(|event| event["id"].as_u64());
    Ok(last.unwrap_or(0))
}

/// Returns the steps of a change that have no event.
pub(super) fn missing(events: &[Value], old: &Server, new: &Server, how: How) -> Vec<String> {
    let (old, new) = (&old.name, &new.name);
    let mut steps = vec![
        ("primary", format!("{new} is the primary")),
        ("role", format!("{old} is a replica")),
    ];
    if how == How::Killed {
        steps.push(("state", format!("{old} is down")));
    }
    let is_told = |(kind, step): &(&str, String)| {
        let mut words = events
            .iter()
            .filter(|event| event["kind"] == *kind)
            .filter_map(|event| event["what"].as_str());
        words.any(|what| what.starts_with(step))
    };
    steps.retain(|step| !is_told(step));
    steps.into_iter().map(|(_, step)| step).collect()
}

/// Formats an event, with its time relative to the first moment of a writable primary.
pub(super) fn line(event: &Value, writable_at: SystemTime) -> String {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let at = UNIX_EPOCH + Duration::from_millis(event["at_unix_ms"].as_u64().unwrap_or(0));
    let at = after_ms(at, writable_at);
    format!(
        "{at:>6} ms [{}] {}: {}",
        text("service"),
        text("what"),
        text("cause")
    )
}

pub(super) fn after_ms(instant: SystemTime, start: SystemTime) -> i64 {
    let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    match instant.duration_since(start) {
        Ok(later) => ms(later),
        Err(earlier) => -ms(earlier.duration()),
    }
}

//! Records every change once, in the log and for later requests.

use std::collections::VecDeque;

use evenkeel_engine::clock::now_ms;
use evenkeel_proxy::data_plane::CutCount;

use super::ControlPlane;
use super::clock::now_unix_ms;
use crate::status::{EventKind, Severity, TimelineEvent};

/// Most events kept, enough for several failovers of a large installation.
const EVENTS_MAX: usize = 512;

/// Number of latest events in the status.
const EVENTS_IN_STATUS: usize = 32;

/// Time within which workers terminate sessions. Their count is final afterwards.
const CUT_LIMIT_MS: u64 = 100;

/// Events so far. The oldest are dropped.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    events: VecDeque<StoredEvent>,
    last_id: u64,
    /// Consequences of the current events, recorded after them.
    delayed: Vec<NewEvent>,
}

#[derive(Debug)]
struct StoredEvent {
    event: TimelineEvent,
    cuts: Vec<CutCount>,
    /// Time to log the number of terminated sessions. `None` once logged, or if no session could be
    /// terminated.
    log_cuts_at_ms: Option<u64>,
}

impl StoredEvent {
    fn event(&self) -> TimelineEvent {
        let mut event = self.event.clone();
        if !self.cuts.is_empty() {
            event.sessions_terminated = Some(self.cuts.iter().map(CutCount::get).sum());
        }
        event
    }
}

/// A new event without id and time.
#[derive(Debug)]
pub(super) struct NewEvent {
    event: TimelineEvent,
    cuts: Vec<CutCount>,
}

impl NewEvent {
    pub(super) fn new(kind: EventKind, severity: Severity, what: impl Into<String>) -> Self {
        let event = TimelineEvent {
            kind,
            severity,
            what: what.into(),
            ..TimelineEvent::default()
        };
        let cuts = Vec::new();
        Self { event, cuts }
    }

    pub(super) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.event.cause = cause.into();
        self
    }

    pub(super) fn server(mut self, server: impl ToString) -> Self {
        self.event.server = Some(server.to_string());
        self
    }

    pub(super) fn service(mut self, service: impl Into<String>) -> Self {
        self.event.service = Some(service.into());
        self
    }

    /// Sets the event's consequences: terminated sessions, and waiting clients.
    pub(super) fn cut(mut self, cuts: Vec<CutCount>, queued: u64) -> Self {
        self.cuts = cuts;
        self.event.queued = queued;
        self
    }
}

impl Timeline {
    pub(super) fn record(&mut self, new_event: NewEvent) {
        let NewEvent { mut event, cuts } = new_event;
        self.last_id += 1;
        event.id = self.last_id;
        event.at_unix_ms = now_unix_ms();
        log(&event);
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        let log_cuts_at_ms = (!cuts.is_empty()).then(|| now_ms() + CUT_LIMIT_MS);
        self.events.push_back(StoredEvent {
            event,
            cuts,
            log_cuts_at_ms,
        });
    }

    /// Continues the timeline of another process: its events come before those of this one, which
    /// are renumbered.
    pub(super) fn resume(&mut self, earlier: Vec<TimelineEvent>) {
        self.last_id = earlier.last().map_or(0, |event| event.id);
        let own = std::mem::take(&mut self.events);
        let stored = |event| StoredEvent {
            event,
            cuts: Vec::new(),
            log_cuts_at_ms: None,
        };
        self.events = earlier.into_iter().map(stored).collect();
        for mut stored in own {
            self.last_id += 1;
            stored.event.id = self.last_id;
            self.events.push_back(stored);
        }
        while self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// Returns the events after this id, oldest first.
    pub(super) fn after(&self, id: u64) -> Vec<TimelineEvent> {
        let later = self.events.iter().filter(|stored| stored.event.id > id);
        later.map(StoredEvent::event).collect()
    }

    pub(super) fn last(&self) -> Vec<TimelineEvent> {
        self.after(self.last_id.saturating_sub(EVENTS_IN_STATUS as u64))
    }

    pub(super) fn next_due_ms(&self) -> Option<u64> {
        self.events
            .iter()
            .filter_map(|stored| stored.log_cuts_at_ms)
            .min()
    }

    fn log_cuts(&mut self, now_ms: u64) {
        for stored in &mut self.events {
            if stored.log_cuts_at_ms.is_none_or(|at_ms| now_ms < at_ms) {
                continue;
            }
            stored.log_cuts_at_ms = None;
            let sessions: u64 = stored.cuts.iter().map(CutCount::get).sum();
            if sessions > 0 {
                tracing::info!(sessions, "sessions terminated: {}", stored.event.what);
            }
        }
    }
}

impl ControlPlane {
    pub(super) fn record_event(&mut self, new_event: NewEvent) {
        self.timeline.record(new_event);
    }

    /// Records a consequence of the current events after them, so that the cause comes first.
    pub(super) fn record_after(&mut self, new_event: NewEvent) {
        self.timeline.delayed.push(new_event);
    }

    /// Records pending consequences, and logs counts that are final now.
    pub(super) fn log_due_events(&mut self, now_ms: u64) {
        for new_event in std::mem::take(&mut self.timeline.delayed) {
            self.timeline.record(new_event);
        }
        self.timeline.log_cuts(now_ms);
    }
}

fn log(event: &TimelineEvent) {
    let (what, cause) = (&event.what, &event.cause);
    let line = if cause.is_empty() {
        what.clone()
    } else {
        format!("{what}: {cause}")
    };
    let (service, server) = (event.service.as_deref(), event.server.as_deref());
    match event.severity {
        Severity::Info => tracing::info!(service, server, "{line}"),
        Severity::Warning => tracing::warn!(service, server, "{line}"),
        Severity::Error => tracing::error!(service, server, "{line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(timeline: &mut Timeline, what: &str) {
        timeline.record(NewEvent::new(EventKind::State, Severity::Info, what));
    }

    #[test]
    fn events_are_numbered_and_those_after_one_are_given_in_order() {
        let mut timeline = Timeline::default();
        for what in ["one", "two", "three"] {
            record(&mut timeline, what);
        }
        let later: Vec<_> = timeline
            .after(1)
            .into_iter()
            .map(|event| event.what)
            .collect();
        assert_eq!(later, ["two", "three"]);
    }

    #[test]
    fn a_story_goes_on_where_another_process_left_it() {
        let (mut old, mut new) = (Timeline::default(), Timeline::default());
        record(&mut old, "one");
        record(&mut old, "two");
        record(&mut new, "three");
        new.resume(old.after(0));
        let all = new.after(0).into_iter();
        let all: Vec<_> = all.map(|event| (event.id, event.what)).collect();
        let expect = [(1, "one"), (2, "two"), (3, "three")];
        assert_eq!(all, expect.map(|(id, what)| (id, what.to_owned())));
    }

    #[test]
    fn the_oldest_are_forgotten_but_their_numbers_are_not_used_again() {
        let mut timeline = Timeline::default();
        for number in 0..EVENTS_MAX + 3 {
            record(&mut timeline, &number.to_string());
        }
        let all = timeline.after(0);
        assert_eq!(all.len(), EVENTS_MAX);
        assert_eq!(all[0].id, 4);
        assert_eq!(timeline.last().len(), EVENTS_IN_STATUS);
    }
}

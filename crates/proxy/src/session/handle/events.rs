//! Lists the events that interrupt the work of a logged-in client's session.

/// Event that a session handles between two steps of its work. In the order of urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEvent {
    /// The server has failed, or is no longer the primary.
    ServerAbandoned,
    /// A check is due whether both peers are alive.
    LivenessCheck,
    /// The query exceeds its time limit and must be cancelled.
    QueryOvertime,
    /// The client cancels its work or its wait.
    Cancelled,
    /// A deadline has passed, or the session may continue with input that it holds.
    Recheck,
}

/// Events that a session has not handled yet, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PendingEvents(u8);

impl PendingEvents {
    /// All events in declaration order.
    const ORDER: [SessionEvent; 5] = [
        SessionEvent::ServerAbandoned,
        SessionEvent::LivenessCheck,
        SessionEvent::QueryOvertime,
        SessionEvent::Cancelled,
        SessionEvent::Recheck,
    ];

    /// Adds an event; a second one of the same kind changes nothing.
    pub(super) fn add(&mut self, event: SessionEvent) {
        self.0 |= 1 << event as u8;
    }

    /// Adds the events of another set.
    pub(super) fn add_all(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Removes the most urgent event and returns it.
    pub(super) fn take_first(&mut self) -> Option<SessionEvent> {
        let position = self.0.trailing_zeros() as usize;
        let event = *Self::ORDER.get(position)?;
        self.0 &= self.0 - 1;
        Some(event)
    }
}

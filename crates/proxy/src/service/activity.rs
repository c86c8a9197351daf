//! Names the activities of sessions.

/// Current activity of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionActivity {
    /// No work: the client has sent no request.
    Idle,
    /// Waiting for a server connection.
    Waiting,
    /// Waiting for a primary.
    WaitingForPrimary,
    /// Server is processing a request.
    Active,
    /// Idle with an open transaction.
    InTransaction,
    /// Idle with a server connection that the session is pinned to.
    Bound,
}

impl SessionActivity {
    /// All activities in declaration order.
    pub const ALL: [Self; 6] = [
        SessionActivity::Idle,
        SessionActivity::Waiting,
        SessionActivity::WaitingForPrimary,
        SessionActivity::Active,
        SessionActivity::InTransaction,
        SessionActivity::Bound,
    ];

    /// Returns the name shown in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionActivity::Idle => "idle",
            SessionActivity::Waiting => "waiting",
            SessionActivity::WaitingForPrimary => "waiting for a primary",
            SessionActivity::Active => "active",
            SessionActivity::InTransaction => "idle in transaction",
            SessionActivity::Bound => "pinned",
        }
    }
}

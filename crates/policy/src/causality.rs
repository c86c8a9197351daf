//! Tracks causality: the writes that a session's reads must see, and the positions of the replicas.
//!
//! A session's [`CausalityToken`] is the position that it must see. After a write whose position
//! the database reports (a GTID), the token holds that position. Otherwise it is unknown until a
//! [`Sample`] of the primary's position that was requested after the write's reply was received.
//! One sample serves all sessions. Until then, and after a change of primary until the new position
//! is known, reads go to the primary.
//!
//! All sessions share one token under `consistency = "global"`: that of the last write of any
//! session, [`Writes::token`]. No position is queried under "eventual".
//!
//! Times are microseconds of one monotonic clock of this machine. An epoch is one server's time as
//! the primary. The caller increments it whenever another server (or the same on another timeline)
//! becomes the primary. It marks server connections with the epoch in which they were opened.

mod choose;
mod position;
mod sample;
mod token;

#[cfg(test)]
mod tests;

pub use choose::{
    Candidate, CausalitySettings, Freshness, ReadChoice, Replica, WaitSupport, assess, readers,
};
pub use position::{Lsn, Position, WAL_SEGMENT_BYTES};
pub use sample::{Sample, SampleIntervals, Sampler, Writes};
pub use token::{CausalityToken, RequiredPosition};

/// Writes that reads must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// Own writes of the session.
    #[default]
    ReadYourWrites,
    /// All writes that were acknowledged through this process before the read arrived.
    Global,
    /// No particular writes.
    Eventual,
}

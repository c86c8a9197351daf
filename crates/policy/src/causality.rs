//! Reads see the writes before them: what a session must see, what each replica has, and what
//! follows.
//!
//! A session's [`Token`] is what it must see. After a write whose position the database tells (a
//! GTID) it is that; else it is unknown until a [`Sample`] of the primary's position that was asked
//! for after the write's answer had come: one such question serves all sessions. Until then, and
//! after a change of primary until the new one's position is known, reads go to the primary.
//!
//! Under `consistency = "global"` every session's token is the same: the last write of all,
//! [`Writes::token`]. Under "eventual" nobody asks.
//!
//! Times are microseconds of one monotonic clock of this machine. An epoch is one server's time as
//! the primary: the caller counts them up, whenever another server (or the same on another
//! timeline) becomes the primary, and marks server connections with the epoch they were made in.

mod choose;
mod position;
mod sample;
mod token;

#[cfg(test)]
mod tests;

pub use choose::{
    Candidate, CausalitySettings, Freshness, ReadChoice, Replica, WaitSupport, judge, readers,
};
pub use position::{Lsn, Position, WAL_SEGMENT_BYTES};
pub use sample::{Sample, SampleIntervals, Sampler, Writes};
pub use token::{CausalityToken, RequiredPosition};

/// What reads must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Consistency {
    /// The session's own writes.
    #[default]
    ReadYourWrites,
    /// All writes that were acknowledged through this process before the read came.
    Global,
    /// Nothing in particular.
    Eventual,
}

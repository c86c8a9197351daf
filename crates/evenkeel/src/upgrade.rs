//! An upgrade nobody notices: a new process takes over the very sockets of the running one, which
//! then lets its sessions finish.
//!
//! The running process starts the new one with its own arguments and a socket as standard input.
//! Over it they agree, in this order, each step by the one whose turn it is:
//!
//! 1. old: `Hello`, which version of this conversation it speaks, and whom it has started
//! 2. new: `Asks`, once it has read its config and started its engine
//! 3. old: `Sockets`, and the sockets themselves (`SCM_RIGHTS`)
//! 4. new: `Ready`, once nothing is left that can fail
//! 5. old: keeps half of the free places of each limit for the moment in which both accept, and
//!    sends the `State`
//! 6. new: accepts, and says `Serving`
//! 7. old: lets the new one go, so that it is no longer a child of ours, makes it the main process
//!    of the service, stops accepting and sends `Report`s until its last session has ended
//!
//! The new one cannot be replaced before the old one has exited: there are never three processes.
//! `EndDraining` from the new one makes the old one terminate its sessions now.
//!
//! Whatever goes wrong before 6, the old process goes on as if nothing had been.

pub(crate) mod admin_sockets;
pub(crate) mod cancels;
pub(crate) mod channel;
mod double_fork;
pub(crate) mod predecessor;
pub(crate) mod predecessor_link;
pub(crate) mod process;
pub(crate) mod state;
pub(crate) mod successor;

/// The conversation's version: both must speak the same. Raise it when a field of
/// [`state`] changes its meaning; a new field, for which `default` is right, needs no new version.
pub(crate) const VERSION: u32 = 3;

/// Tells a process that it is to take over from the one whose id this is.
pub(crate) const PREDECESSOR: &str = "EVENKEEL_TAKES_OVER_FROM";

/// From the start of the new process to its first client.
pub const LIMIT_MS_DEFAULT: u64 = 10_000;

/// The command that waits for the outcome waits no longer than half a minute.
pub const LIMIT_MS_MAX: u64 = 20_000;

#[cfg(test)]
mod tests;

//! Implements the upgrade without interruption: a new process takes over the sockets of the running
//! one, which then lets its sessions finish.
//!
//! The running process starts the new one with its own arguments and a socket as standard input.
//! Both exchange the following messages over that socket:
//!
//! 1. old: `Hello`, with the protocol version and the id of the process that it started
//! 2. new: `Asks`, after it has read its configuration and started its engine
//! 3. old: `Sockets`, and the sockets themselves (`SCM_RIGHTS`)
//! 4. new: `Ready`, when no further step can fail
//! 5. old: keeps half of the free permits of each limit while both processes accept clients, and
//!    sends the `State`
//! 6. new: accepts clients, and sends `Serving`
//! 7. old: detaches the new process, so that it is no longer a child, makes it the main process of
//!    the service, stops accepting, then reports success to the command, and sends `Report`s until
//!    its last session has ended
//!
//! The new process cannot be replaced before the old one has exited: there are never three
//! processes. On `EndDraining` from the new process, the old one terminates its sessions
//! immediately.
//!
//! After a failure before step 6, the old process continues as before.

pub(crate) mod admin_sockets;
pub(crate) mod cancels;
pub(crate) mod channel;
pub(crate) mod predecessor;
pub(crate) mod predecessor_link;
pub(crate) mod process;
pub(crate) mod state;
pub(crate) mod successor;

/// Version of the protocol between both processes, which must be equal. Increase it when a field of
/// [`state`] changes its meaning. A new field whose `default` is correct needs no new version.
pub(crate) const VERSION: u32 = 3;

/// Environment variable with the id of the process from which a new process takes over.
pub(crate) const PREDECESSOR: &str = "EVENKEEL_TAKES_OVER_FROM";

/// Default limit for the time from the start of the new process to its first client.
pub const LIMIT_MS_DEFAULT: u64 = 10_000;

/// Maximum of that limit: the command that waits for the outcome waits up to half a minute.
pub const LIMIT_MS_MAX: u64 = 20_000;

#[cfg(test)]
mod tests;

//! The admin door, driven through real sockets.

mod doors;
mod requests;
mod upgrade;
pub(super) mod world;

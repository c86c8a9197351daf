//! Tests the admin interface through real sockets.

mod doors;
mod requests;
mod upgrade;
pub(super) mod world;

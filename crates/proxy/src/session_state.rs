//! What follows a client of a database service from server to server: what its texts mean for
//! that, and the settings that they make. Pure: no sockets, no clock.
//!
//! [`mysql`] is MySQL's and MariaDB's; the rest is PostgreSQL's. [`meaning`] reads a text once;
//! what it leaves behind in the session is a list of effects. The client's [`settings::Journal`]
//! takes them as the server confirms them and says at each end of a transaction what is to be
//! found on the next server connection; [`settings::difference`] brings it about.

pub mod analysis;
pub mod mysql;
mod pin_source;
pub mod settings;
pub mod templates;

pub use pin_source::PinSource;

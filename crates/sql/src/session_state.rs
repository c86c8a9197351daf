//! Session state of database clients that moves from server connection to server connection. Pure:
//! no sockets, no clock.
//!
//! [`mysql`] is for MySQL and MariaDB; the rest is for PostgreSQL. [`analysis`] reads a text once
//! into a list of effects. The client's [`settings::SessionState`] applies them as the server
//! confirms them. After each transaction it knows the settings that the next server connection must
//! have; [`settings::difference`] writes the SQL that sets them.

pub mod analysis;
mod effects;
pub mod mysql;
mod pin_source;
mod rules;
pub mod settings;
pub mod templates;

pub use pin_source::PinSource;

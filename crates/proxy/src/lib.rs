//! Data plane: owns every data socket and buffer.
//!
//! `accept` assigns a client to a worker. `session` then serves it, and `upstream` acquires server
//! connections for it. The control plane controls the data plane through
//! [`data_plane::DataPlane`].

#![forbid(unsafe_code)]

mod accept;
pub mod access_log;
pub mod calendar;
pub mod cancel;
pub mod counters;
pub mod data_plane;
mod error_catalog;
pub mod event;
mod numbers;
pub mod record;
mod server;
pub mod server_info;
mod service;
mod session;
pub mod settings;
mod shared;
mod sweeper;
#[cfg(test)]
mod testing;
mod upstream;
mod worker;

pub use server::{Endpoint, Server};
pub use service::{
    Protocol, ProtocolSnapshot, Service, ServiceSnapshot, database, digests, http, rules, stats,
    tls_routes,
};
pub use session::mysql::shared::lexer_modes as mysql_lexer_modes;
pub use session::protocol_state;

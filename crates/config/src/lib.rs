//! Reads the configuration: parses the TOML file, collects all problems with their place, and
//! builds a checked [`Plan`](plan::Plan).

#![forbid(unsafe_code)]

mod acme;
mod address;
mod auth;
mod check;
mod cluster;
mod compress;
mod database;
mod error_pages;
mod file;
mod flags;
mod health;
mod http;
pub mod keys;
mod names;
mod nearest;
mod networks;
mod peers;
pub mod plan;
mod pool;
mod problem;
mod protocol;
mod reader;
mod render;
mod role;
mod route;
mod rule;
mod secrets;
mod server;
mod server_tls;
mod service;
mod setting;
mod socket;
mod sources;
mod split;
mod syntax;
mod tls;
mod top;
mod upstream;
mod users;

pub use address::AddressError;
pub use file::{Loaded, load, parse, socket_of};
pub use flags::{Flags, file_of_flags, from_flags, variables};
pub use problem::{Problems, ReportedProblem, Severity};
pub use render::Style;
pub use socket::default_socket;
pub use sources::Sources;

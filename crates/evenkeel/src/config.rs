//! Config: a TOML file, read with spans and every problem collected, becomes a checked [`Plan`].

mod address;
mod check;
mod file;
mod flags;
mod health;
pub mod keys;
pub mod plan;
mod problem;
mod reader;
mod render;
mod role;
mod secrets;
mod server;
mod service;
mod socket;
mod top;

pub use address::AddressError;
pub use file::{Loaded, Sources, load, parse, socket_of};
pub use flags::{Flags, from_flags};
pub use plan::*;
pub use problem::{Place, Problem, Problems, Severity};
pub use render::Style;
pub use socket::default_socket;

//! Asks servers for their health, roles, log positions, catalogs and login verifiers.
//!
//! Each query runs on a connection of the monitor's own, mostly with the monitor account, in the
//! control plane's tokio runtime; no traffic of clients passes here. Results are values: `evenkeel`
//! passes them to `policy`, which decides, or to `proxy`, whose sessions read them.
//!
//! | question | asked by | result |
//! |---|---|---|
//! | does the server work? | [`probe::Prober`] | [`probe::Observation`] |
//! | is it a primary or a replica? | [`RoleMonitor`] | [`RoleReport`] |
//! | how far has it replicated? | [`PositionQuery`] | [`ServerPosition`] |
//! | what does a statement leave in a session? | [`CatalogReader`], [`RoutineReader`] | catalogs |
//! | which users may log in? | [`PostgresAuthQuery`], [`MysqlAuthQuery`] | records |
//! | what is it, and what may an account not do? | [`inspect`] | [`inspect::Facts`] |
//!
//! [`RoleReport`]: evenkeel_policy::cluster::RoleReport
//!
//! `probe/` connects and logs in, per protocol. `mysql/` and `postgres/` have the questions and the
//! reading of the answers. `persistent.rs` keeps a connection between questions.

#![forbid(unsafe_code)]

mod error;
pub mod inspect;
mod kept_line;
mod mysql;
mod persistent;
mod position;
mod postgres;
pub mod probe;
mod role_monitor;
mod row;

pub use error::WatchError;
pub use mysql::logins::MysqlAuthQuery;
pub use mysql::routines::RoutineReader;
pub use position::{PositionQuery, ServerPosition};
pub use postgres::{catalog::CatalogReader, logins::PostgresAuthQuery};
pub use role_monitor::RoleMonitor;

/// Clock of the caller, in microseconds. Reports carry its times, so that the caller can compare
/// them with those of its other events, such as writes of sessions.
pub type Clock = fn() -> u64;

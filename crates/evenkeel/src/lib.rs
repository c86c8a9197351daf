//! Implements the control plane, admin interface and metrics of the balancer, as a library so that
//! tests can use it.

#![forbid(unsafe_code)]

mod access_log;
mod acme;
pub mod admin;
pub mod cli;
pub mod client;
pub mod control_plane;
mod explain;
mod init;
pub mod log;
pub mod metrics;
pub mod notify;
mod rules;
pub mod run;
pub mod status;
pub mod upgrade;

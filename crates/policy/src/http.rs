//! Decisions for requests of HTTP: routes, retries, sticky sessions, rates and what servers have
//! shown.
//!
//! Texts of requests are bytes that `wire` has checked and split; this module knows no framing.

pub mod path;
pub mod route;

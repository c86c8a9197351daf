//! Decisions for requests of HTTP: routes, retries, sticky sessions, rates and what servers have
//! shown.
//!
//! Texts of requests are bytes that `wire` has checked and split; this module knows no framing.

pub mod budget;
pub mod compress;
pub mod eject;
pub mod keyed_hash;
pub mod learned;
pub mod path;
pub mod rate;
pub mod redirect;
pub mod replay;
pub mod rewrite;
pub mod route;
pub mod split;
pub mod sticky;
pub mod trusted_proxies;

//! Decision logic of the pooler: routing, balancing, health and roles. Pure: no I/O, and the time
//! is an argument.
#![forbid(unsafe_code)]

pub mod accounts;
pub mod balance;
pub mod causality;
pub mod cluster;
pub mod connection_pool;
pub mod failover_queue;
pub mod health;
pub mod http;
pub mod load;
mod mixer;
pub mod permits;
pub mod pins;
pub mod ramp;
pub mod route;
pub mod rules;
mod sample;
pub mod server_set;

pub use balance::Algorithm;
pub use cluster::Cluster;
pub use load::Load;
pub use server_set::{Member, MemberSet, Pick, PickRequest, RotationCursor, ServerSet};

//! Decides: which server gets a client, which servers are alive. Pure; time comes as an argument.
#![forbid(unsafe_code)]

pub mod balance;
pub mod causality;
pub mod cluster;
pub mod health;
pub mod lending;
pub mod load;
pub mod pins;
pub mod places;
pub mod pool;
pub mod ramp;
pub mod route;
pub mod rules;
pub mod trials;
pub mod waiting;

pub use balance::Algorithm;
pub use cluster::Cluster;
pub use load::Load;
pub use pool::{Member, MemberSet, Pick, PickRequest, RotationCursor, ServerSet};

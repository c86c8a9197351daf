//! Decides: which server a client gets, and which servers are alive. Pure: time and randomness are arguments.
#![forbid(unsafe_code)]

pub mod balance;
pub mod health;
pub mod load;
pub mod pool;
pub mod ramp;

pub use balance::Algorithm;
pub use load::Load;
pub use pool::{Cursor, Member, Pick, Pool, Request, Tried};

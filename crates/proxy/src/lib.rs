//! Moves.

pub mod probe;

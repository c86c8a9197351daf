//! Speaks: pure codecs, bytes to borrowed frames and back; no socket, clock, log or randomness.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]
#![deny(clippy::arithmetic_side_effects)]

pub mod proxy_header;
